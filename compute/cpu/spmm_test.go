package cpu

import (
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
)

// wholeGraph returns a symmetric R-MAT graph as one block, all nodes
// destinations and sources: that of ../shared/tools/rmat at scale 20 (a million
// nodes, 15 million entries), or a smaller one with -short.
func wholeGraph(b *testing.B) *graph.Block {
	b.Helper()
	o := generate.RMATOptions{Scale: 20, Edges: 8_000_000, Seed: 1}
	if testing.Short() {
		o.Scale, o.Edges = 15, 250_000
	}
	ds, err := generate.RMAT(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	g := ds.Graph
	n := len(g.Indptr) - 1
	return &graph.Block{NumDst: n, NumSrc: n, Indptr: g.Indptr, Indices: g.Indices}
}

// BenchmarkSpMM aggregates over a whole graph.
func BenchmarkSpMM(b *testing.B) {
	const cols = 128
	g := wholeGraph(b)
	src := Dense(g.NumSrc, cols, hugeTable(b, g.NumSrc*cols))
	dst := Dense(g.NumDst, cols, hugeTable(b, g.NumDst*cols))
	for i := range src.Data {
		src.Data[i] = float32(i & 1023)
	}
	var tr Transpose
	for _, set := range sets() {
		for _, workers := range []int{1, 2} {
			x := newExec(b, set, workers)
			tr.BuildSymmetric(x, g)
			for name, f := range map[string]func(){
				"Mean":     func() { Aggregate(x, dst, g, Source[float32]{Dense: src}, AggregateOptions[float32]{Reduce: Mean}) },
				"Backward": func() { AggregateBackward(x, dst, &tr, src, AggregateOptions[float32]{Reduce: Mean}) },
				"Build":    func() { tr.Build(x, g) },
			} {
				b.Run(fmt.Sprintf("%s/%v/%d", name, set, workers), func(b *testing.B) {
					f()
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
					b.ReportMetric(float64(len(g.Indices))*float64(b.N)/b.Elapsed().Seconds()*1e-6, "Medges/s")
				})
			}
		}
	}
}
