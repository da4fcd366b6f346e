package sampling

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
)

// fromRows builds a graph from the in-neighbours of each node.
func fromRows(rows ...[]uint32) *graph.Graph {
	g := &graph.Graph{Indptr: []int64{0}}
	for _, r := range rows {
		g.Indices = append(g.Indices, r...)
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	return g
}

// skewed returns a graph of n nodes with a power-law in-degree, sorted rows, and,
// on purpose, isolated nodes, self-loops and multi-edges.
func skewed(n, maxDegree int, seed uint64) *graph.Graph {
	key := rng.New(seed, 77)
	rows := make([][]uint32, n)
	for v := range rows {
		k := key.With(uint64(v))
		d := int(float64(maxDegree) * k.Float64(0) * k.Float64(1) * k.Float64(2))
		for i := range d {
			u := k.Uintn(uint64(3+2*i), uint64(n))
			rows[v] = append(rows[v], uint32(k.Uintn(uint64(4+2*i), u+1))) // low ids are hubs as sources
		}
		slices.Sort(rows[v])
	}
	return fromRows(rows...)
}

// symmetric returns the undirected, simple version of g with sorted rows.
func symmetric(g *graph.Graph) *graph.Graph {
	rows := make([][]uint32, g.NumNodes())
	for v := range rows {
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) != v {
				rows[v] = append(rows[v], u)
				rows[u] = append(rows[u], uint32(v))
			}
		}
	}
	for v := range rows {
		slices.Sort(rows[v])
		rows[v] = slices.Compact(rows[v])
	}
	return fromRows(rows...)
}

// benchGraph returns the graph that peers were measured on, at the scale that
// GNNACTOR_BENCH_SCALE names, 20 or 21, or else a smaller one.
var benchGraph = sync.OnceValues(func() (*graph.Graph, error) {
	o := generate.RMATOptions{Scale: 17, Edges: 1 << 20, Seed: 1}
	switch s := os.Getenv("GNNACTOR_BENCH_SCALE"); s {
	case "":
	case "20":
		o.Scale, o.Edges = 20, 8_000_000
	case "21":
		o.Scale, o.Edges = 21, 65_000_000
	default:
		return nil, fmt.Errorf("GNNACTOR_BENCH_SCALE is %q; it must be 20 or 21", s)
	}
	ds, err := generate.RMAT(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return ds.Graph, nil
})

func loadBenchGraph(b *testing.B) *graph.Graph {
	b.Helper()
	g, err := benchGraph()
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// benchSeeds returns the training nodes that peers were measured with.
func benchSeeds(g *graph.Graph) []uint32 {
	p := make([]uint32, g.NumNodes())
	rng.New(2).Perm(p)
	return p[:min(196615, len(p))]
}
