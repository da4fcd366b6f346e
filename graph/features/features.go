// Package features keeps the nodes' feature rows where they are, and brings
// those that a batch needs to where compute reads them.
//
// A Store holds all rows: in memory, in a mapped file, on a disk, or behind a
// link of given bandwidth and latency. Read copies rows of a store into rows
// (slots) of a table, asynchronously.
//
// A Slab is such a table with the book-keeping of docs/algorithms.md §7: Match gives a
// batch its slots and tells which rows have to be read; rows that the slab holds
// already, because the batches before needed them or because a cache pinned
// them, are neither read nor moved. Compute addresses the slab's Table through
// the batch's slots. Selections (ByDegree, Hotness, or a generation of GNS's
// cache) say which rows to pin.
//
//	slab, err := features.NewSlab(store.Layout(), features.SlabOptions{Slots: n, Keep: credits})
//	lease, err := slab.Match(batch.Inputs())   // ErrFull: try again after the next Release
//	store.Read(ctx, lease.Request(), func(err error) { … })
//	// rows lease.Slots() of slab.Table() are the inputs once all leases up to
//	// this one are read
//	slab.Release(lease)
package features

import (
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
)

// Layout describes the rows of a store or table.
type Layout struct {
	Rows, Cols int
	DType      graph.DType
	RowScaled  bool      // Int8: each row has a scale of its own, which is read with it
	ColScale   []float32 // Int8: one scale per column, shared by all rows; nil: 1
}

// LayoutOf returns the layout of f.
func LayoutOf(f *graph.Features) Layout {
	return Layout{Rows: f.Rows, Cols: f.Cols, DType: f.DType, RowScaled: f.RowScale != nil, ColScale: f.ColScale}
}

// RowBytes returns the bytes that reading one row moves, its scale included.
func (l *Layout) RowBytes() int {
	if l.RowScaled {
		return l.Cols*l.DType.Size() + 4
	}
	return l.Cols * l.DType.Size()
}

// NewTable returns a table of the given number of rows, zeros, that rows of
// layout l can be read into. Its rows have the column scales of l.
func (l *Layout) NewTable(rows int) *graph.Features {
	return l.tableIn(make([]byte, rows*l.Cols*l.DType.Size()), rows)
}

// Absent returns a table that says only what so many rows are like: they lie elsewhere.
func (l *Layout) Absent(rows int) *graph.Features { return l.tableIn(nil, rows) }

// tableIn is NewTable in the given memory.
func (l *Layout) tableIn(mem []byte, rows int) *graph.Features {
	f := &graph.Features{Rows: rows, Cols: l.Cols, DType: l.DType, Data: mem, Stride: l.Cols * l.DType.Size(), ColScale: l.ColScale}
	if l.RowScaled {
		f.RowScale = make([]float32, rows)
	}
	return f
}

// fits reports whether rows of layout l can be read into f.
func (l *Layout) fits(f *graph.Features) error {
	if f.Cols != l.Cols || f.DType != l.DType || (f.RowScale != nil) != l.RowScaled {
		return fmt.Errorf("features: rows of %s cannot be read into a table of %s", l, describe(f))
	}
	return nil
}

func (l *Layout) String() string {
	s := fmt.Sprintf("%d %s", l.Cols, l.DType)
	if l.RowScaled {
		s += " with a scale per row"
	}
	return s
}

func describe(f *graph.Features) string {
	l := LayoutOf(f)
	return l.String()
}
