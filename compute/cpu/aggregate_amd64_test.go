package cpu

import (
	"fmt"
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
					Aggregate(x, y[0], b, src, AggregateOptions[float32]{Reduce: Mean, Weights: w, Self: self})
					Gather(x, y[1], src)
					AggregateBackward(x, y[2], &tr, dy, AggregateOptions[float32]{Reduce: Sum, Weights: w, Self: self})
					return y
				}
				near, far := results(1<<62), results(0)
				for i := range near {
					sameBits(t, fmt.Sprintf("%v, %d columns, result %d", dtype, cols, i), near[i], far[i])
				}
			}
		}
	}
}
