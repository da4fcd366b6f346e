package sampling

import (
	"context"
	"errors"
	"fmt"
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
func divide(t *testing.T, spec Spec, seed uint64, set *pieces.Set, all []*store.Piece) *Prepared {
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
	if err != nil {
		t.Fatal(err)
	}
	p, err := PrepareDivided(spec, &graph.Dataset{Graph: graph.Elsewhere(set.NumNodes(), edges)}, all[0].In.Weights != nil, d)
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
	for _, o := range old {
		for _, u := range ds.Graph.InNeighbors(o) {
			g.Indices = append(g.Indices, id[u])
		}
		if w := ds.Graph.Weights; w != nil {
			g.Weights = append(g.Weights, w[ds.Graph.Indptr[o]:ds.Graph.Indptr[o+1]]...)
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	return &graph.Dataset{Graph: g}
}

// Batches of a divided graph are those of the whole one with the same ids, bit for bit, whatever
// the number of pieces and the kernels.
func TestDividedBatchesAreThoseOfTheWholeGraph(t *testing.T) {
	ds, err := generate.RMAT(generate.RMATOptions{Scale: 13, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
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
	}
	byWeight := []Spec{
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true},
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true, Replace: true},
		{Name: "neighbor", Fanouts: []int{-1, 4}, Weighted: true},
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "khop", Layers: 2},
	}
	for _, c := range []struct {
		method string
		pieces int
	}{{"contiguous", 1}, {"contiguous", 2}, {"contiguous", 3}, {"hash", 5}, {"fennel", 8}} {
		for name, with := range map[string]struct {
			ds    *graph.Dataset
			specs []Spec
		}{"plain": {ds, specs}, "weighted": {&weighted, byWeight}} {
			t.Run(fmt.Sprintf("%s-%d-%s", c.method, c.pieces, name), func(t *testing.T) {
				set, all := cut(t, with.ds, c.method, "", c.pieces)
				whole := renumbered(with.ds, all)
				if c.method == "contiguous" && !slices.Equal(whole.Graph.Indices, with.ds.Graph.Indices) {
					t.Fatal("contiguous pieces are of other rows")
				}
				seeds := Order(allNodes(whole.Graph), 5, 0)[:300]
				for _, spec := range with.specs {
					want, err := Prepare(t.Context(), spec, whole, 1)
					if err != nil {
						t.Fatal(err)
					}
					got := divide(t, spec, 1, set, all)
					had, had512 := simd, simd512
					for kernels := range 3 {
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
	ds, err := generate.RMAT(generate.RMATOptions{Scale: 13, Edges: 60_000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	set, all := cut(t, ds, "contiguous", "", 4)
	rows := map[int]Rows{}
	for i, p := range all {
		if rows[i], err = PieceRows(set, i, p); err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewDrawers(t.Context(), spec, 1, set.Borders(), rows)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Owners: d}
	p, err := PrepareDivided(spec, &graph.Dataset{Graph: graph.Elsewhere(set.NumNodes(), ds.Graph.NumEdges())}, false, c)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// A layer is one round, with one question at most for each owner, for each of its rows once.
func TestDividedLayerIsOneRound(t *testing.T) {
	c, p := dividedCounted(t, Spec{Name: "neighbor", Fanouts: []int{10, 5, 3}})
	b := Batch{ID: ID{Phase: "train"}}
	if err := p.NewSampler().Sample(&b, b.ID.Key(1), []uint32{1, 5000, 77, 8000}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, k := range b.Blocks {
		rows += k.NumDst
	}
	if c.rounds.Load() != 3 || c.asks.Load() > 12 || c.nodes.Load() != int64(rows) {
		t.Errorf("%d rounds of %d questions for %d rows, want 3, at most 12, %d", c.rounds.Load(), c.asks.Load(), c.nodes.Load(), rows)
	}
}

// An answer that does not fit its question is an error.
func TestDividedAnswersAreChecked(t *testing.T) {
	owners, p := dividedCounted(t, Spec{Name: "neighbor", Fanouts: []int{10, 5}, EdgeIDs: true})
	for name, c := range map[string]struct {
		change func(a *Answer)
		want   string
	}{
		"too few rows":    {func(a *Answer) { a.Counts = a.Counts[1:] }, "to a question for"},
		"too few entries": {func(a *Answer) { a.Sources = a.Sources[1:] }, "to a question for"},
		"a large id":      {func(a *Answer) { a.Sources[0] = 8192 }, "node 8192 of 8192"},
		"no edges":        {func(a *Answer) { a.EdgeIDs = nil }, "0 ids of"},
		"a late edge":     {func(a *Answer) { a.EdgeIDs[0] = 1 << 40 }, "of 102464"},
		"an early edge":   {func(a *Answer) { a.EdgeIDs[0] = -1 }, "edges -1 to"},
	} {
		t.Run(name, func(t *testing.T) {
			owners.change = func(a []Answer) { c.change(&a[0]) }
			b := Batch{ID: ID{Phase: "train"}}
			err := p.NewSampler().Sample(&b, b.ID.Key(1), allNodes(&graph.Graph{Indptr: make([]int64, 101)}))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "piece 0") {
				t.Errorf("error %v, want one that says %q of piece 0", err, c.want)
			}
		})
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
		{Spec{Name: "full", Layers: 1}, "full: a batch is the whole graph"},
		{Spec{Name: "gns", Fanouts: []int{3}}, "gns: what it prepares"},
		{Spec{Name: "neighbor", Fanouts: []int{3}, Temporal: true}, "temporal: who owns"},
		{Spec{Name: "labor", Fanouts: []int{3}, Inductive: true}, "inductive: the graph"},
	} {
		_, err := NewDrawers(t.Context(), c.spec, 1, pieces.Borders{0, 5}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.spec.Name, err, c.want)
		}
	}
	ds, err := generate.RMAT(generate.RMATOptions{Scale: 11, Edges: 6_000, Seed: 3})
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
	for q, want := range map[string]Ask{"not here": {Owner: 1, Nodes: []uint32{1024}}, "is not with": {Nodes: []uint32{2}}, "hop 1 of 1": {Hop: 1}} {
		if err := d.Draw(t.Context(), []Ask{want}, a[:]); err == nil || !strings.Contains(err.Error(), q) {
			t.Errorf("%+v: error %v, want one that says %q", want, err, q)
		}
	}
}
