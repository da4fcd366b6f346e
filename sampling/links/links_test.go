package links_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
)

// pairOf names a pair of nodes, whichever comes first.
func pairOf(u, v uint32) [2]uint32 { return [2]uint32{min(u, v), max(u, v)} }

func split(t *testing.T, g *graph.Graph) (*links.Links, *graph.Graph) {
	t.Helper()
	l, kept, err := links.Split(g)
	if err != nil {
		t.Fatal(err)
	}
	return l, kept
}

// weighted is the built-in graph with loops and a weight of its own on every edge.
func weighted(t *testing.T) *graph.Graph {
	t.Helper()
	var src, dst []uint32
	whole := generate.Builtin().Graph
	for v := range uint32(whole.NumNodes()) {
		for _, u := range whole.InNeighbors(v) {
			src, dst = append(src, u), append(dst, v)
		}
		if v%7 == 0 {
			src, dst = append(src, v), append(dst, v)
		}
	}
	weights := make([]float32, len(src))
	for i := range weights {
		weights[i] = float32(i)
	}
	g, err := graph.FromEdges(whole.NumNodes(), src, dst, weights)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// What is held out is no edge of the graph that is trained on, in either
// direction; everything else is, with its weight.
func TestSplit(t *testing.T) {
	g := weighted(t)
	l, kept := split(t, g)
	set := map[[2]uint32]links.Set{}
	for _, s := range []links.Set{links.Train, links.Valid, links.Test} {
		if !slices.IsSorted(l.Of(s)) {
			t.Errorf("split %d is out of order", s)
		}
		for _, i := range l.Of(s) {
			u, v := l.Ends(i)
			set[pairOf(u, v)] = s
		}
	}
	if len(set) != l.Len() || len(l.Of(links.Train))+len(l.Of(links.Valid))+len(l.Of(links.Test)) != l.Len() {
		t.Fatalf("%d pairs, %d of them in splits", l.Len(), len(set))
	}
	// Binomial: within 4 standard deviations, so wrong once in 16,000 seeds.
	n := float64(l.Len())
	for s, share := range []float64{0.85, 0.05, 0.10} {
		if got := len(l.Of(links.Set(s))); math.Abs(float64(got)-share*n) > 4*math.Sqrt(n*share*(1-share)) {
			t.Errorf("split %d has %d of %v links", s, got, n)
		}
	}
	type edge struct {
		u, v   uint32
		weight float32
	}
	edges := func(g *graph.Graph, keep func(u, v uint32) bool) (out []edge) {
		for v := range uint32(g.NumNodes()) {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				if keep(g.Indices[e], v) {
					out = append(out, edge{g.Indices[e], v, g.Weights[e]})
				}
			}
		}
		return out
	}
	if err := kept.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := edges(g, func(u, v uint32) bool { return u == v || set[pairOf(u, v)] == links.Train })
	got := edges(kept, func(uint32, uint32) bool { return true })
	if !slices.Equal(got, want) || len(got) == len(g.Indices) {
		t.Errorf("%d edges are left, not %d of %d", len(got), len(want), len(g.Indices))
	}
	for v := range uint32(g.NumNodes()) {
		for _, u := range g.InNeighbors(v) {
			if l.Joined(u, v) != (u != v) || l.Joined(v, u) != (u != v) {
				t.Fatalf("%d and %d are joined: %v", u, v, l.Joined(u, v))
			}
		}
	}
	if _, _, err := links.Split(&graph.Graph{Indptr: []int64{0, 1, 1}, Indices: []uint32{0}}); err == nil {
		t.Error("a loop is something to learn from")
	}
}

