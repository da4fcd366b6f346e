package sampling

import (
	"context"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// Preparations end soon when their context does. least is how often their loops ask on a
// graph of so many nodes: fewer, and one of them goes on to its end.
func TestPrepareIsInterrupted(t *testing.T) {
	g := skewed(4*interrupt.Every, 8, 1)
	g.Weights = make([]float32, len(g.Indices))
	for e := range g.Weights {
		g.Weights[e] = float32(1 + e%3)
	}
	f := &graph.Features{Rows: len(g.Indices), Cols: 1, DType: graph.Float32, Stride: 4, Data: make([]byte, 4*len(g.Indices))}
	ds := &graph.Dataset{Graph: g, EdgeFeatures: f}
	for v := range uint32(g.NumNodes()) {
		if v%8 != 0 {
			ds.Train = append(ds.Train, v)
		}
	}
	for name, x := range map[string]struct {
		spec  Spec
		least int
	}{
		"neighbor":  {Spec{Name: "neighbor", Fanouts: []int{2}}, 1},
		"weighted":  {Spec{Name: "neighbor", Fanouts: []int{2}, Weighted: true, Replace: true}, 8},
		"inductive": {Spec{Name: "neighbor", Fanouts: []int{2}, Inductive: true}, 7},
		"fastgcn":   {Spec{Name: "fastgcn", Fanouts: []int{50}}, 17},
		"degree":    {Spec{Name: "gns", Fanouts: []int{2}}, 4},
		"walks":     {Spec{Name: "gns", Fanouts: []int{2, 2}, CacheBy: "walks"}, 9},
		"node":      {Spec{Name: "node", Layers: 1, Budget: 100}, 37},
		"edge":      {Spec{Name: "edge", Layers: 1, Budget: 100}, 52},
		"walk":      {Spec{Name: "walk", Layers: 1, Roots: 10, WalkLength: 2}, 21},
		"frontier":  {Spec{Name: "frontier", Layers: 1, Frontier: 5, Budget: 50}, 25},
		"norm":      {Spec{Name: "walk", Layers: 1, Roots: 10, WalkLength: 2, Normalization: 30}, 35},
		"cluster":   {Spec{Name: "cluster", Layers: 1, Clusters: 8}, 36},
	} {
		t.Run(name, func(t *testing.T) {
			interrupttest.Check(t, x.least, func(ctx context.Context) error {
				_, err := Prepare(ctx, x.spec, ds, 1)
				return err
			})
		})
	}
	t.Run("New", func(t *testing.T) {
		interrupttest.Check(t, 36, func(ctx context.Context) error {
			_, err := New(ctx, Spec{Name: "cluster", Layers: 1, Clusters: 8}, g)
			return err
		})
	})
	if !slices.IsSorted(ds.Train) {
		t.Error("the data was changed")
	}
}
