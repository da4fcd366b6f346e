package cpu

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// Source is what a gather or an aggregation reads rows from: a dense matrix,
// or, if Table is not nil, a table of stored features read through global ids.
// Row i of a Table source is Table's row IDs[i], or row i if IDs is nil,
// converted to T exactly (Int8: scaled in float32).
type Source[T Float] struct {
	Dense Matrix[T]
	Table *graph.Features
	IDs   []uint32
}

// Rows returns the number of rows that the source has.
func (s *Source[T]) Rows() int {
	switch {
	case s.Table == nil:
		return s.Dense.Rows
	case s.IDs != nil:
		return len(s.IDs)
	}
	return s.Table.Rows
}

// Cols returns the number of columns that the source has.
func (s *Source[T]) Cols() int {
	if s.Table == nil {
		return s.Dense.Cols
	}
	return s.Table.Cols
}

// row returns row i as T: in place when it can, else in the scratch of w.
func (s *Source[T]) row(w *scratch, i int) []T {
	if s.Table == nil {
		return s.Dense.Row(i)
	}
	if s.IDs != nil {
		i = int(s.IDs[i])
	}
	f := s.Table
	w.row = grow(w.row, f.Cols)
	f.Row(w.row, i)
	if r, ok := any(w.row).([]T); ok {
		return r
	}
	w.row64 = grow(w.row64, f.Cols)
	for j, v := range w.row {
		w.row64[j] = float64(v)
	}
	return any(w.row64).([]T)
}

// bytes returns the address of s's first value, the bytes between rows, and the
// number of rows of the underlying storage.
func (s *Source[T]) bytes() (base unsafe.Pointer, stride, rows int) {
	if s.Table != nil {
		return unsafe.Pointer(unsafe.SliceData(s.Table.Data)), s.Table.Stride, s.Table.Rows
	}
	var z T
	return unsafe.Pointer(unsafe.SliceData(s.Dense.Data)), s.Dense.Stride * int(unsafe.Sizeof(z)), s.Dense.Rows
}
