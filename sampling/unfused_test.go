package sampling

import (
	"reflect"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

func TestUnfusedSameBits(t *testing.T) {
	g := skewed(6000, 300, 4)
	order := Order(allNodes(g), 1, 0)
	for _, spec := range []Spec{
		{Name: "neighbor", Fanouts: []int{10, 5}},
		{Name: "neighbor", Fanouts: []int{3, -1}, EdgeIDs: true},
		{Name: "neighbor", Fanouts: []int{4, 4}, Replace: true},
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "gns", Fanouts: []int{10, 5}, EdgeIDs: true},
		{Name: "khop", Layers: 2},
	} {
		p := mustPrepare(t, spec, g)
		s, ok := p.NewUnfusedSampler()
		if !ok {
			t.Fatalf("%s has no unfused variant", spec.Name)
		}
		fused := p.NewSampler()
		var a, b Batch
		for i, n := range []int{0, 1, 3000, 300} {
			if err := fused.Sample(&a, rng.New(1, uint64(i)), order[:n]); err != nil {
				t.Fatal(err)
			}
			if err := s.Sample(&b, rng.New(1, uint64(i)), order[:n]); err != nil {
				t.Fatal(err)
			}
			if x, y := a.clone(), b.clone(); !reflect.DeepEqual(x, y) {
				t.Fatalf("%s, %d seeds: the batch differs from the fused sampler's", spec.Name, n)
			}
		}
		if err := s.Sample(&b, 1, []uint32{3, 3}); err == nil {
			t.Error("duplicate seeds were accepted")
		}
	}
	if _, ok := mustPrepare(t, Spec{Name: "node", Layers: 1, Budget: 3}, g).NewUnfusedSampler(); ok {
		t.Error("a subgraph sampler has a node-wise variant")
	}
}

// By turns, so that both meet the same machine: CPU time, as there may be other work.
func BenchmarkUnfused(b *testing.B) {
	g := loadBenchGraph(b)
	p := mustPrepare(b, Spec{Name: "neighbor", Fanouts: []int{15, 10, 5}}, g)
	unfused, _ := p.NewUnfusedSampler()
	samplers := []Sampler{p.NewSampler(), unfused}
	order := Order(benchSeeds(g), 1, 0)
	var took [2]float64
	var batches [2]Batch
	edges := 0
	sample := func(i int) {
		for turn, s := range samplers {
			began := processTime()
			if err := s.Sample(&batches[turn], ID{Batch: i}.Key(1), Cut(order, 1024, 1, i%(len(order)/1024), 0)); err != nil {
				b.Fatal(err)
			}
			took[turn] += processTime() - began
		}
		edges += batches[0].NumEdges()
	}
	for i := range 3 { // scratch memory grows to its size
		sample(i)
	}
	took, edges = [2]float64{}, 0
	for i := 3; b.Loop(); i++ {
		sample(i)
	}
	b.ReportMetric(float64(edges)/took[0]/1e6, "fused-Medges/cpu-s")
	b.ReportMetric(float64(edges)/took[1]/1e6, "unfused-Medges/cpu-s")
	b.ReportMetric(took[1]/took[0], "unfused/fused")
}
