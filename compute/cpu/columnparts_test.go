package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// withSecondLevel sets the size of the cache for a test.
func withSecondLevel(t testing.TB, bytes int) {
	old := secondLevel
	secondLevel = bytes
	t.Cleanup(func() { secondLevel = old })
}

func TestPartWidth(t *testing.T) {
	for _, c := range []struct {
		cache, rows, cols, entries, want int
	}{
		{2 << 20, 6600, 256, 880_000, 64},
		{2 << 20, 6600, 128, 880_000, 64},
		{2 << 20, 3000, 256, 880_000, 128},
		{2 << 20, 6600, 79, 880_000, 0},      // fits
		{2 << 20, 6600, 256, 16*6600 - 1, 0}, // is not read often enough
		{2 << 20, 9000, 256, 880_000, 0},     // not even 64 columns fit
		{512 << 10, 6600, 256, 880_000, 0},   // nor here
		{2 << 20, 1 << 20, 128, 15_000_000, 0},
		{2 << 20, 2000, 300, 880_000, 160}, // parts of 160 and 140
		{2 << 20, 0, 128, 0, 0},
		{0, 6600, 256, 880_000, 0}, // unknown
		{-1, 6600, 256, 880_000, 0},
	} {
		withSecondLevel(t, c.cache)
		if got := partWidth(AVX512, c.rows, c.cols, c.entries); got != c.want {
			t.Errorf("a cache of %d bytes, %d rows, %d columns, %d entries: parts of %d columns, want %d", c.cache, c.rows, c.cols, c.entries, got, c.want)
		}
		if got := partWidth(Go, c.rows, c.cols, c.entries); got != 0 {
			t.Errorf("portable kernels: parts of %d columns", got)
		}
	}
}

// TestColumnParts checks that aggregations of parts of columns have the bits of
// those of whole rows.
func TestColumnParts(t *testing.T) {
	eachExec(t, func(t *testing.T, x *Exec) {
		if x.Set() == Go {
			t.Skip("portable kernels take whole rows")
		}
		r := source(70)
		const dst, src = 150, 150
		b := randomBlock(r, dst, src, 60)
		w, self := random[float32](r, 1, len(b.Indices), 0).Data, random[float32](r, 1, dst, 0).Data
		var tr Transpose
		tr.Build(x, b)
		for _, cols := range []int{77, 128, 130, 200} {
			dense, dy, start := random[float32](r, src, cols, 5), random[float32](r, dst, cols, 3), random[float32](r, src, cols, 1)
			table := tableOfType(graph.Float32, src+9, cols, 2)
			ids := make([]uint32, src)
			for i := range ids {
				ids[i] = uint32(src + 8 - i)
			}
			for _, o := range []AggregateOptions[float32]{{Reduce: Sum}, {Reduce: Mean}, {Reduce: Mean, Weights: w, Self: self}, {Reduce: Sum, Weights: w}} {
				results := func(cache int) (y [3]Matrix[float32]) {
					withSecondLevel(t, cache)
					s := tasksOf[float32](x)
					packed := func(what string) {
						t.Helper()
						if (len(s.packed) > 0) != (cache > 0) {
							t.Fatalf("%d columns, %s: %d values packed for a cache of %d bytes", cols, what, len(s.packed), cache)
						}
						s.packed = nil
					}
					y[0], y[1], y[2] = NewMatrix[float32](dst, cols), NewMatrix[float32](dst, cols), clone(start)
					s.packed = nil
					Aggregate(x, y[0], b, Source[float32]{Dense: dense}, o)
					packed("dense")
					Aggregate(x, y[1], b, Source[float32]{Table: table, IDs: ids}, o)
					packed("table")
					back := o
					back.Accumulate = true
					AggregateBackward(x, y[2], &tr, dy, back)
					packed("backward")
					return y
				}
				whole, cut := results(0), results(45_000)
				for i := range whole {
					sameBits(t, fmt.Sprintf("%v, %d columns, result %d", o.Reduce, cols, i), whole[i], cut[i])
				}
			}
			// Max takes whole rows.
			withSecondLevel(t, 45_000)
			y, arg := NewMatrix[float32](dst, cols), make([]uint32, dst*cols)
			Aggregate(x, y, b, Source[float32]{Dense: dense}, AggregateOptions[float32]{Reduce: Max, Argmax: arg})
			withSecondLevel(t, 0)
			want, wantArg := NewMatrix[float32](dst, cols), make([]uint32, dst*cols)
			Aggregate(x, want, b, Source[float32]{Dense: dense}, AggregateOptions[float32]{Reduce: Max, Argmax: wantArg})
			sameBits(t, "max", want, y)
			if !slices.Equal(arg, wantArg) {
				t.Error("max: other winners")
			}
		}
	})
}

// BenchmarkColumnParts aggregates over a subgraph whose source is larger than the
// second-level cache of most processors, in parts of columns and whole.
func BenchmarkColumnParts(b *testing.B) {
	const rows = 6600
	block := symmetricBlock(64, rows, 133)
	r := source(71)
	for _, cols := range []int{128, 256} {
		src, dst := random[float32](r, rows, cols, 0), NewMatrix[float32](rows, cols)
		for _, cache := range []int{0, secondLevel} {
			name := "whole"
			if cache > 0 {
				name = fmt.Sprintf("parts of %d", partWidth(AVX2, rows, cols, len(block.Indices)))
			}
			for _, set := range sets() {
				for _, workers := range []int{1, 2} {
					b.Run(fmt.Sprintf("%d/%s/%v/%d", cols, name, set, workers), func(b *testing.B) {
						withSecondLevel(b, cache)
						x := newExec(b, set, workers)
						for b.Loop() {
							Aggregate(x, dst, block, Source[float32]{Dense: src}, AggregateOptions[float32]{Reduce: Mean})
						}
						b.ReportMetric(float64(len(block.Indices)*cols*4)*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GB/s")
					})
				}
			}
		}
	}
}
