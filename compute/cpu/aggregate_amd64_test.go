package cpu

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// TestFarTables checks that the kernels for tables in memory have the bits of those
// for rows in the caches.
func TestFarTables(t *testing.T) {
	if !AVX512.Supported() {
		t.Skip("this processor has no AVX-512")
	}
	old := farTable
	t.Cleanup(func() { farTable = old })
	for _, workers := range []int{1, 2} {
		x := newExec(t, AVX512, workers)
		r := source(80)
		b := randomBlock(r, 70, 90, 9)
		w, self := random[float32](r, 1, len(b.Indices), 0).Data, random[float32](r, 1, b.NumDst, 0).Data
		ids := make([]uint32, b.NumSrc)
		for i := range ids {
			ids[i] = uint32(r.IntN(300))
		}
		var tr Transpose
		tr.Build(x, b)
		for _, dtype := range []graph.DType{graph.Float32, graph.Float16, graph.BFloat16, graph.Int8, graph.Uint8} {
			for _, cols := range []int{1, 15, 16, 33, 77, 128, 300} {
				src := Source[float32]{Table: tableOfType(dtype, 300, cols, 3), IDs: ids}
				dy := random[float32](r, b.NumDst, cols, 2)
				results := func(from uint64) (y [3]Matrix[float32]) {
					farTable = from
					y[0], y[1], y[2] = NewMatrix[float32](b.NumDst, cols), NewMatrix[float32](b.NumSrc, cols), NewMatrix[float32](b.NumSrc, cols)
					for _, m := range y { // all of it is overwritten
						copy(m.Data, slices.Repeat([]float32{float32(math.NaN())}, len(m.Data)))
					}
					Aggregate(x, y[0], b, src, AggregateOptions[float32]{Reduce: Mean, Weights: w, Self: self})
					Gather(x, y[1], src)
					AggregateBackward(x, y[2], &tr, dy, AggregateOptions[float32]{Reduce: Sum, Weights: w, Self: self})
					return y
				}
				near, far := results(1<<62), results(0)
				for i := range near {
					sameBits(t, fmt.Sprintf("%v, %d columns, result %d", dtype, cols, i), near[i], far[i])
					if v := near[i].Data[len(near[i].Data)-1]; v != v {
						t.Errorf("%v, %d columns: result %d adds to what was there", dtype, cols, i)
					}
				}
			}
		}
	}
}

// TestTablesRefused checks that the assembly reads no table that is shorter than its
// shape, and no row that a source does not have.
func TestTablesRefused(t *testing.T) {
	refused := func(what, message string, f func()) {
		t.Helper()
		defer func() {
			if r := recover(); r != message {
				t.Errorf("%s: panic %v, want %q", what, r, message)
			}
		}()
		f()
	}
	for _, set := range sets() {
		if set == Go {
			continue // its slices have bounds
		}
		x := newExec(t, set, 1)
		for _, dtype := range []graph.DType{graph.Float32, graph.Float16, graph.BFloat16, graph.Int8, graph.Uint8} {
			for _, shape := range [][2]int{{1, 1}, {1, 3}, {3, 1}, {3, 3}} {
				rows, cols := shape[0], shape[1]
				what := fmt.Sprintf("%v, %v of %d×%d", set, dtype, rows, cols)
				dst := NewMatrix[float32](rows, cols)
				table := tableOfType(dtype, rows, cols, 2)
				Gather(x, dst, Source[float32]{Table: table})
				short, backwards := *table, *table
				short.Data = short.Data[:len(short.Data)-1]
				refused(what+", a byte short", badMatrix, func() { Gather(x, dst, Source[float32]{Table: &short}) })
				backwards.Stride = -1
				refused(what+", backwards", badMatrix, func() { Gather(x, dst, Source[float32]{Table: &backwards}) })

				sum := func(src Source[float32], index uint32, self []float32) func() {
					b := &graph.Block{NumDst: 1, NumSrc: 1, Indptr: []int64{0, 2}, Indices: []uint32{0, index}}
					return func() { Aggregate(x, NewMatrix[float32](1, cols), b, src, AggregateOptions[float32]{Self: self}) }
				}
				dense := Source[float32]{Dense: NewMatrix[float32](rows, cols)}
				good, bad := []uint32{uint32(rows - 1)}, []uint32{uint32(rows)}
				sum(Source[float32]{Table: table, IDs: good}, 0, nil)()
				refused(what+", by id", badIndex, sum(Source[float32]{Table: table, IDs: bad}, 0, nil))
				sum(Source[float32]{Table: table}, uint32(rows-1), nil)()
				refused(what, badIndex, sum(Source[float32]{Table: table}, uint32(rows), nil))
				sum(dense, uint32(rows-1), nil)()
				refused(what+", dense", badIndex, sum(dense, uint32(rows), nil))
				none := &graph.Block{NumDst: 1, NumSrc: 1, Indptr: []int64{0, 0}}
				self := func(ids []uint32) func() {
					return func() {
						Aggregate(x, NewMatrix[float32](1, cols), none, Source[float32]{Table: table, IDs: ids}, AggregateOptions[float32]{Self: []float32{1}})
					}
				}
				self(good)()
				refused(what+", itself", badIndex, self(bad))
			}
		}
	}
}
