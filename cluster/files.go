package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/transfer"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Serve lets the other nodes copy the store in dir, with the values of the node
// features or without.
func (n *Node) Serve(ctx context.Context, dir string, values bool) error {
	s, err := openData(dir)
	if err != nil {
		return err
	}
	names := s.Files(values)
	if err := s.Close(); err != nil {
		return err
	}
	transfer.ServeDirectory(n.Plane, dir, names)
	return n.Member.Announce(ctx, func(i *membership.Info) { i.Files = true })
}

// again is how long a copy that nobody could serve is left until the next try.
const again = 300 * time.Millisecond

// Forget makes CopyTopology copy again what has changed elsewhere, such as a store's
// partitions.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, store.Manifest)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// Check compares the store in dir with its checksums: before it is trained on, or
// a part of it is handed to others, for what came of that could not be taken back.
func (n *Node) Check(ctx context.Context, dir string) error {
	if n.trust {
		return nil
	}
	s, err := openData(dir)
	if err != nil {
		return err
	}
	n.log.Info("comparing the data with its checksums", "directory", dir)
	return errors.Join(s.Check(ctx, store.CheckOptions{}), s.Close())
}

// CopyTopology sees to it that dir holds the store of the run's data, with the values
// of the node features or at least without: a copy of what other nodes serve, which goes on where
// it was interrupted. It waits for a node that serves it, and reads all of what
// it copied to compare it with the checksums behind the run's fingerprint. A copy
// that is there already is checked, too, and what is damaged of it copied again.
func (n *Node) CopyTopology(ctx context.Context, r *Run, dir string, values bool, progress func(transfer.Progress)) error {
	if s, err := openData(dir); err == nil {
		same, whole := s.Dataset().Fingerprint == r.Data, s.Whole()
		if err := s.Close(); err != nil {
			return err
		}
		if same && (whole || !values) {
			err := n.Check(ctx, dir)
			if !errors.Is(err, graph.ErrFormat) {
				return err
			}
			n.log.Warn("the copy of the data is damaged; what is wrong with it is copied again", "error", err)
		}
		if !same {
			n.log.Info("the data of another run makes room", "directory", dir)
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("cluster: %w", err)
			}
		}
	}
	for waiting := false; ; {
		v, changed := n.Member.View()
		var from []string
		for _, m := range v.Members {
			if m.Files && m.Node != n.Plane.Node() {
				from = append(from, m.Node)
				n.Plane.SetPeer(m.Node, m.Data)
			}
		}
		var retry <-chan time.Time
		if len(from) > 0 {
			err := transfer.CopyDirectory(ctx, n.Plane, from, dir, progress)
			if err == nil {
				return verify(ctx, dir, r)
			}
			if ctx.Err() != nil || !errors.Is(err, transfer.ErrNobody) {
				return err
			}
			n.log.Warn("the data could not be copied yet", "error", err)
			retry = time.After(again)
		} else if !waiting {
			waiting = true
			n.log.Info("waiting for a node that serves the data")
		}
		select {
		case <-changed:
		case <-retry:
		case <-n.Member.Lost():
			return n.Member.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func verify(ctx context.Context, dir string, r *Run) error {
	s, err := openData(dir)
	if err != nil {
		return err
	}
	if has := s.Dataset().Fingerprint; has != r.Data {
		err = fmt.Errorf("cluster: what was copied to %s is data of fingerprint %.12s, not the run's %.12s", dir, has, r.Data)
	} else {
		err = s.Verify(ctx)
	}
	if err = errors.Join(err, s.Close()); err != nil { // nothing of it is kept
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// openData opens a store, without the features' values where they are missing.
func openData(dir string) (*store.Store, error) {
	s, err := store.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return store.OpenTopology(dir)
	}
	return s, err
}
