package features

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// memory is a store over a table in the address space: memory, or a mapped file.
type memory struct {
	reads
	layout Layout
	table  *graph.Features
	free   func() error
}

// Memory returns a store over f, which is used where it lies: in memory or in
// a mapped file. A fault in the mapped file makes a read fail with the file and
// the offset. f must stay as it is until Close.
func Memory(f *graph.Features) Store { return &memory{layout: LayoutOf(f), table: f} }

// load returns a store over a copy of f in memory.
func load(f *graph.Features) (Store, error) {
	mem, err := allocate(f.Rows * f.Cols * f.DType.Size())
	if err != nil {
		return nil, fmt.Errorf("features: no memory for %d rows; keep them in a file by mmap or disk: %w", f.Rows, err)
	}
	l := LayoutOf(f)
	t := l.tableIn(mem, f.Rows)
	err = Guard(func() error {
		copy(t.Data, f.Data)
		copy(t.RowScale, f.RowScale)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, release(mem))
	}
	return &memory{layout: l, table: t, free: func() error { return release(mem) }}, nil
}

func (s *memory) Layout() Layout { return s.layout }

func (s *memory) Read(ctx context.Context, r Request, done func(error)) {
	s.start(func() error {
		if err := r.check(&s.layout); err != nil {
			return err
		}
		return Guard(func() error { return copyRows(ctx, &r, s.table) })
	}, done)
}

func (s *memory) Close() error {
	s.wg.Wait()
	if s.free == nil {
		return nil
	}
	return s.free()
}

// rowsPerCheck is how many rows are copied between looks at the context: some
// hundred microseconds.
const rowsPerCheck = 1024

// copyRows copies the rows of r from src. The request was checked.
func copyRows(ctx context.Context, r *Request, src *graph.Features) error {
	for i0 := 0; i0 < len(r.IDs); i0 += rowsPerCheck {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		i1 := min(len(r.IDs), i0+rowsPerCheck)
		copyRun(r, src, i0, i1)
	}
	return nil
}

func copyRun(r *Request, src *graph.Features, i0, i1 int) {
	n := src.Cols * src.DType.Size()
	for i := i0; i < i1; i++ {
		from, to := int(r.IDs[i])*src.Stride, r.slot(i)*r.Dst.Stride
		copy(r.Dst.Data[to:to+n], src.Data[from:from+n])
	}
	if src.RowScale != nil {
		for i := i0; i < i1; i++ {
			r.Dst.RowScale[r.slot(i)] = src.RowScale[r.IDs[i]]
		}
	}
}

// uint32s views memory that is aligned to 4 bytes.
func uint32s(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
