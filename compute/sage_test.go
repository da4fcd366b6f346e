package compute

import (
	"context"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// TestSageConcat computes concatenation by its formula: the left half is the
// node's own, the right half its neighbours' mean.
func TestSageConcat(t *testing.T) {
	ds := testDataset(30, 4, 6, false)
	m := mustModel(t, Spec{Model: "sage", Combine: "concat", Layers: 1, InDim: 6, Hidden: 8, OutDim: 8}, ds.Graph)
	params := m.Init(3)
	part := func(name string) []float32 {
		p, ok := m.Layout().Lookup(name)
		if !ok {
			t.Fatalf("no parameter %s", name)
		}
		return params[p.Offset : p.Offset+p.Len]
	}
	clear(part("lin.bias"))
	clear(part("lin.weight"))
	for i := range 8 {
		part("lin.weight")[9*i] = 1 // the output is the convolution's result
	}
	out, err := m.Infer(context.Background(), testExec(t, 1, cpu.Go), params, ds, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	row := func(v uint32) []float32 { return features(ds.NodeFeatures, int(v)) }
	for v := range 30 {
		mean := make([]float64, 6)
		for _, u := range ds.Graph.InNeighbors(uint32(v)) {
			for k, x := range row(u) {
				mean[k] += float64(x) / float64(ds.Graph.Degree(uint32(v)))
			}
		}
		for i, got := range out.Row(v) {
			side, from := "lin_r", i
			if i >= 4 {
				side, from = "lin_l", i-4
			}
			want := float64(part("convs.0." + side + ".bias")[from])
			for k, x := range row(uint32(v)) {
				if i >= 4 {
					x = float32(mean[k])
				}
				want += float64(x) * float64(part("convs.0." + side + ".weight")[6*from+k])
			}
			if want = max(want, 0); math.Abs(float64(got)-want) > 1e-5 {
				t.Fatalf("node %d, column %d: %v, by the formula %v", v, i, got, want)
			}
		}
	}
}

func features(f *graph.Features, row int) []float32 {
	x := make([]float32, f.Cols)
	f.Row(x, row)
	return x
}
