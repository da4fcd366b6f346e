package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Serve lets the other nodes copy what there is of the store in dir, of some parts.
func (n *Node) Serve(ctx context.Context, dir string, parts store.Part) error {
	present, err := store.Present(dir)
	if err != nil {
		return err
	}
	parts &= present
	s, err := store.OpenPart(dir, 0)
	if err != nil {
		return err
	}
	names := s.Files(parts)
	if err := s.Close(); err != nil {
		return err
	}
	n.files.Add("", dir, names)
	return n.Member.Announce(ctx, func(i *membership.Info) { i.Files, i.Parts = true, uint8(parts) })
}

// again is how long a copy that nobody could serve is left until the next try.
const again = 300 * time.Millisecond

// Forget makes CopyData copy again what has changed elsewhere, such as a store's
// partitions.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, store.Manifest)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// Check compares some parts of the store in dir with their checksums, and the values of the nodes' features if they are
// here: before they are trained on, or handed to others, for what came of that could not be
// taken back.
func (n *Node) Check(ctx context.Context, dir string, parts store.Part) error {
	if n.trust {
		return nil
	}
	s, err := openData(dir, parts)
	if err != nil {
		return err
	}
	n.log.Info("comparing the data with its checksums", "directory", dir)
	return errors.Join(s.Check(ctx, store.CheckOptions{}), s.Close())
}

// CopyData sees to it that dir holds some parts, at least, of the store of the run's data: a copy of what other nodes serve, which goes on where
// it was interrupted. It waits for a node that serves it, and reads all of what
// it copied to compare it with the checksums behind the run's fingerprint. A copy
// that is there already is checked, too, and what is damaged of it copied again.
func (n *Node) CopyData(ctx context.Context, r *Run, dir string, parts store.Part, progress func(dataplane.Progress)) error {
	if s, err := store.OpenPart(dir, 0); err == nil {
		same := s.Dataset().Fingerprint == r.Data
		if err := s.Close(); err != nil {
			return err
		}
		if present, err := store.Present(dir); err == nil && same && present&parts == parts {
			err := n.Check(ctx, dir, parts)
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
	serves := func(m *membership.Info) bool { return store.Part(m.Parts)&parts == parts }
	return n.copied(ctx, serves, func(from []string) (later bool, err error) {
		err = dataplane.CopyDirectory(ctx, n.Plane, from, "", dir, func(name string) bool { return store.FileOf(name, parts) }, progress)
		if err != nil {
			return errors.Is(err, dataplane.ErrNobody), err
		}
		return false, verify(ctx, dir, r, parts)
	})
}

// copied has try copy something from nodes that serve it: it waits for one, and again where try says that it may be had later.
func (n *Node) copied(ctx context.Context, serves func(*membership.Info) bool, try func(from []string) (later bool, err error)) error {
	for waiting := false; ; {
		v, changed := n.Member.View()
		var from []string
		for _, m := range v.Members {
			if m.Files && serves(&m) && m.Node != n.Plane.Node() {
				from = append(from, m.Node)
				n.Plane.SetPeer(m.Node, m.Data)
			}
		}
		retry := time.Duration(0) // when there is another node
		if len(from) > 0 {
			later, err := try(from)
			if err == nil || !later || ctx.Err() != nil {
				return err
			}
			n.log.Warn("the data could not be copied yet", "error", err)
			retry = again
		} else if !waiting {
			waiting = true
			n.log.Info("waiting for a node that serves the data")
		}
		if err := n.Member.Wait(ctx, changed, retry); err != nil {
			return err
		}
	}
}

func verify(ctx context.Context, dir string, r *Run, parts store.Part) error {
	s, err := store.OpenPart(dir, parts)
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

// openData opens some parts of a store, with the values of the nodes' features where they are.
func openData(dir string, parts store.Part) (*store.Store, error) {
	s, err := store.OpenPart(dir, parts|store.NodeValues)
	if errors.Is(err, os.ErrNotExist) {
		return store.OpenPart(dir, parts)
	}
	return s, err
}
