package sampling

import (
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Runs are repeatable to the bit by every later version: whoever changes what a
// sampler draws raises its version in a run's identity, and these digests of its
// batches with them.
func TestBatchesKeepTheirBits(t *testing.T) {
	ds, err := graph.RMAT(graph.RMATOptions{Scale: 12, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	seeds := Order(allNodes(ds.Graph), 5, 0)[:300]
	for _, c := range []struct {
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
	} {
		t.Run(fmt.Sprint(c.spec.Name, c.spec.Fanouts), func(t *testing.T) {
			s, h := mustPrepare(t, c.spec, ds.Graph).NewSampler(), fnv.New64a()
			var b Batch
			for i := range 6 {
				b.ID = ID{Phase: "train", Batch: i}
				if err := s.Sample(&b, b.ID.Key(7), seeds[50*i:50*i+50]); err != nil {
					t.Fatal(err)
				}
				for _, blk := range b.Blocks {
					fmt.Fprintln(h, blk.NumDst, blk.NumSrc, blk.Indptr, blk.Indices, blk.SrcIDs)
					for _, w := range blk.Weights {
						fmt.Fprintln(h, math.Float32bits(w))
					}
				}
			}
			if got := fmt.Sprintf("%016x", h.Sum64()); got != c.want {
				t.Errorf("the batches' digest is %s, and was %s", got, c.want)
			}
		})
	}
}
