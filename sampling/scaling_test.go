package sampling

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/hugepages"
	"github.com/gnnactor/gnnactor/rng"
)

// uniformGraph returns a graph of n nodes with 16 incoming edges each, from
// uniformly drawn nodes.
func uniformGraph(n int, huge bool) *graph.Graph {
	const degree = 16
	g := &graph.Graph{Indptr: make([]int64, n+1), Indices: make([]uint32, n*degree)}
	if huge {
		hugepages.Advise(g.Indptr)
		hugepages.Advise(g.Indices)
	}
	key := rng.New(9)
	var wg sync.WaitGroup
	const workers = 2
	for w := range workers {
		wg.Go(func() {
			for v := n * w / workers; v < n*(w+1)/workers; v++ {
				g.Indptr[v+1] = int64(v+1) * degree
				for i := v * degree; i < (v+1)*degree; i++ {
					g.Indices[i] = uint32(key.Uintn(uint64(i), uint64(n)))
				}
			}
		})
	}
	wg.Wait()
	return g
}

// BenchmarkSubgraphScaling samples subgraphs of the same size, each another one,
// from uniform random graphs of 1 to 33 million nodes, of 16 edges a node; the
// largest ones, of up to 2.4 GB, only with GNNACTOR_BENCH_SCALE set. Its arrays
// lie in huge pages if GNNACTOR_BENCH_HUGE is set: with small ones, the search
// for a page costs more the more there are.
func BenchmarkSubgraphScaling(b *testing.B) {
	for _, log := range []int{20, 22, 24, 25} {
		b.Run(fmt.Sprintf("nodes=%d", 1<<log), func(b *testing.B) {
			if log > 20 && os.Getenv("GNNACTOR_BENCH_SCALE") == "" {
				b.Skip("set GNNACTOR_BENCH_SCALE")
			}
			g := uniformGraph(1<<log, os.Getenv("GNNACTOR_BENCH_HUGE") != "")
			for _, spec := range []Spec{
				{Name: "frontier", Layers: 3, Frontier: 1000, Budget: 8000},
				{Name: "walk", Layers: 3, Roots: 2000, WalkLength: 4},
				{Name: "node", Layers: 3, Budget: 8000},
				{Name: "edge", Layers: 3, Budget: 4000},
			} {
				var p *Prepared
				b.Run(spec.Name, func(b *testing.B) {
					if p == nil {
						p = mustPrepare(b, spec, g)
					}
					benchSampler(b, p, []uint32{0}, 1, 1)
				})
			}
		})
	}
}
