package sampling

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
)

// Runs are repeatable to the bit by every later version: whoever changes what a
// sampler draws raises its version in a run's identity, and these digests of its
// batches with them.
func TestBatchesKeepTheirBits(t *testing.T) {
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 12, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	seeds := Order(allNodes(ds.Graph), 5, 0)[:300]
	ds.Train = Order(allNodes(ds.Graph), 6, 0)[:700]
	ds.NodeTimes = make([]int64, ds.Graph.NumNodes())
	for v := range ds.NodeTimes {
		ds.NodeTimes[v] = int64(v*7919) % 4096
	}
	weighted := *ds.Graph
	weighted.Weights = make([]float32, weighted.NumEdges())
	for e := range weighted.Weights {
		weighted.Weights[e] = 1 + float32(e*31%97)
	}
	for i, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}}, "62e6d5c495c715aa"},
		{Spec{Name: "labor", Fanouts: []int{10, 5}}, "752e387cc788cf6c"},
		{Spec{Name: "labor", Fanouts: []int{3, 40}, Dependency: 4}, "7d5bc2d3b7506207"},
		{Spec{Name: "pinsage", Fanouts: []int{6, 4}}, "d31a3412c959df4d"},
		{Spec{Name: "pinsage", Fanouts: []int{50, 3}, Walks: 40, WalkLength: 2, Restart: 0.5}, "c16ffd5d8c4385fa"},
		{Spec{Name: "fastgcn", Fanouts: []int{200, 400}}, "8a9f6b23f5bb4347"},
		{Spec{Name: "ladies", Fanouts: []int{200, 400}}, "f22f76b572fb6aea"},
		{Spec{Name: "ladies", Fanouts: []int{3000, 5000}}, "5a1dde5419c26265"},
		{Spec{Name: "neighbor", Fanouts: []int{10, -1}, Temporal: true, EdgeIDs: true}, "f673448cdcdf93a8"},
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}, Replace: true}, "e14fb532b0e34a0f"},
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true}, "0aecb06c6122df22"},
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true, Replace: true}, "85e37fe859a04bee"},
		{Spec{Name: "neighbor", Fanouts: []int{3, 2}, Inductive: true}, "9dcedd1aebabe410"},
		{Spec{Name: "lazy", Fanouts: []int{6, 4}, MiniBatch: 50, EdgeIDs: true}, "79e43fce44fa41eb"},
		{Spec{Name: "lazy", Fanouts: []int{6, 4}, MiniBatch: 300, Recycle: 3, RecycleGrowth: 1.5}, "c5396b8bbc15dc9c"},
		{Spec{Name: "gns", Fanouts: []int{6, 4}}, "012161be1f533704"},
		{Spec{Name: "gns", Fanouts: []int{6, 4}, CacheFraction: 0.1, CachePeriod: 2, CacheBy: "walks", CacheApproximate: true}, "52e0712f2f6c8bf3"},
		{Spec{Name: "gns", Fanouts: []int{6, 4}, CacheFraction: 0.1, CacheOnly: true, Normalize: "degree"}, "738f83f008b1549e"},
		{Spec{Name: "node", Layers: 2, Budget: 200, Normalization: 5}, "d8cd077caf4b2a31"},
		{Spec{Name: "edge", Layers: 2, Budget: 200, Normalization: 5, Clip: 16}, "4e9a93b52f59799d"},
		{Spec{Name: "node", Layers: 1, Budget: 100, Normalization: 1}, "ffb26eab01adecc1"},
		{Spec{Name: "walk", Layers: 2, Roots: 20, WalkLength: 5, Normalization: 5}, "da80d08618b24e40"},
		{Spec{Name: "frontier", Layers: 2, Frontier: 30, Budget: 200, EpochSubgraphs: 4}, "64e85ea7c83af14a"},
		{Spec{Name: "frontier", Layers: 2, Frontier: 30, Budget: 200, DegreeCap: 9, Distinct: true, Normalization: 5}, "993255342f5426a8"},
		{Spec{Name: "cluster", Layers: 2, Clusters: 12, PerBatch: 3, PartitionBy: "metis", Boundary: true}, "d1c4ce8a1f9e2710"},
		{Spec{Name: "cluster", Layers: 2, Clusters: 9, PerBatch: 2, PartitionBy: "labels", Clip: 8, Normalization: 3}, "0e1b42fa905651c9"},
	} {
		t.Run(fmt.Sprint(i, c.spec.Name), func(t *testing.T) {
			data := *ds
			if c.spec.Weighted {
				data.Graph = &weighted
			}
			p, err := Prepare(t.Context(), c.spec, &data, 1)
			if err != nil {
				t.Fatal(err)
			}
			// Kernels of every kind that this processor has.
			had, had512 := simd, simd512
			defer func() { setSIMD(had); setSIMD512(had512) }()
			for kernels := range 3 {
				setSIMD(had && kernels > 0)
				setSIMD512(had512 && kernels > 1)
				if got := digest(t, p, seeds, c.spec.CachePeriod > 0); got != c.want {
					t.Errorf("the batches' digest is %s, and was %s; SIMD %t, of AVX-512 %t", got, c.want, simd, simd512)
				}
			}
		})
	}
}

