package compute

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// sparseDataset has features of which one in 16 is not zero, and one empty row.
func sparseDataset(n, dim int) *graph.Dataset {
	x := randomMatrix[float32](n, dim, 3)
	k := rng.New(4)
	for i := range x.Data {
		if k.Uintn(uint64(i), 16) != 0 || i/dim == 1 {
			x.Data[i] = 0
		}
	}
	return &graph.Dataset{Graph: randomGraph(n, 3, false, 5), NodeFeatures: graph.NewFeatures(n, dim, x.Data)}
}

// TestSparseFeatures checks that a model whose features are bound as sparse
// computes what it computes on the dense table, dropout's decisions included, in
// training on whole graphs and blocks and in inference, and that its bits do not
// depend on threads.
func TestSparseFeatures(t *testing.T) {
	const n, dim = 150, 70
	set, err := cpu.Detect() // whose dropout must decide as the sparse rows' does
	if err != nil {
		t.Fatal(err)
	}
	ds := sparseDataset(n, dim)
	for _, name := range Models() {
		for _, drop := range []float64{0, 0.4} {
			for _, hidden := range []int{5, 90} {
				t.Run(fmt.Sprintf("%s/%v/%d", name, drop, hidden), func(t *testing.T) {
					spec := Spec{Model: name, Layers: 2, InDim: dim, Hidden: hidden, OutDim: 3, Dropout: 0.5, InputDropout: drop}
					dense, sparse := mustModel(t, spec, ds.Graph), mustModel(t, spec, ds.Graph)
					sparse.BindFeatures(ds.NodeFeatures)
					if !sparse.SparseInput() {
						t.Fatal("the features were not taken for sparse")
					}
					params := dense.Init(1)
					whole := batchOf(ds, n, dense.Blocks(), -1, 3)
					whole.Blocks, whole.Rows = wholeBlocks(ds.Graph, dense.Blocks()), nil
					// The same memory for every batch.
					engines := []*Engine{sparse.NewEngine(testExec(t, 1, set)), sparse.NewEngine(testExec(t, 2, set))}
					for _, in := range []*Input{whole, batchOf(ds, 40, dense.Blocks(), 3, 3), whole} {
						want := make([]float32, len(params))
						if _, err := dense.NewEngine(testExec(t, 1, set)).Gradient(want, params, in); err != nil {
							t.Fatal(err)
						}
						var bits []float32
						for threads := 1; threads <= 2; threads++ {
							got := make([]float32, len(params))
							if _, err := engines[threads-1].Gradient(got, params, in); err != nil {
								t.Fatal(err)
							}
							for _, p := range dense.layout.Tensors() {
								closeTo(t, p.Name, got[p.Offset:p.Offset+p.Len], want[p.Offset:p.Offset+p.Len], 1e-5)
							}
							if bits != nil && !slices.Equal(bits, got) {
								t.Error("other bits with 2 threads")
							}
							bits = got
						}
					}
					x := testExec(t, 2, set)
					want, err := dense.Infer(context.Background(), x, params, ds, nil, 64)
					if err != nil {
						t.Fatal(err)
					}
					got, err := sparse.Infer(context.Background(), x, params, ds, nil, 7)
					if err != nil {
						t.Fatal(err)
					}
					closeTo(t, "inference", got.Data, want.Data, 1e-5)
					some, err := sparse.Infer(context.Background(), x, params, ds, []uint32{149, 1, 60}, 2)
					if err != nil {
						t.Fatal(err)
					}
					for i, v := range []int{149, 1, 60} {
						if !slices.Equal(some.Row(i), got.Row(v)) {
							t.Errorf("node %d alone has other bits", v)
						}
					}
				})
			}
		}
	}
}

func TestSparseGradientFloat64(t *testing.T) {
	ds := sparseDataset(9, 70)
	f := cpu.NewSparse(ds.NodeFeatures)
	checkGradient(t, []cpu.Matrix[float64]{randomMatrix[float64](4, 70, 1), randomMatrix[float64](4, 70, 2), randomMatrix[float64](1, 4, 3)},
		func(tape *Tape[float64], in []*Value[float64]) *Value[float64] {
			x := tape.Table(ds.NodeFeatures, 6, []uint32{8, 1, 0, 3, 4, 5})
			x.csr = f
			d := tape.Dropout(x, cpu.Dropped{Key: 1, P: 0.5})
			y := tape.Linear(tape.Head(d, 4), in[0], in[2], cpu.Linear)
			return tape.LinearAdd(y, tape.Head(x, 4), in[1], nil, cpu.ReLU)
		})
}

// TestBindFeaturesChoice checks the bounds.
func TestBindFeaturesChoice(t *testing.T) {
	sparse := sparseDataset(150, 70)
	m := mustModel(t, Spec{Model: "gcn", Layers: 1, InDim: 70, OutDim: 2}, sparse.Graph)
	for name, f := range map[string]*graph.Features{
		"dense":  graph.NewFeatures(150, 70, randomMatrix[float32](150, 70, 1).Data),
		"narrow": graph.NewFeatures(150, 63, make([]float32, 150*63)),
		"empty":  graph.NewFeatures(0, 70, nil),
	} {
		if m.BindFeatures(f); m.SparseInput() {
			t.Errorf("%s features are taken for sparse", name)
		}
	}
	// Another table than the bound one is read as it is.
	m.BindFeatures(sparse.NodeFeatures)
	if m.sparseTable(graph.NewFeatures(150, 70, make([]float32, 150*70))) != nil || m.sparseTable(sparse.NodeFeatures) == nil {
		t.Error("the wrong table is read as sparse")
	}
}
