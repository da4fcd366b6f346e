package sampling

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
)

// cut divides ds, and opens the pieces.
func cut(t *testing.T, ds *graph.Dataset, method, edges string, n int) (*pieces.Set, []*store.Piece) {
	t.Helper()
	dir := t.TempDir()
	if err := store.Create(t.Context(), filepath.Join(dir, "store"), ds); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	set, err := pieces.Create(t.Context(), filepath.Join(dir, "set"), s, pieces.Options{Method: method, Edges: edges, Pieces: n, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var all []*store.Piece
	for i := range n {
		p, err := set.OpenPiece(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		all = append(all, p)
	}
	return set, all
}

// divide prepares spec over the pieces of a set.
func divide(t *testing.T, spec Spec, seed uint64, set *pieces.Set, all []*store.Piece, train []uint32) *Prepared {
	t.Helper()
	rows, edges := map[int]Rows{}, int64(0)
	for i, p := range all {
		r, err := PieceRows(set, i, p)
		if err != nil {
			t.Fatal(err)
		}
		rows[i] = r
		edges += p.In.NumEdges()
	}
	d, err := NewDrawers(t.Context(), spec, seed, set.Borders(), rows)
	if err == nil {
		err = d.GatherHere(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := PrepareDivided(t.Context(), spec, &graph.Dataset{Graph: graph.Elsewhere(set.NumNodes(), edges), Train: train}, all[0].In.Weights != nil, d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// renumbered is ds by the ids that a set's pieces have: rows keep their order.
func renumbered(ds *graph.Dataset, all []*store.Piece) *graph.Dataset {
	n := ds.Graph.NumNodes()
	old, id := make([]uint32, 0, n), make([]uint32, n)
	for _, p := range all {
		for v := range p.Masters {
			o := uint32(len(old))
			if p.Originals != nil {
				o = p.Originals[v]
			}
			id[o] = uint32(len(old))
			old = append(old, o)
		}
	}
	g := &graph.Graph{Indptr: make([]int64, 1, n+1)}
	whole := &graph.Dataset{Graph: g}
	for _, o := range old {
		if ds.NodeTimes != nil {
			whole.NodeTimes = append(whole.NodeTimes, ds.NodeTimes[o])
		}
		for _, u := range ds.Graph.InNeighbors(o) {
			g.Indices = append(g.Indices, id[u])
		}
		if w := ds.Graph.Weights; w != nil {
			g.Weights = append(g.Weights, w[ds.Graph.Indptr[o]:ds.Graph.Indptr[o+1]]...)
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	for _, v := range ds.Train {
		whole.Train = append(whole.Train, id[v])
	}
	return whole
}

// Batches of a divided graph are those of the whole one with the same ids, bit for bit, whatever
// the number of pieces and the kernels.
func TestDividedBatchesAreThoseOfTheWholeGraph(t *testing.T) {
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 13, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	ds.Fingerprint = ""
	for v := range ds.Graph.NumNodes() {
		ds.NodeTimes = append(ds.NodeTimes, int64(v*53%101)-40)
		if v%5 != 1 {
			ds.Train = append(ds.Train, uint32(v))
		}
	}
	weighted := *ds
	g := *ds.Graph
	g.Weights = make([]float32, g.NumEdges())
	for e := range g.Weights {
		g.Weights[e] = float32(e * 31 % 97)
	}
	weighted.Graph, weighted.Fingerprint = &g, ""
	specs := []Spec{
		{Name: "neighbor", Fanouts: []int{10, 5}},
		{Name: "neighbor", Fanouts: []int{3, -1, 2}, EdgeIDs: true},
		{Name: "neighbor", Fanouts: []int{10, 5}, Replace: true},
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "labor", Fanouts: []int{3, 40}, Dependency: 4, EdgeIDs: true},
		{Name: "khop", Layers: 2},
		{Name: "neighbor", Fanouts: []int{4, 3}, Temporal: true, EdgeIDs: true},
		{Name: "khop", Layers: 2, Temporal: true},
		{Name: "walk", Layers: 2, Roots: 30, WalkLength: 3, EdgeIDs: true},
		{Name: "walk", Layers: 1, Roots: 40, WalkLength: 2, Clip: 8},
		{Name: "pinsage", Fanouts: []int{4, 3}, Walks: 5, WalkLength: 4, Restart: 0.2},
		{Name: "fastgcn", Fanouts: []int{60, 50}, EdgeIDs: true},
		{Name: "node", Layers: 2, Budget: 120},
		{Name: "gns", Fanouts: []int{5, 4}, CacheFraction: 0.1},
		{Name: "gns", Fanouts: []int{5, 4}, CacheFraction: 0.2, CacheBy: "walks"},
		{Name: "cluster", Layers: 2, Clusters: 40, PartitionBy: "contiguous", PerBatch: 3, EdgeIDs: true},
		{Name: "cluster", Layers: 1, PartitionBy: "pieces"},
		{Name: "cluster", Layers: 2, Clusters: 30, PartitionBy: "pieces", PerBatch: 2, Boundary: true},
		{Name: "gns", Fanouts: []int{5, 4}, CacheFraction: 0.1, CacheOnly: true, Normalize: "degree", EdgeIDs: true},
	}
	byWeight := []Spec{
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true},
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true, Replace: true},
		{Name: "neighbor", Fanouts: []int{-1, 4}, Weighted: true},
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "khop", Layers: 2},
		{Name: "walk", Layers: 1, Roots: 30, WalkLength: 3},
	}
	r := rand.New(rand.NewPCG(1, 9))
	for _, c := range []struct {
		method string
		pieces int
	}{{"contiguous", 1}, {"contiguous", 2}, {"contiguous", 3}, {"hash", 5}, {"fennel", 8}} {
		for _, with := range []struct {
			name  string
			ds    *graph.Dataset
			specs []Spec
		}{{"plain", ds, specs}, {"weighted", &weighted, byWeight}} {
			t.Run(fmt.Sprintf("%s-%d-%s", c.method, c.pieces, with.name), func(t *testing.T) {
				set, all := cut(t, with.ds, c.method, "", c.pieces)
				whole := renumbered(with.ds, all)
				if c.method == "contiguous" && !slices.Equal(whole.Graph.Indices, with.ds.Graph.Indices) {
					t.Fatal("contiguous pieces are of other rows")
				}
				seeds := Order(allNodes(whole.Graph), 5, 0)[:300]
				for k, spec := range with.specs {
					if first := r.IntN(3); (k+first)%3 != 0 && c.method != "hash" {
						continue // all on pieces that reorder rows, a third of them on others
					}
					got := divide(t, spec, 1, set, all, whole.Train)
					var options []Option
					if spec.PartitionBy == "pieces" {
						spec.Clusters = max(spec.Clusters, c.pieces)
						checkClusters(t, set, got.Partition(), spec.Clusters)
						options = append(options, WithPartition(got.Partition()))
					}
					want, err := Prepare(t.Context(), spec, whole, 1, options...)
					if err != nil {
						t.Fatal(err)
					}
					if w, ok := want.factory().(*layerwise); ok {
						if !slices.Equal(w.drawer.(*fastGCN).q, got.factory().(*layerwise).drawer.(*fastGCN).q) {
							t.Error("fastgcn: nodes have other chances to be drawn")
						}
					}
					had, had512 := simd, simd512
					for kernels := range 3 {
						if kernels < 2 && spec.Name != "labor" {
							continue
						}
						setSIMD(had && kernels > 0)
						setSIMD512(had512 && kernels > 1)
						a, b := want.NewSampler(), got.NewSampler()
						for i := range 3 {
							var x, y Batch
							x.ID = ID{Phase: "train", Batch: 4 * i}
							y.ID = x.ID
							if err := errors.Join(a.Sample(&x, x.ID.Key(7), seeds[50*i:50*i+50]), b.Sample(&y, y.ID.Key(7), seeds[50*i:50*i+50])); err != nil {
								t.Fatal(err)
							}
							if want.BatchesPerEpoch(300, 50, 1) != got.BatchesPerEpoch(300, 50, 1) || !slices.Equal(x.Targets, y.Targets) || x.NumEdges() == 0 {
								t.Errorf("%+v with kernels %d: batch %d has other targets, or an epoch has other batches", spec, kernels, i)
							}
							if !reflect.DeepEqual(x.Seeds, y.Seeds) || !reflect.DeepEqual(x.Blocks, y.Blocks) {
								t.Errorf("%+v with kernels %d: batch %d is another", spec, kernels, i)
							}
						}
					}
					setSIMD(had)
					setSIMD512(had512)
				}
			})
		}
	}
}

// checkClusters reports clusters of nodes of several pieces, and pieces whose clusters are not about as many as their share.
func checkClusters(t *testing.T, set *pieces.Set, part []uint32, clusters int) {
	t.Helper()
	of := map[uint32]int{}
	b := set.Borders()
	for i := range len(b) - 1 {
		here := 0
		for _, c := range part[b[i]:b[i+1]] {
			if was, is := of[c]; is && was != i {
				t.Fatalf("cluster %d is of pieces %d and %d", c, was, i)
			} else if !is {
				of[c], here = i, here+1
			}
		}
		want := 1 + float64(clusters-len(b)+1)*float64(b[i+1]-b[i])/float64(b.Nodes())
		if b[i+1] > b[i] && math.Abs(float64(here)-want) > 1 {
			t.Errorf("piece %d has %d of %d clusters, want about %.1f", i, here, clusters, want)
		}
	}
}

// counted are owners whose rounds and questions are counted.
type counted struct {
	Owners
	rounds, asks, nodes atomic.Int64
	change              func([]Answer)
}

func (c *counted) Draw(ctx context.Context, asks []Ask, answers []Answer) error {
	c.rounds.Add(1)
	c.asks.Add(int64(len(asks)))
	owners := map[int]bool{}
	for _, q := range asks {
		owners[q.Owner] = true
		c.nodes.Add(int64(len(q.Nodes)))
	}
	if len(owners) != len(asks) {
		return fmt.Errorf("%d questions to %d owners", len(asks), len(owners))
	}
	err := c.Owners.Draw(ctx, asks, answers)
	if c.change != nil {
		c.change(answers)
	}
	return err
}

// dividedCounted is a sampler of a divided graph whose owners are counted.
func dividedCounted(t *testing.T, spec Spec) (*counted, *Prepared) {
	t.Helper()
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 13, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	ds.NodeTimes, ds.Fingerprint = make([]int64, ds.Graph.NumNodes()), ""
	set, all := cut(t, ds, "contiguous", "", 4)
	rows := map[int]Rows{}
	for i, p := range all {
		if rows[i], err = PieceRows(set, i, p); err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewDrawers(t.Context(), spec, 1, set.Borders(), rows)
	if err == nil {
		err = d.GatherHere(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Owners: d}
	p, err := PrepareDivided(t.Context(), spec, &graph.Dataset{Graph: graph.Elsewhere(set.NumNodes(), ds.Graph.NumEdges())}, false, c)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// A layer is one round, and a step of walks, and a subgraph's edges, with one question at most for each owner.
func TestDividedRounds(t *testing.T) {
	for _, c := range []struct {
		spec   Spec
		rounds int
	}{
		{Spec{Name: "neighbor", Fanouts: []int{10, 5, 3}}, 3},
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}, Temporal: true}, 2},
		{Spec{Name: "pinsage", Fanouts: []int{5, 4}, Walks: 3, WalkLength: 4}, 2 * 4},
		{Spec{Name: "walk", Layers: 3, Roots: 20, WalkLength: 4}, 4 + 1},
		{Spec{Name: "node", Layers: 3, Budget: 50}, 1},
		{Spec{Name: "fastgcn", Fanouts: []int{50, 40, 30}}, 3},
		{Spec{Name: "gns", Fanouts: []int{5, 4}}, 2},
		{Spec{Name: "cluster", Layers: 3}, 1},
		{Spec{Name: "cluster", Layers: 3, Boundary: true}, 3},
	} {
		o, p := dividedCounted(t, c.spec)
		var seeds []uint32 // more than a group has
		for v := uint32(1); v < 8192; v += 170 {
			seeds = append(seeds, v)
		}
		o.rounds.Store(0)
		o.asks.Store(0)
		o.nodes.Store(0)
		b := Batch{ID: ID{Phase: "train"}}
		if err := p.NewSampler().Sample(&b, b.ID.Key(1), seeds); err != nil {
			t.Fatal(err)
		}
		if o.rounds.Load() != int64(c.rounds) || o.asks.Load() > int64(4*c.rounds) {
			t.Errorf("%s: %d rounds of %d questions, want %d of at most 4", c.spec.Name, o.rounds.Load(), o.asks.Load(), c.rounds)
		}
		rows := int64(0)
		for _, k := range b.Blocks {
			rows += int64(k.NumDst)
		}
		if c.spec.byRow() && o.nodes.Load() != rows {
			t.Errorf("%s: %d rows were asked for, of %d", c.spec.Name, o.nodes.Load(), rows)
		}
	}
}

// An answer that does not fit its question is an error.
func TestDividedAnswersAreChecked(t *testing.T) {
	for _, s := range []struct {
		spec    Spec
		changes map[string]func(a *Answer)
	}{
		{Spec{Name: "neighbor", Fanouts: []int{10, 5}, EdgeIDs: true}, map[string]func(a *Answer){
			"to a question for 100 rows":      func(a *Answer) { a.Counts = a.Counts[1:] },
			"of which it lists":               func(a *Answer) { a.Sources = a.Sources[1:] },
			"node 8192 of 8192":               func(a *Answer) { a.Sources[0] = 8192 },
			"0 ids of":                        func(a *Answer) { a.EdgeIDs = nil },
			"edges 0 to 1099511627776 of 102": func(a *Answer) { a.EdgeIDs[0], a.EdgeIDs[1] = 1<<40, 0 },
			"edges -1 to":                     func(a *Answer) { a.EdgeIDs[0] = -1 },
		}},
		{Spec{Name: "pinsage", Fanouts: []int{3}}, map[string]func(a *Answer){
			"2 entries of a row": func(a *Answer) {
				i := slices.Index(a.Counts, 1)
				a.Counts[i+1+slices.Index(a.Counts[i+1:], 1)], a.Counts[i] = 2, 0
			},
		}},
		{Spec{Name: "gns", Fanouts: []int{5}}, map[string]func(a *Answer){
			"weights of": func(a *Answer) { a.Weights = nil },
		}},
		{Spec{Name: "fastgcn", Fanouts: []int{300}}, map[string]func(a *Answer){
			"the lengths of":   func(a *Answer) { a.Degrees = a.Degrees[1:] },
			"not one of those": func(a *Answer) { a.Sources[0] = 8190 },
		}},
	} {
		owners, p := dividedCounted(t, s.spec)
		for want, change := range s.changes {
			owners.change = func(a []Answer) { change(&a[0]) }
			b := Batch{ID: ID{Phase: "train"}}
			err := p.NewSampler().Sample(&b, b.ID.Key(1), allNodes(&graph.Graph{Indptr: make([]int64, 101)}))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "piece 0") {
				t.Errorf("%s: error %v, want one that says %q of piece 0", s.spec.Name, err, want)
			}
		}
	}
}

// What a divided graph cannot be sampled by is refused by name.
func TestDividedRefuses(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "frontier", Layers: 1, Frontier: 3, Budget: 4}, "frontier: what it draws next"},
		{Spec{Name: "ladies", Fanouts: []int{3}}, "ladies: it draws among all"},
		{Spec{Name: "walk", Layers: 1, Roots: 3, WalkLength: 4, Normalization: 5}, "normalization: how"},
		{Spec{Name: "full", Layers: 1}, "full: a batch is the whole graph"},
		{Spec{Name: "cluster", Layers: 1, Clusters: 9, PartitionBy: "metis"}, "partition-by metis: it"},
		{Spec{Name: "cluster", Layers: 1, Clusters: 1}, "1 clusters of 2 pieces"},
		{Spec{Name: "labor", Fanouts: []int{3}, Inductive: true}, "inductive: the graph"},
	} {
		_, err := NewDrawers(t.Context(), c.spec, 1, pieces.Borders{0, 1024, 1029}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.spec.Name, err, c.want)
		}
	}
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 11, Edges: 6_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	set, all := cut(t, ds, "contiguous", pieces.EdgesAtSource, 2)
	if _, err := PieceRows(set, 0, all[0]); err == nil || !strings.Contains(err.Error(), "--edges target") {
		t.Errorf("rows in several pieces: error %v", err)
	}
	d, err := NewDrawers(t.Context(), Spec{Name: "neighbor", Fanouts: []int{3}}, 1, pieces.Borders{0, 1024, 2048}, map[int]Rows{0: {Graph: fromRows([]uint32{0}, []uint32{1})}})
	if err != nil {
		t.Fatal(err)
	}
	var a [1]Answer
	for q, want := range map[string]Ask{"not here": {Owner: 1, Nodes: []uint32{1024}}, "is not with": {Nodes: []uint32{2}}, "hop 1 of 1": {Hop: 1}, "of kind 4": {Want: wants}, "0 values beside 1": {Want: WantOne, Nodes: []uint32{0}}} {
		if err := d.Draw(t.Context(), []Ask{want}, a[:]); err == nil || !strings.Contains(err.Error(), q) {
			t.Errorf("%+v: error %v, want one that says %q", want, err, q)
		}
	}
}

