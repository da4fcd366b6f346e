package compute

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// degenerate are graphs that leave something out, and what is learnt on them.
// With no seeds the blocks are whole graphs and the last nodes are the targets.
var degenerate = []struct {
	name    string
	rows    [][]uint32 // in-neighbours of each node
	seeds   []uint32
	targets int
}{
	{"a single node", [][]uint32{{}}, nil, 1},
	{"a single node, sampled", [][]uint32{{}}, []uint32{0}, 1},
	{"a single node with a loop", [][]uint32{{0}}, nil, 1},
	{"a single node with two loops, sampled", [][]uint32{{0, 0}}, []uint32{0}, 1},
	{"an isolated node among others", [][]uint32{{1, 2}, {2}, {0, 0, 2}, {}, {1}}, nil, 3},
	{"an isolated node alone in its batch", [][]uint32{{1, 2}, {2}, {0}, {}, {1}}, []uint32{3}, 1},
	{"isolated nodes and others in a batch", [][]uint32{{1, 2}, {}, {0}, {}, {1, 4}}, []uint32{3, 0, 1}, 3},
	{"empty rows that others read", [][]uint32{{}, {0}, {0, 1}, {}, {3}, {4, 0}, {}}, []uint32{5, 6, 2}, 3},
	{"the first and the last row empty", [][]uint32{{}, {0, 2, 4}, {1}, {1, 1}, {}}, nil, 5},
	{"nothing but loops", [][]uint32{{0}, {1}, {2}}, nil, 2},
}

func graphOf(rows [][]uint32) *graph.Graph {
	g := &graph.Graph{Indptr: []int64{0}}
	for _, row := range rows {
		g.Indices = append(g.Indices, row...)
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	return g
}

// blocksOf returns the blocks to learn case i on, all neighbours of the seeds.
func blocksOf(i int, g *graph.Graph, layers int) []graph.Block {
	if seeds := degenerate[i].seeds; seeds != nil {
		return sampleBlocks(g, seeds, layers, -1, 1)
	}
	return wholeBlocks(g, layers)
}

// TestDegenerateGradients checks the gradients of every variant by differences
// in float64 where rows are empty, nodes isolated or alone, with odd widths.
func TestDegenerateGradients(t *testing.T) {
	for name, spec := range variants {
		for i, d := range degenerate {
			t.Run(name+"/"+d.name, func(t *testing.T) {
				g := graphOf(d.rows)
				m := mustModel(t, sized(spec, 2, 5, 3, 3), g)
				checkModel(t, m, blocksOf(i, g, m.Blocks()), d.targets)
			})
		}
	}
}
