package sampling

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

func TestParallelSamplerSameBits(t *testing.T) {
	g := skewed(6000, 120, 8)
	order := Order(allNodes(g), 1, 0)
	for _, spec := range []Spec{
		{Name: "neighbor", Fanouts: []int{10, 5}},
		{Name: "neighbor", Fanouts: []int{3, -1}, EdgeIDs: true},
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "gns", Fanouts: []int{10, 5}, EdgeIDs: true},
		{Name: "khop", Layers: 2},
	} {
		p := mustPrepare(t, spec, g)
		for _, workers := range []int{1, 4} {
			pl := pool.New(workers)
			s, ok := p.NewParallelSampler(pl)
			if !ok {
				t.Fatalf("%s has no parallel variant", spec.Name)
			}
			s = s.(*guarded).sampler
			if workers == 1 { // which is the plain sampler: the protocol is tested nevertheless
				s = p.newParallel(s.(*fused), pl)
			}
			plain := p.NewSampler()
			var a, b Batch
			for i, n := range []int{0, 1, 3000, 300, 6000} {
				if i == 3 { // values run out: the table is swept in the middle of a batch
					s.(*parallel).ids.base = math.MaxUint32 - 9000
				}
				if err := plain.Sample(&a, rng.New(1, uint64(i)), order[:n]); err != nil {
					t.Fatal(err)
				}
				if err := s.Sample(&b, rng.New(1, uint64(i)), order[:n]); err != nil {
					t.Fatal(err)
				}
				if x, y := a.clone(), b.clone(); !reflect.DeepEqual(x, y) {
					t.Fatalf("%s, %d workers, %d seeds: the batch differs from the plain sampler's", spec.Name, workers, n)
				}
			}
			if err := s.Sample(&b, 1, []uint32{3, 3}); err == nil {
				t.Error("duplicate seeds were accepted")
			}
			pl.Close()
		}
	}
	pl := pool.New(1)
	defer pl.Close()
	if _, ok := mustPrepare(t, Spec{Name: "node", Layers: 1, Budget: 3}, g).NewParallelSampler(pl); ok {
		t.Error("a subgraph sampler has a node-wise variant")
	}
}

// Nodes whose slots are the same, the last one of the table, go to the next ones
// and on to the first.
func TestParallelSamplerCollisions(t *testing.T) {
	const n, rows, fanout = 1 << 18, 200, 8
	var same []uint32
	for u := uint32(rows); u < n; u++ {
		if u*hashMultiplier>>20 == 1<<12-1 { // of 4096 slots
			same = append(same, u)
		}
	}
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	k := rng.New(4)
	for v := range n {
		if v < rows {
			for j := range fanout {
				g.Indices = append(g.Indices, same[k.Uintn(uint64(fanout*v+j), uint64(len(same)))])
			}
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	p := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{fanout}}, g)
	pl := pool.New(4)
	defer pl.Close()
	s, _ := p.NewParallelSampler(pl)
	var a, b Batch
	for i := range 5 {
		key, seeds := rng.New(1, uint64(i)), allNodes(g)[:rows]
		if err := errors.Join(p.NewSampler().Sample(&a, key, seeds), s.Sample(&b, key, seeds)); err != nil {
			t.Fatal(err)
		}
		if x, y := a.clone(), b.clone(); !reflect.DeepEqual(x, y) {
			t.Fatalf("batch %d of %d nodes differs from the plain sampler's of %d", i, len(b.nodes), len(a.nodes))
		}
	}
}

func BenchmarkParallelSampler(b *testing.B) {
	g := loadBenchGraph(b)
	p := mustPrepare(b, Spec{Name: "neighbor", Fanouts: []int{15, 10, 5}}, g)
	seeds := benchSeeds(g)[:min(65536, len(benchSeeds(g)))]
	run := func(b *testing.B, s Sampler) {
		b.ReportAllocs()
		var bt Batch
		edges := 0
		for i := range b.N {
			if err := s.Sample(&bt, rng.New(1, uint64(i)), seeds); err != nil {
				b.Fatal(err)
			}
			edges += bt.NumEdges()
		}
		b.ReportMetric(float64(edges)/b.Elapsed().Seconds()/1e6, "Medges/s")
	}
	b.Run("plain", func(b *testing.B) { run(b, p.NewSampler()) })
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			pl := pool.New(workers)
			defer pl.Close()
			run(b, p.newParallel(p.factory().(*fused), pl))
		})
	}
}
