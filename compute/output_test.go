package compute

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// TestOutputMatchesInfer checks that on blocks with full fan-outs an evaluator
// gives what exact inference gives, for every model and option: it takes the
// graph's degrees, the running statistics, and drops nothing. It is asked twice,
// so that nothing of a batch may stay behind.
func TestOutputMatchesInfer(t *testing.T) {
	for name, spec := range variants {
		t.Run(name, func(t *testing.T) {
			ds := testDataset(97, 4, 5, true)
			spec := sized(spec, 2, 5, 6, 3)
			spec.Dropout, spec.InputDropout = 0.3, 0.2
			m := mustModel(t, spec, ds.Graph)
			ds.EdgeFeatures = edgeFeatures(m)
			params := randomParams(m, 5)
			x := testExec(t, 2, cpu.Go)
			e := m.NewEvaluator(x)
			for _, seeds := range [][]uint32{{96, 4, 50, 13}, {7}} {
				blocks := sampleBlocks(ds.Graph, seeds, m.Blocks(), -1, 1)
				got, err := e.Output(params, &Input{Blocks: blocks, Features: ds.NodeFeatures, Edges: ds.EdgeFeatures, Rows: blocks[0].SrcIDs})
				if err != nil {
					t.Fatal(err)
				}
				want, err := m.Infer(t.Context(), x, params, ds, seeds, 0)
				if err != nil {
					t.Fatal(err)
				}
				closeTo(t, fmt.Sprint("nodes ", seeds), got.Data, want.Data, 1e-5)
			}
		})
	}
}

// TestBatchNormInference compares what a model with batch norm gives in exact
// inference and on a batch with the formula γ(x-μ)/√(σ²+ε)+β in float64, from the
// running statistics. Nodes are isolated, so that a convolution is a product.
func TestBatchNormInference(t *testing.T) {
	const n, in, hidden, out = 9, 3, 4, 2
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	ds := &graph.Dataset{Graph: g, NodeFeatures: graph.NewFeatures(n, in, randomMatrix[float32](n, in, 22).Data)}
	m := mustModel(t, Spec{Model: "gcn", Layers: 1, InDim: in, Hidden: hidden, OutDim: out, Norm: "batch", Decoder: 1}, g)
	params := randomParams(m, 7)
	get := func(name string, i int) float64 {
		p, ok := m.layout.Lookup(name)
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		return float64(params[p.Offset+i])
	}
	want := make([]float32, n*out)
	row := make([]float32, in)
	for i := range n {
		ds.NodeFeatures.Row(row, i)
		var h [hidden]float64
		for j := range h {
			v := get("convs.0.bias", j)
			for k, x := range row {
				v += get("convs.0.lin.weight", j*in+k) * float64(x)
			}
			norm := "norms.0.module."
			h[j] = max(0, get(norm+"weight", j)*(v-get(norm+"running_mean", j))/math.Sqrt(get(norm+"running_var", j)+1e-5)+get(norm+"bias", j))
		}
		for o := range out {
			v := get("lin.bias", o)
			for j, x := range h {
				v += get("lin.weight", o*hidden+j) * x
			}
			want[i*out+o] = float32(v)
		}
	}
	x := testExec(t, 1, cpu.Go)
	got, err := m.Infer(t.Context(), x, params, ds, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "Infer", got.Data, want, 1e-6)
	got, err = m.Output(x, params, &Input{Blocks: wholeBlocks(g, 1), Features: ds.NodeFeatures})
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "Output", got.Data, want, 1e-6)
}

// TestIsComplete checks that a block with the graph's row pointers but other
// sources is not taken for a copy of the graph.
func TestIsComplete(t *testing.T) {
	g := randomGraph(9, 3, false, 1)
	b := graph.WholeGraph(g)
	b.Indices = append([]uint32(nil), b.Indices...)
	if !isComplete(&b, g) {
		t.Error("a copy of the graph is not complete")
	}
	b.Indices[2] = (b.Indices[2] + 1) % 9
	if isComplete(&b, g) {
		t.Error("a block with another source is complete")
	}
}
