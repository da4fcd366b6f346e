package sampling

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

func temporalGraph() (*graph.Graph, Times) {
	g := skewed(900, 120, 4)
	t := Times{Node: make([]int64, g.NumNodes()), Edge: make([]int64, g.NumEdges())}
	for v := range t.Node {
		t.Node[v] = int64(rng.New(1).Uintn(uint64(v), 9)) - 4
	}
	for e := range t.Edge {
		t.Edge[e] = int64(rng.New(2).Uintn(uint64(e), 9)) - 4
	}
	return g, t
}

// Every path from a seed uses edges no newer than the seed only, and every row
// has as many of them as there are, up to the fan-out.
func TestTemporal(t *testing.T) {
	g, times := temporalGraph()
	seeds := Order(allNodes(g), 1, 0)[:60]
	for _, edges := range []bool{true, false} {
		tm := times
		if !edges {
			tm.Edge = nil
		}
		p, err := Prepare(t.Context(), Spec{Name: "neighbor", Fanouts: []int{6, 4}, Temporal: true, EdgeIDs: true}, &graph.Dataset{Graph: g}, 1, WithTimes(tm))
		if err != nil {
			t.Fatal(err)
		}
		s := p.NewSampler()
		var b Batch
		for round := range 3 {
			if err := s.Sample(&b, rng.New(3, uint64(round)), seeds); err != nil {
				t.Fatal(err)
			}
			when := make([]int64, b.NumInputs())
			known := make([]bool, b.NumInputs())
			for i, v := range seeds {
				when[i], known[i] = tm.Node[v], true
			}
			for hop, k := range []int{6, 4} {
				blk := &b.Blocks[1-hop]
				for r, v := range blk.SrcIDs[:blk.NumDst] {
					fits := 0
					for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
						if edges && tm.Edge[e] <= when[r] || !edges && tm.Node[g.Indices[e]] <= when[r] {
							fits++
						}
					}
					row := blk.EdgeIDs[blk.Indptr[r]:blk.Indptr[r+1]]
					if len(row) != min(fits, k) {
						t.Fatalf("node %d at %d: %d entries, want %d", v, when[r], len(row), min(fits, k))
					}
					for i, e := range row {
						u := blk.Indices[blk.Indptr[r]+int64(i)]
						if g.Indices[e] != blk.SrcIDs[u] || e < g.Indptr[v] || e >= g.Indptr[v+1] {
							t.Fatalf("entry %d of node %d is not edge %d", i, v, e)
						}
						if edges && tm.Edge[e] > when[r] || !edges && tm.Node[g.Indices[e]] > when[r] {
							t.Fatalf("node %d at %d: edge %d is newer", v, when[r], e)
						}
						if known[u] && when[u] != when[r] {
							t.Fatalf("local id %d serves times %d and %d", u, when[u], when[r])
						}
						when[u], known[u] = when[r], true
					}
					slices.Sort(row)
					if len(slices.Compact(row)) != min(fits, k) {
						t.Fatalf("node %d: an edge was taken twice", v)
					}
				}
			}
			pairs := make(map[[2]int64]bool)
			for i, u := range b.Inputs() {
				pairs[[2]int64{int64(u), when[i]}] = true
			}
			if len(pairs) != b.NumInputs() {
				t.Fatalf("%d local ids for %d pairs of node and time", b.NumInputs(), len(pairs))
			}
		}
		sameBits(t, p, allNodes(g), 100)
		allocatesNothing(t, p, seeds)
	}
}

func TestTemporalErrors(t *testing.T) {
	g, times := temporalGraph()
	spec := Spec{Name: "neighbor", Fanouts: []int{3}, Temporal: true}
	for _, c := range []struct {
		spec Spec
		opts []Option
		want string
	}{
		{spec, nil, "WithTimes"},
		{spec, []Option{WithTimes(Times{Node: times.Node[1:]})}, "times for 900 nodes"},
		{spec, []Option{WithTimes(Times{Node: times.Node, Edge: times.Edge[1:]})}, "edges"},
		{Spec{Name: "neighbor", Fanouts: []int{3}, Temporal: true, Replace: true}, []Option{WithTimes(times)}, "uniformly without replacement"},
		{Spec{Name: "labor", Fanouts: []int{3}, Temporal: true}, []Option{WithTimes(times)}, "temporal"},
	} {
		if _, err := Prepare(t.Context(), c.spec, &graph.Dataset{Graph: g}, 1, c.opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
	p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g}, 1, WithTimes(times))
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err := p.NewSampler().Sample(&b, 1, []uint32{2, 2}); err == nil {
		t.Error("duplicate seeds were accepted")
	}
}

// The data set's own times serve where none are given.
func TestTimesOfTheDataset(t *testing.T) {
	g, times := temporalGraph()
	spec := Spec{Name: "neighbor", Fanouts: []int{3, 3}, Temporal: true}
	want, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g}, 1, WithTimes(times))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, NodeTimes: times.Node, EdgeTimes: times.Edge}, 1)
	if err != nil {
		t.Fatal(err)
	}
	seeds := allNodes(g)[:10]
	var a, b Batch
	if err := errors.Join(want.NewSampler().Sample(&a, 1, seeds), got.NewSampler().Sample(&b, 1, seeds)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a.Blocks, b.Blocks) {
		t.Error("the blocks differ")
	}
}
