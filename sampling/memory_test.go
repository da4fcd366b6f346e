package sampling

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

func TestMemory(t *testing.T) {
	const n, scratch = 200_000, 48 << 10 // empty tables of ids, queues, and the like
	g := skewed(n, 20, 3)
	edges := g.NumEdges()
	for _, c := range []struct {
		spec   Spec
		shared int64
		perBit bool // a sampler has one bit per node
	}{
		{Spec{Name: "neighbor", Fanouts: []int{5, 5}}, 0, false},
		{Spec{Name: "labor", Fanouts: []int{5, 5}}, 0, false},
		{Spec{Name: "pinsage", Fanouts: []int{5, 5}}, 0, false},
		{Spec{Name: "khop", Layers: 2}, 0, false},
		{Spec{Name: "fastgcn", Fanouts: []int{100, 100}}, 16 * n, true},
		{Spec{Name: "ladies", Fanouts: []int{100, 100}}, 0, true},
		{Spec{Name: "node", Layers: 2, Budget: 100}, 8 * n, true},
		{Spec{Name: "edge", Layers: 2, Budget: 100}, 2*8*n + 8*(n+2) + 4*edges, true}, // the graph has edges without their reverse
		{Spec{Name: "walk", Layers: 2, Roots: 10, WalkLength: 3}, 0, true},
		{Spec{Name: "walk", Layers: 2, Roots: 10, WalkLength: 3, Normalization: 2}, 4*n + 4*edges, true},
		{Spec{Name: "cluster", Layers: 2, Clusters: 10}, 8*n + 8*11, true},
	} {
		part := make([]uint32, n)
		for v := range part {
			part[v] = uint32(v % 10)
		}
		p, err := Prepare(t.Context(), c.spec, &graph.Dataset{Graph: g}, 1, WithPartition(part))
		if err != nil {
			t.Fatal(err)
		}
		if c.spec.Name != "cluster" {
			c.shared += 4 * n // the partition, which p holds
		}
		m := p.Footprint()
		if slack := m.Shared - c.shared; slack < 0 || slack > 4096 {
			t.Errorf("%s: %d bytes are shared, want %d", c.spec.Name, m.Shared, c.shared)
		}
		least := int64(0)
		if c.perBit {
			least = n / 8
		}
		if m.Sampler < least || m.Sampler > least+scratch {
			t.Errorf("%s: %d bytes per sampler, want %d and at most %d more", c.spec.Name, m.Sampler, least, scratch)
		}
	}
	p := mustPrepare(t, Spec{Name: "gns", Fanouts: []int{5, 5}}, g)
	if m := p.Footprint(); m.Shared < 2*8*n+3*8*n || m.Shared > 2*8*n+3*(8*n+n/4+8*edges)+1<<16 {
		t.Errorf("gns: %d bytes are shared", m.Shared)
	}
	before := p.Footprint()
	p.Caches().At(1) // a generation in use counts once
	if m := p.Footprint(); m != before {
		t.Errorf("gns: %+v with a second generation drawn, %+v before", m, before)
	}
	lazy := mustPrepare(t, Spec{Name: "lazy", Fanouts: []int{5}, MiniBatch: 1000, MegaBatch: 3000}, g)
	first, err := lazy.mega.at(0)
	if err != nil {
		t.Fatal(err)
	}
	entries := int64(len(first.layers[0].Indices))
	if least, m := 3*(4*int64(len(first.nodes))+4*entries+8*3001), lazy.Footprint(); m.Shared < least || m.Shared > 2*least {
		t.Errorf("lazy: %d bytes are shared, want %d and at most as many more", m.Shared, least)
	}
	if s := newNodeSet(bitsLimit+1, bitsLimit); s.bits != nil {
		t.Error("a set of nodes of a graph above the limit has one bit per node")
	}
}
