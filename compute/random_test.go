package compute

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

// testExec returns an executor that ends with the test.
func testExec(t testing.TB, threads int, set cpu.Set) *cpu.Exec {
	p := pool.New(threads)
	t.Cleanup(p.Close)
	return cpu.NewExec(p, set)
}

// randomGraph returns a graph with self-loops, duplicate edges and nodes
// without neighbours: row v has up to 2·degree entries, every fifth none.
func randomGraph(n, degree int, weighted bool, seed uint64) *graph.Graph {
	k := rng.New(seed)
	g := &graph.Graph{Indptr: make([]int64, 1, n+1)}
	for v := range n {
		if v%5 != 4 {
			row := k.With(uint64(v))
			for j := range row.Uintn(0, uint64(2*degree+1)) {
				g.Indices = append(g.Indices, uint32(row.Uintn(j+1, uint64(n))))
			}
			if v%7 == 3 {
				g.Indices = append(g.Indices, uint32(v))
			}
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	if weighted {
		for e := range g.Indices {
			g.Weights = append(g.Weights, float32(0.5+k.With(1<<40).Float64(uint64(e))))
		}
	}
	return g
}

// randomMatrix returns values in [-1, 1) on a grid, so that float32 and float64
// hold the same.
func randomMatrix[T cpu.Float](rows, cols int, seed uint64) cpu.Matrix[T] {
	m := cpu.NewMatrix[T](rows, cols)
	k := rng.New(seed, 77)
	for i := range m.Data {
		m.Data[i] = T(int(k.Uintn(uint64(i), 1<<16))-1<<15) / (1 << 15)
	}
	return m
}

// sampleBlocks cuts layers blocks for seeds, each row with at most fanout of
// its entries (-1: all), in the format that samplers produce.
func sampleBlocks(g *graph.Graph, seeds []uint32, layers, fanout int, seed uint64) []graph.Block {
	blocks := make([]graph.Block, layers)
	nodes := slices.Clone(seeds)
	local := map[uint32]uint32{}
	for i, v := range nodes {
		local[v] = uint32(i)
	}
	for l := layers - 1; l >= 0; l-- {
		b := graph.Block{NumDst: len(nodes), Indptr: make([]int64, 1)}
		for _, v := range nodes[:b.NumDst] {
			entries := make([]uint32, g.Degree(v))
			rng.New(seed, uint64(l), uint64(v)).Perm(entries)
			if fanout >= 0 && fanout < len(entries) {
				entries = entries[:fanout]
			}
			slices.Sort(entries)
			for _, e := range entries {
				id := g.Indptr[v] + int64(e)
				u := g.Indices[id]
				if _, ok := local[u]; !ok {
					local[u] = uint32(len(nodes))
					nodes = append(nodes, u)
				}
				b.Indices = append(b.Indices, local[u])
				b.EdgeIDs = append(b.EdgeIDs, id)
			}
			b.Indptr = append(b.Indptr, int64(len(b.Indices)))
		}
		b.NumSrc = len(nodes)
		b.SrcIDs = slices.Clone(nodes)
		blocks[l] = b
	}
	return blocks
}

// wholeBlocks returns the whole graph once per layer.
func wholeBlocks(g *graph.Graph, layers int) []graph.Block {
	blocks := make([]graph.Block, layers)
	for i := range blocks {
		blocks[i] = graph.WholeGraph(g)
	}
	return blocks
}

func mustModel(t testing.TB, spec Spec, g *graph.Graph) *Model {
	t.Helper()
	m, err := NewModel(spec, g)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// subgraphBlocks returns the subgraph of the given nodes once per layer, in the
// format that samplers produce.
func subgraphBlocks(g *graph.Graph, nodes []uint32, layers int) []graph.Block {
	nodes = slices.Sorted(slices.Values(nodes))
	b := graph.Block{NumDst: len(nodes), NumSrc: len(nodes), Indptr: make([]int64, 1), Indices: []uint32{}, EdgeIDs: []int64{}, SrcIDs: nodes}
	for _, v := range nodes {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if i, ok := slices.BinarySearch(nodes, g.Indices[e]); ok {
				b.Indices, b.EdgeIDs = append(b.Indices, uint32(i)), append(b.EdgeIDs, e)
			}
		}
		b.Indptr = append(b.Indptr, int64(len(b.Indices)))
	}
	return slices.Repeat([]graph.Block{b}, layers)
}
