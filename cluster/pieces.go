package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/graph/pieces"
)

// bringSet readies the run's partition set: what describes it, which every node has, and the pieces that belong here.
func (s *Session) bringSet(ctx context.Context, r *Run) (err error) {
	o, cfg := &s.o, &s.o.Config
	if cfg.Data.Path == "" {
		cfg.Data.Path = filepath.Join(o.Dir, "store")
		if err := s.node.makeRoom(cfg.Data.Path, r); err != nil {
			return err
		}
	}
	set, common, err := s.node.copySet(ctx, r, cfg.Data.Path)
	if err != nil {
		return err
	}
	s.node.files.Add("set", cfg.Data.Path, pieces.Files())
	p, err := parts.Hold(ctx, parts.Options{
		Member: s.node.Member, Plane: s.node.Plane, Files: s.node.files, Set: set, Common: common, Replicas: o.Replicas, MinNodes: o.WaitFor,
		Trust: o.TrustData, Copying: o.Copying, Logger: s.node.log,
	})
	if err != nil {
		return err
	}
	s.features = &Features{keeper: p.Keeper(), parts: p}
	s.node.features.Store(s.features)
	cfg.Cluster.Parts = p
	return p.Ready(ctx)
}

// makeRoom removes what a node's directory has of another run's data.
func (n *Node) makeRoom(dir string, r *Run) error {
	if set, err := pieces.Open(dir); err == nil && set.Fingerprint() == r.Data {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	n.log.Info("the data of another run makes room", "directory", dir)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// copySet opens the run's set in dir, where it copies what describes it if need be, and says what is alike of the
// pieces, as one that lies here, or else another node, does.
func (n *Node) copySet(ctx context.Context, r *Run, dir string) (set *pieces.Set, common pieces.Common, err error) {
	if set, err = pieces.Open(dir); err == nil {
		if set.Fingerprint() != r.Data {
			return nil, common, fmt.Errorf("%w: %s is of fingerprint %.12s, and the run's set of %.12s", ErrOtherRun, dir, set.Fingerprint(), r.Data)
		}
		for i := range set.Pieces() {
			if p, err := set.OpenPiece(i); err == nil {
				common, err := pieces.CommonOf(p)
				return set, common, errors.Join(err, p.Close())
			}
		}
	}
	err = n.copied(ctx, func(*membership.Info) bool { return true }, func(from []string) (later bool, err error) {
		if err := dataplane.CopyDirectory(ctx, n.Plane, from, "set", dir, nil, nil); err != nil {
			return true, err
		}
		if set, err = pieces.Open(dir); err == nil && set.Fingerprint() != r.Data {
			err = fmt.Errorf("%w: what was copied to %s is of fingerprint %.12s, and the run's set of %.12s", ErrOtherRun, dir, set.Fingerprint(), r.Data)
		}
		if err != nil {
			return true, err
		}
		for _, node := range from {
			if common, err = parts.AskCommon(ctx, n.Plane, node); err == nil {
				break
			}
		}
		return true, err
	})
	return set, common, err
}
