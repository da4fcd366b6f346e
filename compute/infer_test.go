package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

func testDataset(n, degree, dim int, weighted bool) *graph.Dataset {
	return &graph.Dataset{
		Graph:        randomGraph(n, degree, weighted, 21),
		NodeFeatures: graph.NewFeatures(n, dim, randomMatrix[float32](n, dim, 22).Data),
	}
}

func randomParams(m *Model, seed uint64) []float32 {
	params := randomMatrix[float32](1, m.layout.Len(), seed).Data
	for _, s := range m.statistics {
		v := params[s.variance.Offset:][:s.variance.Len]
		for i := range v {
			v[i] = 0.5 + v[i]*v[i]
		}
	}
	return params
}

// TestInferMatchesForward compares inference with the training pass over the
// whole graph and over blocks with full fan-outs, without dropout.
func TestInferMatchesForward(t *testing.T) {
	for name, spec := range variants {
		for _, weighted := range []bool{false, true} {
			for _, dims := range [][3]int{{9, 6, 3}, {3, 6, 8}} {
				t.Run(fmt.Sprintf("%s/%v/%v", name, weighted, dims), func(t *testing.T) {
					ds := testDataset(97, 4, dims[0], weighted)
					spec.AttentionDropout = 0
					m := mustModel(t, sized(spec, 3, dims[0], dims[1], dims[2]), ds.Graph)
					ds.EdgeFeatures = edgeFeatures(m)
					params := randomParams(m, 5)
					x := testExec(t, 2, cpu.Go)
					got, err := m.Infer(context.Background(), x, params, ds, nil, 10)
					if err != nil {
						t.Fatal(err)
					}
					c := newCore[float32](m, x, false)
					c.bind(params, nil)
					for i := range c.ctx {
						c.ctx[i].edges = ds.EdgeFeatures
					}
					y := c.forward(wholeBlocks(ds.Graph, m.Blocks()), c.tape.Table(ds.NodeFeatures, 97, nil), 0)
					closeTo(t, "whole graph", got.Data, y.Matrix().Data, 1e-5)

					if spec.GCNNorm == "block" {
						return // a block's degrees are others than the graph's
					}
					seeds := []uint32{96, 4, 50, 13}
					blocks := sampleBlocks(ds.Graph, seeds, m.Blocks(), -1, 1)
					c.tape.Reset()
					c.bind(params, nil)
					y = c.forward(blocks, c.tape.Table(ds.NodeFeatures, blocks[0].NumSrc, blocks[0].SrcIDs), 0)
					for i, v := range seeds {
						closeTo(t, fmt.Sprintf("node %d by blocks", v), y.Matrix().Row(i), got.Row(int(v)), 1e-5)
					}
				})
			}
		}
	}
}

// TestInferBits checks that a row's bits depend neither on the nodes asked for,
// nor on the chunk, nor on the number of threads.
func TestInferBits(t *testing.T) {
	for _, set := range []cpu.Set{cpu.Go, cpu.AVX2, cpu.AVX512} {
		if !set.Supported() {
			continue
		}
		for name, spec := range variants {
			for _, dims := range [][3]int{{37, 15, 5}, {7, 21, 40}} {
				t.Run(fmt.Sprintf("%v/%s/%v", set, name, dims), func(t *testing.T) {
					const n = 200
					ds := testDataset(n, 5, dims[0], true)
					m := mustModel(t, sized(spec, 2, dims[0], dims[1], dims[2]), ds.Graph)
					ds.EdgeFeatures = edgeFeatures(m)
					params := randomParams(m, 5)
					want, err := m.Infer(context.Background(), testExec(t, 1, set), params, ds, nil, n)
					if err != nil {
						t.Fatal(err)
					}
					x := testExec(t, 2, set)
					key := rng.New(9)
					for trial := range 7 {
						nodes := make([]uint32, 1+key.Uintn(uint64(trial), 40))
						for i := range nodes {
							nodes[i] = uint32(key.With(uint64(trial)).Uintn(uint64(i), n))
						}
						if trial == 0 {
							nodes = nil
						}
						chunk := 1 + int(key.Uintn(uint64(trial+100), 70))
						got, err := m.Infer(context.Background(), x, params, ds, nodes, chunk)
						if err != nil {
							t.Fatal(err)
						}
						for i := range got.Rows {
							v := i
							if nodes != nil {
								v = int(nodes[i])
							}
							if !slices.Equal(got.Row(i), want.Row(v)) {
								t.Fatalf("node %d, chunk %d, one of %d nodes: got %v, want %v", v, chunk, len(nodes), got.Row(i), want.Row(v))
							}
						}
					}
				})
			}
		}
	}
}

