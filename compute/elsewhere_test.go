package compute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// rowsOf has the rows of a graph as they come from another node, and counts the pieces.
type rowsOf struct {
	g      *graph.Graph
	pieces int
}

func (r *rowsOf) Rows(ctx context.Context, nodes []uint32, piece int, edges bool, use func(int, *graph.Block) error) error {
	for from := 0; from < len(nodes); from += piece {
		part := nodes[from:min(from+piece, len(nodes))]
		b := sampleBlocks(r.g, part, 1, -1, 0)[0]
		for i, v := range part { // that one shuffles
			for k, u := range r.g.InNeighbors(v) {
				b.Indices[int(b.Indptr[i])+k] = uint32(slices.Index(b.SrcIDs, u))
				b.EdgeIDs[int(b.Indptr[i])+k] = r.g.Indptr[v] + int64(k)
			}
		}
		if !edges {
			b.EdgeIDs = nil
		}
		r.pieces++
		if err := errors.Join(ctx.Err(), use(from, &b)); err != nil {
			return err
		}
	}
	return nil
}

// A model of a graph whose rows lie elsewhere gives the bits of one that has them, in exact
// inference and in training on batches.
func TestElsewhere(t *testing.T) {
	for name, spec := range variants {
		for _, weighted := range []bool{false, true} {
			for _, sums := range []bool{false, true} {
				spec.ScaleSums = sums
				t.Run(fmt.Sprintf("%s/%v/%v", name, weighted, sums), func(t *testing.T) {
					ds := testDataset(97, 4, 5, weighted)
					here, err := NewModel(sized(spec, 2, 5, 6, 3), ds.Graph)
					if err != nil {
						t.Skip(err) // ScaleSums are of some
					}
					ds.EdgeFeatures = edgeFeatures(here)
					away := *ds
					away.Graph = graph.Elsewhere(97, ds.Graph.NumEdges())
					away.Graph.Weights = ds.Graph.Weights
					m := mustModel(t, here.spec, away.Graph)
					rows := &rowsOf{g: ds.Graph}
					needs, norm := m.NeedsFacts()
					var f *Facts
					if needs {
						f = FactsOf(ds.Graph, norm)
					}
					if err := m.BindElsewhere(f, rows); err != nil {
						t.Fatal(err)
					}
					params := randomParams(here, 5)
					x := testExec(t, 2, cpu.Go)
					for _, nodes := range [][]uint32{nil, {96, 4, 50, 4}} {
						want, err := here.Infer(t.Context(), x, params, ds, nodes, 10)
						if err != nil {
							t.Fatal(err)
						}
						got, err := m.Infer(t.Context(), x, params, &away, nodes, 7)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got.Data, want.Data) || rows.pieces == 0 {
							t.Errorf("other outputs of %v, after %d pieces", nodes, rows.pieces)
						}
					}
					seeds := []uint32{96, 4, 50, 13}
					in := &Input{Key: rng.New(3), Blocks: sampleBlocks(ds.Graph, seeds, here.Blocks(), 2, 1), Features: ds.NodeFeatures, Labels: []int32{0, 1, 2, 0}, Edges: ds.EdgeFeatures}
					in.Rows = in.Blocks[0].SrcIDs
					a, b := make([]float32, len(params)), make([]float32, len(params))
					if _, err := here.NewEngine(x).Gradient(a, params, in); err != nil {
						t.Fatal(err)
					}
					if _, err := m.NewEngine(x).Gradient(b, params, in); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(a, b) {
						t.Error("another gradient")
					}
				})
			}
		}
	}
}

// Facts of another graph are refused, and an error of the rows ends inference.
func TestElsewhereRefused(t *testing.T) {
	ds := testDataset(20, 3, 4, false)
	away := *ds
	away.Graph = graph.Elsewhere(20, ds.Graph.NumEdges())
	m := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: 4, Hidden: 4, OutDim: 2}, away.Graph)
	f := FactsOf(ds.Graph, true)
	for _, bad := range []*Facts{{}, {Degrees: f.Degrees}, {Degrees: f.Degrees, InvSqrt: f.InvSqrt, Loops: f.InvSqrt[1:]}, {Degrees: f.Degrees[1:], InvSqrt: f.InvSqrt}} {
		if err := m.BindElsewhere(bad, nil); err == nil {
			t.Errorf("taken: %d degrees, %d factors", len(bad.Degrees), len(bad.InvSqrt))
		}
	}
	if err := m.BindElsewhere(f, noRows{}); err != nil {
		t.Fatal(err)
	}
	for _, nodes := range [][]uint32{nil, {3}} {
		if _, err := m.Infer(t.Context(), testExec(t, 1, cpu.Go), m.Init(1), &away, nodes, 0); !errors.Is(err, errNoRows) {
			t.Errorf("rows that do not come: %v", err)
		}
	}
}

var errNoRows = errors.New("no rows")

type noRows struct{}

func (noRows) Rows(context.Context, []uint32, int, bool, func(int, *graph.Block) error) error {
	return errNoRows
}
