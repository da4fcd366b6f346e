package compute

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// reaches returns, per node, whether its output depends on node v's features
// after the given number of hops. A node without in-neighbours depends on itself
// only with self; others always do, if only by the attention that they pay.
func reaches(g *graph.Graph, v uint32, hops int, self bool) []bool {
	now := make([]bool, g.NumNodes())
	now[v] = true
	for range hops {
		next := make([]bool, len(now))
		for w := range next {
			next[w] = now[w] && (self || g.Degree(uint32(w)) > 0)
			for _, u := range g.InNeighbors(uint32(w)) {
				next[w] = next[w] || now[u]
			}
		}
		now = next
	}
	return now
}

// TestNaNReaches checks that a NaN among one node's features
// shows up in the exact outputs of all nodes that depend on it and of no other,
// for every variant and set of kernels.
func TestNaNReaches(t *testing.T) {
	for name, spec := range variants {
		spec.AttentionDropout = 0 // inference has none
		for _, set := range []cpu.Set{cpu.Go, cpu.AVX2, cpu.AVX512} {
			if !set.Supported() {
				continue
			}
			t.Run(name+"/"+set.String(), func(t *testing.T) {
				ds := testDataset(61, 1, 9, false)
				m := mustModel(t, sized(spec, 2, 9, 18, 3), ds.Graph)
				ds.EdgeFeatures = edgeFeatures(m)
				params := randomParams(m, 5)
				x := testExec(t, 2, set)
				values := randomMatrix[float32](61, 9, 22).Data
				for _, v := range []uint32{0, 4, 33} { // 4 has no in-neighbours
					spoilt := slices.Clone(values)
					spoilt[int(v)*9+5] = float32(math.NaN())
					ds.NodeFeatures = graph.NewFeatures(61, 9, spoilt)
					y, err := m.Infer(context.Background(), x, params, ds, nil, 10)
					if err != nil {
						t.Fatal(err)
					}
					self := !spec.NoLoops || spec.Residual
					for w, want := range reaches(ds.Graph, v, m.Blocks(), self) {
						got := slices.ContainsFunc(y.Row(w), func(f float32) bool { return f != f })
						if got != want {
							t.Fatalf("NaN in the features of node %d: output %d is %v; NaN wanted: %v", v, w, y.Row(w), want)
						}
					}
				}
			})
		}
	}
}
