package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/fault"
)

// errDamaged is of files that hold values that no store is written with.
var errDamaged = fmt.Errorf("%w: %w", graph.ErrFormat, graph.ErrDamaged)

// View opens the store in dir, calls f under Guard, and closes it.
func View(dir string, f func(s *Store) error) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	err = graph.Guard(func() error { return f(s) })
	if err == nil {
		err = s.CheckFiles()
	}
	return errors.Join(err, s.Close())
}

// CheckFiles reports a file that was shortened since it was mapped: what lay behind
// its new end is a fault when it is read, or zeros as far as the last page goes. It
// asks the file system for the sizes, and reads nothing.
func (s *Store) CheckFiles() error {
	for name, f := range s.files {
		if is, err := f.Stat(); err == nil && is.Size() < f.size {
			return fault.Damaged(dataerr.Bad("%s: the file was shortened to %d of %d bytes while it was mapped; restore it and start again", s.path(name), is.Size(), f.size))
		}
	}
	return nil
}

// CheckSplits reports a split that names a node twice or one that the graph does not
// have. It reads the splits alone, which Open does not.
func (s *Store) CheckSplits() error {
	return graph.Guard(func() error {
		ds := *s.ds
		ds.Labels = nil
		return s.damaged(ds.ValidateSplits(ds.Graph.NumNodes()))
	})
}

// CheckGraph reports row pointers and neighbours that fit no graph, see
// Graph.Validate.
func (s *Store) CheckGraph(ctx context.Context) error {
	err := graph.Guard(func() error { return s.ds.Graph.Validate(ctx) })
	if ctx.Err() != nil {
		return context.Cause(ctx) // nothing is said to be damaged
	}
	return s.damaged(err)
}

// Validate is the dataset's Validate, with an error that names the store.
func (s *Store) Validate(ctx context.Context) error {
	err := s.ds.Validate(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return s.damaged(err)
}

// damage reads the values that others use as indices, and returns what is wrong
// with them.
func (s *Store) damage() error {
	if err := s.CheckFiles(); err != nil {
		return err
	}
	if s.piece != nil {
		return s.damaged(s.piece.validate(context.Background()))
	}
	ds := s.ds
	n := ds.Graph.NumNodes()
	if err := ds.Graph.Validate(context.Background()); err != nil {
		return s.damaged(err)
	}
	for i, w := range ds.Graph.Weights {
		if w-w != 0 {
			return s.damaged(dataerr.Bad("weights[%d] = %v; weights must be finite", i, w))
		}
	}
	if err := ds.Labels.Validate(n); err != nil {
		return s.damaged(err)
	}
	for i := range ds.Partitions {
		if err := ds.Partitions[i].Validate(n); err != nil {
			return s.damaged(err)
		}
	}
	return s.damaged(ds.ValidateSplits(n))
}

// damaged names the store, the place and the remedy in err, of Validate; nil stays
// nil. To find the place it reads the files that values are looked up by.
func (s *Store) damaged(err error) error {
	if err == nil {
		return nil
	}
	if bad := new(fault.Error); errors.As(err, &bad) {
		return err
	}
	for i := range s.m.Arrays {
		a := &s.m.Arrays[i]
		if a.Name == arrays.NodeFeatures || a.Name == arrays.EdgeFeatures || away(a.Name, s.parts) {
			continue
		}
		if place := s.checkArray(context.Background(), a, false, false); place != nil {
			return fmt.Errorf("%w: %w (%w)", errDamaged, dataerr.Unprefixed(place), dataerr.Unprefixed(err))
		}
	}
	return fmt.Errorf("%w: %s: %w; run `gnnactor inspect %s --verify`, and import it again", errDamaged, s.dir, dataerr.Unprefixed(err), s.dir)
}