// A batch holds its links and the negatives, each node once, and none of its own
// links as an edge, unless it may; the sampler's graph stays as it is.
func TestSampler(t *testing.T) {
	whole := generate.Builtin()
	l, kept := split(t, whole.Graph)
	ds := *whole
	ds.Graph = kept
	hash, err := ds.ContentHash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range links.Samplers() {
		spec := sampling.Spec{Name: name, Fanouts: []int{-1, 3}}
		if name == "khop" {
			spec = sampling.Spec{Name: name, Layers: 2}
		}
		p, err := sampling.Prepare(t.Context(), spec, &ds, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, keep := range []bool{false, true} {
			s, b := l.NewSampler(p.NewSampler(), 2, keep), new(sampling.Batch)
			own := 0
			for i := range 5 {
				seeds := l.Of(links.Train)[100*i : 100*i+100]
				b.Reset()
				b.ID = sampling.ID{Phase: "train", Batch: i}
				if err := s.Sample(b, b.ID.Key(1), seeds); err != nil {
					t.Fatal(err)
				}
				if len(b.Seeds) != 2*3*len(seeds) || len(b.Targets) != len(b.Seeds) {
					t.Fatalf("%d ends, %d rows of %d links", len(b.Seeds), len(b.Targets), len(seeds))
				}
				last := &b.Blocks[len(b.Blocks)-1]
				for k, v := range b.Seeds {
					if got := last.SrcIDs[b.Targets[k]]; got != v || int(b.Targets[k]) >= last.NumDst {
						t.Fatalf("end %d is node %d and not %d", k, got, v)
					}
				}
				targets := map[[2]uint32]bool{}
				for k := 0; k < len(b.Seeds); k += 2 {
					u, v := b.Seeds[k], b.Seeds[k+1]
					if positive := k/2 < len(seeds); l.Joined(u, v) != positive || u == v {
						t.Fatalf("link %d of %d, %d and %d, is joined: %v", k/2, len(seeds), u, v, !positive)
					} else if positive {
						targets[pairOf(u, v)] = true
					}
				}
				own += entries(t, b, kept, targets)
			}
			if (own > 0) != keep {
				t.Errorf("%s, keep %v: %d entries are links of their own batch", name, keep, own)
			}
			if now, err := ds.ContentHash(t.Context()); err != nil || now != hash {
				t.Errorf("%s: sampling changed the graph", name)
			}
		}
	}
	p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{2}}, &ds, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := new(sampling.Batch)
	b.ID = sampling.ID{Phase: "train"}
	if err := l.NewSampler(p.NewSampler(), 1, false).Sample(b, 1, []uint32{uint32(l.Len())}); err == nil {
		t.Error("a link that is not there was sampled")
	}
}

// entries checks that the blocks hold edges of g, and counts those in targets.
func entries(t *testing.T, b *sampling.Batch, g *graph.Graph, targets map[[2]uint32]bool) (own int) {
	t.Helper()
	for j := range b.Blocks {
		k := &b.Blocks[j]
		if int(k.Indptr[k.NumDst]) != len(k.Indices) || len(k.Indices) == 0 {
			t.Fatalf("row pointers end at %d of %d entries", k.Indptr[k.NumDst], len(k.Indices))
		}
		for v := range k.NumDst {
			for _, u := range k.Indices[k.Indptr[v]:k.Indptr[v+1]] {
				if targets[pairOf(k.SrcIDs[u], k.SrcIDs[v])] {
					own++
				}
				if !slices.Contains(g.InNeighbors(k.SrcIDs[v]), k.SrcIDs[u]) {
					t.Fatalf("block %d: %d is no neighbour of %d", j, k.SrcIDs[u], k.SrcIDs[v])
				}
			}
		}
	}
	return own
}

// Where nearly all pairs are joined there are fewer negatives, and no endless
// search.
func TestNoNegatives(t *testing.T) {
	triangle := func(nodes int) *links.Links {
		var src, dst []uint32
		for _, p := range [][2]uint32{{0, 1}, {0, 2}, {1, 2}} {
			src, dst = append(src, p[0]), append(dst, p[1])
		}
		g, err := graph.FromEdges(nodes, src, dst, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, _ := split(t, g)
		return l
	}
	if got := triangle(3).AppendNegatives(nil, rng.New(1), 0, 3); len(got) != 0 {
		t.Errorf("a triangle has the negatives %v", got)
	}
	if got := triangle(4).AppendNegatives(nil, rng.New(1), 0, 2); len(got) != 4 || got[1] != 3 || got[3] != 3 { // node 3 is alone
		t.Errorf("negatives %v", got)
	}
}