// What owners tell of a cache makes one of their own nodes, or an error.
func FuzzCachesApart(f *testing.F) {
	f.Add([]byte{5, 3, 7, 200}, []byte{0, 0, 0, 0, 0, 0, 240, 63}, []byte{3, 0, 0, 0, 0, 0, 128, 63})
	// Counts of which the cache's last key has the highest bits of the near ones; the second tells a node of another piece.
	of := append(binary.AppendUvarint(nil, 900), 20)
	key := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5))
	for _, u := range []byte{3, 4} {
		f.Add(of, bytes.Repeat(key, 10), []byte{3, 0, 0, 0, 0, 0, 128, 63, 5, u, 0, 0, 0, 0, 128, 63})
	}
	f.Fuzz(func(t *testing.T, counts, near, taken []byte) {
		b := pieces.Borders{0, 1024, 1500}
		spec := Spec{Name: "gns", Fanouts: []int{3}}
		c := spec.cachesOf(b.Nodes(), 1)
		c.apart = &apart{nodes: b.Nodes(), first: b, ask: func(_ context.Context, name string) ([][]byte, error) {
			switch {
			case strings.HasSuffix(name, "counts"):
				return [][]byte{counts, nil}, nil
			case strings.Contains(name, "near"):
				return [][]byte{near, near}, nil
			}
			return [][]byte{taken, nil}, nil
		}}
		drawn, err := c.Drawn(t.Context(), 0)
		if err != nil {
			return
		}
		for i, u := range drawn.Nodes {
			if int(u) >= 1024 || drawn.Slot(u) != i || !drawn.Contains(u) {
				t.Errorf("node %d is number %d of %v", u, i, drawn.Nodes)
			}
		}
	})
}
