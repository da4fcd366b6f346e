package features

import (
	"context"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
)

// Request is rows to read: row IDs[i] of the store goes to row Slots[i] of Dst.
// IDs may come in any order; the store sorts and merges where that helps. All
// of it, the memory of Dst's rows included, is the store's from Read until done
// is called.
type Request struct {
	IDs   []uint32
	Slots []uint32        // one per id, distinct; nil: row i of Dst takes IDs[i]
	Dst   *graph.Features // of the store's layout, with any number of rows
}

// slot returns where row IDs[i] goes.
func (r *Request) slot(i int) int {
	if r.Slots == nil {
		return i
	}
	return int(r.Slots[i])
}

// Store holds feature rows. Its methods may be called from any goroutine, and
// any number of reads may be under way.
type Store interface {
	// Layout describes the rows.
	Layout() Layout

	// Read starts to copy rows and returns soon. done is called exactly once,
	// from another goroutine, when the rows are there, or with the first error,
	// which names the file and the offset; after a cancellation of ctx, with its
	// cause. When done is called nothing writes to r's memory any more.
	Read(ctx context.Context, r Request, done func(error))

	// Close waits for the reads that are under way and frees what the store
	// owns. Read must not be called after it.
	Close() error
}

// Read reads the rows of r from s and waits for them.
func Read(ctx context.Context, s Store, r Request) error {
	done := make(chan error, 1)
	s.Read(ctx, r, func(err error) { done <- err })
	return <-done
}

// Table reads the rows of ids, in that order.
func Table(ctx context.Context, s Store, ids []uint32) (*graph.Features, error) {
	l := s.Layout()
	t := l.NewTable(len(ids))
	return t, Read(ctx, s, Request{IDs: ids, Dst: t})
}

// check reports a request that does not fit the rows of l.
func (r *Request) check(l *Layout) error {
	if err := l.fits(r.Dst); err != nil {
		return err
	}
	if r.Slots != nil && len(r.Slots) != len(r.IDs) {
		return fmt.Errorf("features: %d slots are named for %d rows", len(r.Slots), len(r.IDs))
	}
	if r.Slots == nil && len(r.IDs) > r.Dst.Rows {
		return fmt.Errorf("features: %d rows do not fit a table of %d", len(r.IDs), r.Dst.Rows)
	}
	for i, id := range r.IDs {
		if int(id) >= l.Rows {
			return fmt.Errorf("features: row %d is out of range [0, %d)", id, l.Rows)
		}
		if s := r.slot(i); s >= r.Dst.Rows {
			return fmt.Errorf("features: slot %d is out of range [0, %d)", s, r.Dst.Rows)
		}
	}
	return nil
}

// reads counts the reads that are under way.
type reads struct{ wg sync.WaitGroup }

// start runs f on a goroutine of its own and hands its error to done, which is
// called also when f panics.
func (a *reads) start(f func() error, done func(error)) {
	a.wg.Go(func() { done(pool.Recovered(f)) })
}
