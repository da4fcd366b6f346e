package sampling

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
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

// benchGraph returns the graph in the directory that GNNACTOR_BENCH_GRAPH names
// (indptr.npy and indices.npy, as ../shared/tools/rmat writes them), or else an
// R-MAT graph of 2^17 nodes drawn here.
var benchGraph = sync.OnceValues(func() (*graph.Graph, error) {
	dir := os.Getenv("GNNACTOR_BENCH_GRAPH")
	if dir == "" {
		return rmat(17, 1<<20), nil
	}
	indptr, err := os.ReadFile(filepath.Join(dir, "indptr.npy"))
	if err != nil {
		return nil, err
	}
	indices, err := os.ReadFile(filepath.Join(dir, "indices.npy"))
	if err != nil {
		return nil, err
	}
	body := func(b []byte) []byte { return b[10+int(binary.LittleEndian.Uint16(b[8:])):] }
	g := &graph.Graph{}
	for b := body(indptr); len(b) > 0; b = b[8:] {
		g.Indptr = append(g.Indptr, int64(binary.LittleEndian.Uint64(b)))
	}
	for b := body(indices); len(b) > 0; b = b[4:] {
		g.Indices = append(g.Indices, binary.LittleEndian.Uint32(b))
	}
	return g, g.Validate()
})

func loadBenchGraph(b *testing.B) *graph.Graph {
	b.Helper()
	g, err := benchGraph()
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// rmat returns a symmetric R-MAT graph with Graph500's parameters.
func rmat(scale, edges int) *graph.Graph {
	n := 1 << scale
	key := rng.New(1, 500)
	perm := make([]uint32, n)
	key.Perm(perm)
	rows := make([][]uint32, n)
	for e := range edges {
		k := key.With(uint64(e))
		u, v := 0, 0
		for i := range scale {
			u, v = u<<1, v<<1
			switch p := k.Float64(uint64(i)); {
			case p < 0.57:
			case p < 0.76:
				v |= 1
			case p < 0.95:
				u |= 1
			default:
				u, v = u|1, v|1
			}
		}
		if u != v {
			rows[perm[u]] = append(rows[perm[u]], perm[v])
			rows[perm[v]] = append(rows[perm[v]], perm[u])
		}
	}
	for v := range rows {
		slices.Sort(rows[v])
		rows[v] = slices.Compact(rows[v])
	}
	return fromRows(rows...)
}

// benchSeeds returns the training nodes that peers were measured with.
func benchSeeds(g *graph.Graph) []uint32 {
	p := make([]uint32, g.NumNodes())
	rng.New(2).Perm(p)
	return p[:min(196615, len(p))]
}