// digest hashes six batches of a sampler of p, each of an epoch of its own if asked.
func digest(t *testing.T, p *Prepared, seeds []uint32, epochs bool) string {
	s, h := p.NewSampler(), fnv.New64a()
	var b Batch
	for i := range 6 {
		if b.ID = (ID{Phase: "train", Batch: i}); epochs {
			b.ID = ID{Phase: "train", Epoch: i}
		}
		if err := s.Sample(&b, b.ID.Key(7), seeds[50*i:50*i+50]); err != nil {
			t.Fatal(err)
		}
		if b.Targets != nil || b.LossWeights != nil {
			fmt.Fprintln(h, b.Seeds, b.Targets)
		}
		for _, w := range b.LossWeights {
			fmt.Fprintln(h, math.Float32bits(w))
		}
		for _, blk := range b.Blocks {
			fmt.Fprintln(h, blk.NumDst, blk.NumSrc, blk.Indptr, blk.Indices, blk.SrcIDs)
			for _, w := range blk.Weights {
				fmt.Fprintln(h, math.Float32bits(w))
			}
			if blk.EdgeIDs != nil {
				fmt.Fprintln(h, blk.EdgeIDs)
			}
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// A batch that is used again has the newest targets, and its own copies of them.
func TestSetTargets(t *testing.T) {
	var b Batch
	for n := range uint32(4) {
		seeds, rows := make([]uint32, 4-n), make([]uint32, 4-n)
		for i := range seeds {
			seeds[i], rows[i] = 10*n+uint32(i), uint32(i)+n
		}
		b.SetTargets(seeds, rows)
		want, wantRows := slices.Clone(seeds), slices.Clone(rows)
		clear(seeds)
		clear(rows)
		if !slices.Equal(b.Seeds, want) || !slices.Equal(b.Targets, wantRows) {
			t.Errorf("use %d: seeds %v of rows %v, want %v of %v", n, b.Seeds, b.Targets, want, wantRows)
		}
	}
}

// A batch that is reset has no block, and gives back none of its memory.
func TestReset(t *testing.T) {
	s, err := New(t.Context(), Spec{Name: "neighbor", Fanouts: []int{3, 2}}, skewed(50, 5, 1))
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := s.Sample(&b, rng.New(1), []uint32{4, 9}); err != nil || len(b.Blocks) != 2 {
		t.Fatalf("%d blocks, error %v", len(b.Blocks), err)
	}
	b.SetTargets([]uint32{4}, []uint32{0})
	b.LossWeights = []float32{1}
	blocks := &b.Blocks[0]
	b.Reset()
	if len(b.Blocks) != 0 || cap(b.Blocks) < 2 || &b.Blocks[:1][0] != blocks || blocks.Indptr != nil || b.Seeds != nil || b.Targets != nil || b.LossWeights != nil || b.ID != (ID{}) {
		t.Errorf("after a reset: %+v", b)
	}
}

func TestNameOfABatch(t *testing.T) {
	for want, id := range map[string]ID{
		"train/e3/b17":    {Phase: "train", Epoch: 3, Batch: 17},
		"train/e3/b18":    {Phase: "train", Epoch: 3, Batch: 18, Of: 1},
		"test/e0/b17/m2":  {Phase: "test", Batch: 17, Micro: 2, Of: 3},
		"train/e12/b0/m0": {Phase: "train", Epoch: 12, Of: 2},
	} {
		if got := id.String(); got != want {
			t.Errorf("%+v is named %s, want %s", id, got, want)
		}
	}
}

func TestLayerOfNoNodes(t *testing.T) {
	_, err := New(t.Context(), Spec{Name: "ladies", Fanouts: []int{5, -1}}, skewed(50, 5, 1))
	if err == nil || !strings.Contains(err.Error(), "fan-out 2 is -1") {
		t.Error(err)
	}
}