func TestInferErrors(t *testing.T) {
	ds := testDataset(20, 2, 3, false)
	m := mustModel(t, Spec{Model: "gcn", Layers: 1, InDim: 3, OutDim: 2}, ds.Graph)
	params := randomParams(m, 1)
	x := testExec(t, 1, cpu.Go)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Infer(cancelled, x, params, ds, nil, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context gives %v", err)
	}
	if y, err := m.Infer(context.Background(), x, params, ds, []uint32{}, 0); err != nil || y.Rows != 0 || y.Cols != 2 {
		t.Errorf("no nodes give %d×%d, %v", y.Rows, y.Cols, err)
	}
	other := testDataset(21, 2, 3, false)
	wide := testDataset(20, 2, 4, false)
	wide.Graph = ds.Graph
	for want, f := range map[string]func() error{
		"out of range [0, 20)": func() error {
			_, err := m.Infer(context.Background(), x, params, ds, []uint32{3, 20}, 0)
			return err
		},
		"has 21 nodes": func() error {
			_, err := m.Infer(context.Background(), x, params, other, nil, 0)
			return err
		},
		"have 4 features, the model needs 3": func() error {
			_, err := m.Infer(context.Background(), x, params, wide, nil, 0)
			return err
		},
		"no node features": func() error {
			_, err := m.Infer(context.Background(), x, params, &graph.Dataset{Graph: ds.Graph}, nil, 0)
			return err
		},
		"parameters given": func() error {
			_, err := m.Infer(context.Background(), x, params[1:], ds, nil, 0)
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestNeighborhoods compares with sets grown one edge at a time.
func TestNeighborhoods(t *testing.T) {
	g := randomGraph(200, 2, false, 3)
	nodes := []uint32{199, 7, 7, 64}
	sets, err := neighborhoods(t.Context(), g, nil, nodes, 3)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint32]bool{199: true, 7: true, 64: true}
	for l := 3; l >= 0; l-- {
		if l < 3 {
			for _, v := range sets[l+1].ids {
				for _, u := range g.InNeighbors(v) {
					want[u] = true
				}
			}
		}
		s := sets[l]
		if s.n != len(want) || len(s.ids) != len(want) || !slices.IsSorted(s.ids) {
			t.Fatalf("layer %d: %d nodes, want %d, sorted", l, s.n, len(want))
		}
		for i, v := range s.ids {
			if !want[v] || s.row(v) != uint32(i) || s.id(i) != v {
				t.Fatalf("layer %d: node %d at %d: wanted %v, row %d", l, v, i, want[v], s.row(v))
			}
		}
	}
}

// Rows that are given lie in the order in which they are asked for, and not by nodes' numbers; whatever the layer does first, outputs have the bits of the table's.
func TestInferRows(t *testing.T) {
	for _, dims := range [][3]int{{9, 6, 3}, {3, 6, 8}} {
		for _, model := range []string{"gcn", "sage", "gat"} {
			ds := testDataset(97, 1, dims[0], false)
			m := mustModel(t, sized(Spec{Model: model}, 2, dims[0], dims[1], dims[2]), ds.Graph)
			params, x, nodes := randomParams(m, 5), testExec(t, 1, cpu.Go), []uint32{96, 40, 3}
			want, err := m.Infer(t.Context(), x, params, ds, nodes, 10)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			got, err := m.InferRows(t.Context(), x, params, ds, nodes, 10, func(nodes []uint32) (*graph.Features, error) {
				asked = len(nodes)
				data := make([]float32, len(nodes)*dims[0])
				for i, v := range nodes {
					ds.NodeFeatures.Row(data[i*dims[0]:][:dims[0]], int(v))
				}
				return graph.NewFeatures(len(nodes), dims[0], data), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if asked == 0 || asked == 97 {
				t.Fatalf("%d rows were asked for: the test shows nothing", asked)
			}
			if !slices.Equal(got.Data, want.Data) {
				t.Errorf("%s, %v: outputs %v by rows; want %v", model, dims, got.Data, want.Data)
			}
		}
	}
}
