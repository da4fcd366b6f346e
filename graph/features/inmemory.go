package features

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// inMemory is a store over a table in the address space: memory, or a mapped file.
type inMemory struct {
	reads
	layout Layout
	table  *graph.Features
	free   func() error
}

// InMemory returns a store over f, which is used where it lies: in memory or in
// a mapped file. A fault in the mapped file makes a read fail with the file and
// the offset. f must stay as it is until Close.
func InMemory(f *graph.Features) Store { return &inMemory{layout: LayoutOf(f), table: f} }

// load returns a store over a copy of f in memory.
func load(ctx context.Context, f *graph.Features) (Store, error) {
	t, free, err := Copy(ctx, f)
	if err != nil {
		return nil, err
	}
	return &inMemory{layout: LayoutOf(f), table: t, free: free}, nil
}

// Copy returns a copy of f in memory outside the Go heap, until the caller calls
// free: nothing may use it then. f may lie in a mapped file. When ctx ends first, the error
// wraps its cause.
func Copy(ctx context.Context, f *graph.Features) (t *graph.Features, free func() error, err error) {
	mem, err := allocate(f.Rows * f.Cols * f.DType.Size())
	if err != nil {
		return nil, nil, fmt.Errorf("features: no memory for %d rows; keep them in a file by mmap or disk: %w", f.Rows, err)
	}
	l := LayoutOf(f)
	t = l.tableIn(mem, f.Rows)
	stop := interrupt.New(ctx)
	err = graph.Guard(func() error {
		for i := 0; i < f.Rows && !stop.Ended(); i++ {
			copy(t.Data[i*t.Stride:(i+1)*t.Stride], f.Data[i*f.Stride:])
		}
		copy(t.RowScale, f.RowScale)
		return stop.Err()
	})
	if err != nil {
		return nil, nil, errors.Join(err, release(mem))
	}
	return t, func() error { return release(mem) }, nil
}

func (s *inMemory) Layout() Layout { return s.layout }

func (s *inMemory) Read(ctx context.Context, r Request, done func(error)) {
	s.start(func() error {
		if err := r.check(&s.layout); err != nil {
			return err
		}
		return copyRows(ctx, &r, s.table)
	}, done)
}

func (s *inMemory) Close() error {
	s.wg.Wait()
	if s.free == nil {
		return nil
	}
	return s.free()
}
