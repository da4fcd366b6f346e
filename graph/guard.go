package graph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gnnactor/gnnactor/internal/fault"
)

// ErrDamaged is wrapped by the error of a call that failed because a store's files
// hold values that no store is written with. It wraps ErrFormat.
var ErrDamaged = fmt.Errorf("%w: damaged store", ErrFormat)

// Guard calls f, which reads data of a Store, and returns its error. A Store is
// read where it lies on the disk, and opening it checks no values; so f may come
// upon a file that was shortened meanwhile, a disk that fails, or values that were
// damaged. Without Guard the first two end the program, and the third panics or
// worse. With it they are errors, that name the file or the store and what to do.
// It covers f and the loops that f runs on a worker pool; other goroutines need
// their own. A panic that has another cause goes on.
//
// Whatever returns an error in this module needs no Guard; it is for programs that
// read a Dataset themselves.
func Guard(f func() error) error { return fault.Guard(f) }

// withMapped calls f under Guard with the first size bytes of h, mapped for as long
// as it runs.
func withMapped(h *os.File, size int64, f func(mem []byte) error) error {
	mem, err := mapFile(h, size)
	if err != nil {
		return fmt.Errorf("graph: map %s: %w", h.Name(), err)
	}
	return errors.Join(Guard(func() error { return f(mem) }), unmapFile(mem))
}

// View opens the store in dir, calls f under Guard, and closes it.
func View(dir string, f func(s *Store) error) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	err = Guard(func() error { return f(s) })
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
			return badData("%s: the file was shortened to %d of %d bytes while it was mapped; restore it and start again", s.path(name), is.Size(), f.size)
		}
	}
	return nil
}

// CheckSplits reports a split that names a node twice or one that the graph does not
// have. It reads the splits alone, which Open does not.
func (s *Store) CheckSplits() error {
	return Guard(func() error {
		ds := *s.ds
		ds.Labels = nil
		return s.damaged(ds.validateSplits(ds.Graph.NumNodes()))
	})
}

// CheckGraph reports row pointers and neighbours that fit no graph, see
// Graph.Validate.
func (s *Store) CheckGraph() error {
	return Guard(func() error { return s.damaged(s.ds.Graph.Validate()) })
}

// damage reads the values that others use as indices, and returns what is wrong
// with them.
func (s *Store) damage() error {
	if err := s.CheckFiles(); err != nil {
		return err
	}
	ds := *s.ds
	ds.NodeFeatures, ds.EdgeFeatures = nil, nil // nothing is looked up by them
	return s.damaged(ds.validate())
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
		if a.Name == arrayNodeFeatures || a.Name == arrayEdgeFeatures || slices.Contains(s.away, a.Name) {
			continue
		}
		if place := s.checkArray(context.Background(), a, false); place != nil {
			return fmt.Errorf("%w: %w (%w)", ErrDamaged, unprefixed{place}, unprefixed{err})
		}
	}
	return fmt.Errorf("%w: %s: %w; run `gnnactor inspect %s --verify`, and import it again", ErrDamaged, s.dir, unprefixed{err}, s.dir)
}
