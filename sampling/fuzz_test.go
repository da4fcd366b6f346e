package sampling

import (
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// everySpec describes one of each sampler, and of its main variants, for two
// layers.
func everySpec() []Spec {
	f := []int{3, 2}
	return []Spec{
		{Name: "full", Layers: 2}, {Name: "khop", Layers: 2}, {Name: "neighbor", Fanouts: f},
		{Name: "neighbor", Fanouts: f, Replace: true}, {Name: "neighbor", Fanouts: f, Weighted: true},
		{Name: "neighbor", Fanouts: f, Weighted: true, Replace: true}, {Name: "neighbor", Fanouts: []int{-1, 1}, Temporal: true},
		{Name: "labor", Fanouts: f, Dependency: 2}, {Name: "pinsage", Fanouts: f, Restart: 0.5},
		{Name: "fastgcn", Fanouts: f}, {Name: "ladies", Fanouts: f}, {Name: "lazy", Fanouts: f, MiniBatch: 2, MegaBatch: 5},
		{Name: "gns", Fanouts: f, CacheFraction: 0.3}, {Name: "gns", Fanouts: f, CacheFraction: 0.3, CacheOnly: true, Normalize: "degree"},
		{Name: "node", Layers: 2, Budget: 5, Normalization: 3}, {Name: "edge", Layers: 2, Budget: 3, Clip: 2},
		{Name: "walk", Layers: 2, Roots: 2, WalkLength: 2}, {Name: "frontier", Layers: 2, Frontier: 2, Budget: 4, DegreeCap: 2},
		{Name: "cluster", Layers: 2, Clusters: 3}, {Name: "cluster", Layers: 2, Clusters: 2, PartitionBy: "labels", Boundary: true},
	}
}

func TestEverySamplerIsFuzzed(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range everySpec() {
		seen[s.Name] = true
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("%s is not in everySpec", name)
		}
	}
}

// FuzzSamplers runs each sampler over graphs made of the input's bytes, with
// loops, parallel edges, isolated nodes and weights of 0, and checks what all
// batches have in common.
func FuzzSamplers(f *testing.F) {
	f.Add(uint8(9), []byte{0, 0, 1, 0, 2, 0, 3, 3, 3, 3, 1, 8, 8, 1}, uint64(1))
	f.Add(uint8(1), []byte{}, uint64(2))
	f.Add(uint8(0), []byte{}, uint64(3))
	f.Add(uint8(40), []byte("the quick brown fox jumps over the lazy dog"), uint64(4))
	f.Fuzz(func(t *testing.T, nodes uint8, edges []byte, seed uint64) {
		n := int(nodes % 64)
		rows := make([][]uint32, n)
		for i := 0; i+1 < len(edges) && n > 0; i += 2 {
			v := int(edges[i]) % n
			rows[v] = append(rows[v], uint32(int(edges[i+1])%n))
		}
		g := fromRows(rows...)
		g.Weights = make([]float32, g.NumEdges())
		for i := range g.Weights {
			g.Weights[i] = float32(i % 3)
		}
		times := make([]int64, n)
		for i := range times {
			times[i] = int64(i % 5)
		}
		seeds := Order(allNodes(g), seed, 0)[:n/2]
		for _, spec := range everySpec() {
			spec.Clusters = min(spec.Clusters, max(n, 1)) // more than nodes are refused
			p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, Train: allNodes(g)[:n/3]}, seed, WithTimes(Times{Node: times}))
			if err != nil {
				if g.NumEdges() == 0 { // nothing to walk along
					continue
				}
				t.Fatalf("%+v: %v", spec, err)
			}
			s := p.NewSampler()
			var b Batch
			for epoch := range 2 {
				b.ID = ID{Phase: "train", Epoch: epoch, Batch: epoch}
				if err := s.Sample(&b, b.ID.Key(seed), seeds); err != nil {
					t.Fatalf("%+v: %v", spec, err)
				}
				if !p.ChoosesSeeds() && !slices.Equal(b.Seeds, seeds) {
					t.Fatalf("%+v: seeds %v, want %v", spec, b.Seeds, seeds)
				}
				checkSizes(t, g, &b, spec)
			}
		}
	})
}

// checkSizes verifies that everything in a batch fits together and is in range.
func checkSizes(t *testing.T, g *graph.Graph, b *Batch, spec Spec) {
	t.Helper()
	if len(b.Blocks) != 2 {
		t.Fatalf("%+v: %d blocks", spec, len(b.Blocks))
	}
	for i := range b.Blocks {
		k := &b.Blocks[i]
		ok := k.NumDst <= k.NumSrc && len(k.Indptr) == k.NumDst+1 && k.Indptr[0] == 0 && int(k.Indptr[k.NumDst]) == len(k.Indices) &&
			slices.IsSorted(k.Indptr) && (k.SrcIDs == nil || len(k.SrcIDs) == k.NumSrc) &&
			(k.Weights == nil || len(k.Weights) == len(k.Indices)) && (k.EdgeIDs == nil || len(k.EdgeIDs) == len(k.Indices)) &&
			(i == 0 || b.Blocks[i-1].NumDst == k.NumSrc)
		for _, u := range k.Indices {
			ok = ok && int(u) < k.NumSrc
		}
		for _, u := range k.SrcIDs {
			ok = ok && int(u) < g.NumNodes()
		}
		for _, w := range k.Weights {
			ok = ok && w >= 0 && w <= 1e9
		}
		for e, p := range k.EdgeIDs {
			ok = ok && g.Indices[p] == k.SrcIDs[k.Indices[e]]
		}
		if !ok {
			t.Fatalf("%+v: block %d does not fit together: %+v", spec, i, k)
		}
	}
	out := b.Blocks[1].NumDst
	ok := b.Targets == nil && len(b.Seeds) == out || len(b.Targets) == len(b.Seeds)
	for i, r := range b.Targets {
		ok = ok && int(r) < out && (b.Blocks[1].SrcIDs == nil && r == b.Seeds[i] || b.Blocks[1].SrcIDs != nil && b.Blocks[1].SrcIDs[r] == b.Seeds[i])
	}
	if !ok || b.LossWeights != nil && len(b.LossWeights) != len(b.Seeds) {
		t.Fatalf("%+v: seeds %v, targets %v, losses %v", spec, b.Seeds, b.Targets, b.LossWeights)
	}
}
