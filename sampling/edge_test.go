package sampling

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Draws are pipelined by groups; each is the same as drawn alone.
func TestEdgeDrawsByGroups(t *testing.T) {
	for _, g := range []*graph.Graph{skewed(300, 40, 1), symmetric(skewed(300, 40, 1))} {
		for _, budget := range []int{1, edgeGroup - 1, edgeGroup, edgeGroup + 1, 3*edgeGroup + 7} {
			s := mustPrepare(t, Spec{Name: "edge", Layers: 1, Budget: budget}, g).factory().(*subgraphs)
			d := s.drawer.(*edgeDrawer)
			if (d.out == nil) != g.Symmetric() {
				t.Fatalf("a symmetric graph: %v, edges both ways are kept: %v", g.Symmetric(), d.out != nil)
			}
			key := rng.New(5, uint64(budget))
			d.draw(s.set, ID{}, key)
			var want []uint32
			for i := range uint64(budget) {
				c, from := d.table.draw(key.With(0), i), g
				if int(c) >= g.NumNodes() {
					c, from = c-uint32(g.NumNodes()), d.out
				}
				row := from.InNeighbors(c)
				want = append(want, c, row[key.With(1).Uintn(i, uint64(len(row)))])
			}
			if !slices.Equal(d.ends, want) {
				t.Errorf("%d edges: drawn %v, want %v", budget, d.ends, want)
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	for _, g := range []*graph.Graph{fromRows(), fromRows(nil, nil), skewed(200, 30, 2), shuffled(skewed(200, 30, 3))} {
		rows := make([][]uint32, g.NumNodes())
		for v := range rows {
			for _, u := range g.InNeighbors(uint32(v)) {
				rows[u] = append(rows[u], uint32(v))
			}
		}
		got, want := transpose(nil, g), fromRows(rows...)
		if !slices.Equal(got.Indptr, want.Indptr) || !slices.Equal(got.Indices, want.Indices) {
			t.Errorf("%d nodes: rows %v %v, want %v %v", g.NumNodes(), got.Indptr, got.Indices, want.Indptr, want.Indices)
		}
	}
}
