package pieces

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// What a piece sends to another is what that one reads of it, and between them they name every pair of
// a master and a piece that it has an edge to, once.
func TestHalo(t *testing.T) {
	t.Parallel()
	for i, method := range Methods() {
		ds := random(7000, 30000, uint64(i), false)
		src := create(t, ds)
		dir := filepath.Join(t.TempDir(), "set")
		s, err := Create(t.Context(), dir, src, Options{Method: method, Pieces: 1 + i%4, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		in, _, original := whole(t, s, ds)
		table := s.Borders().Table()
		want := map[[2]uint32]bool{} // a master by the graph's id, and a piece
		id := make([]uint32, len(original))
		for v, o := range original {
			id[o] = uint32(v)
		}
		for v, row := range in {
			for _, e := range row {
				if q := table[id[v]/Border]; table[id[e.source]/Border] != q {
					want[[2]uint32{e.source, uint32(q)}] = true
				}
			}
		}
		sum, err := s.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []int64
		var classes [2][]graph.DegreeClass
		for _, row := range in {
			for _, e := range row {
				out = append(out, int64(e.source))
			}
		}
		slices.Sort(out)
		for v, row := range in {
			at, _ := slices.BinarySearch(out, int64(v))
			next, _ := slices.BinarySearch(out, int64(v)+1)
			for i, n := range []int{len(row), next - at} {
				k := 0
				for n>>k > 0 {
					k++
				}
				for len(classes[i]) <= k {
					classes[i] = append(classes[i], graph.DegreeClass{})
				}
				classes[i][k].Nodes++
				classes[i][k].Edges += int64(n)
			}
		}
		if !slices.Equal(sum.InDegrees, classes[0]) || !slices.Equal(sum.OutDegrees, classes[1]) || slices.Equal(classes[0], classes[1]) {
			t.Errorf("%s: degrees %v and %v, want %v", method, sum.InDegrees, sum.OutDegrees, classes)
		}
		active := map[uint32]bool{} // by the graph's ids, of a layer's destinations
		for _, v := range ds.Train {
			active[v] = true
		}
		for before := range activeLayers + 1 {
			counts := make([][]int64, len(s.Pieces()))
			for i := range counts {
				counts[i] = make([]int64, len(s.Pieces()))
			}
			pairs, next := map[[2]uint32]bool{}, maps.Clone(active)
			for v := range active {
				for _, e := range in[v] {
					next[e.source] = true
					if pair := [2]uint32{e.source, uint32(table[id[v]/Border])}; want[pair] && !pairs[pair] {
						pairs[pair] = true
						counts[table[id[v]/Border]][table[id[e.source]/Border]]++
					}
				}
			}
			if got := sum.ActiveReads(before); before < activeLayers && !reflect.DeepEqual(got, counts) || before == len(sum.Active) && before == activeLayers && !reflect.DeepEqual(got, sum.Reads) {
				t.Errorf("%s: training reads in the layer %d before the last %v, want %v, and at all %v", method, before, got, counts, sum.Reads)
			}
			if before == 0 && len(want) > 0 && (len(pairs) == 0 || len(pairs) == len(want)) {
				t.Errorf("%s: %d of %d pairs are read for training nodes", method, len(pairs), len(want))
			}
			active = next
		}
		sends, reads := map[[2]uint32]bool{}, map[[2]uint32]bool{}
		for i := range s.Pieces() {
			p, err := s.OpenPiece(i)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			h, err := s.Halo(p)
			if err != nil {
				t.Fatal(err)
			}
			for q := range s.Pieces() {
				if got, want := sum.Reads[i][q], int64(h.Reads[q+1]-h.Reads[q]); got != want {
					t.Errorf("%s: in the summary piece %d reads %d masters of piece %d, want %d", method, i, got, q, want)
				}
				if !slices.IsSorted(h.Sends[q]) {
					t.Fatalf("%s: piece %d sends to %d out of order", method, i, q)
				}
				for _, u := range h.Sends[q] {
					sends[[2]uint32{original[uint32(p.Of.First)+u], uint32(q)}] = true
				}
				for _, u := range p.Sources[h.Reads[q]:h.Reads[q+1]] {
					if int(table[u/Border]) != q {
						t.Fatalf("%s: piece %d reads node %d of piece %d, which is not its master", method, i, u, q)
					}
					reads[[2]uint32{original[u], uint32(i)}] = true
				}
			}
			if h.Reads[len(s.Pieces())] != len(p.Sources) {
				t.Fatalf("%s: piece %d reads %d of %d nodes", method, i, h.Reads[len(s.Pieces())], len(p.Sources))
			}
		}
		for _, got := range []map[[2]uint32]bool{sends, reads} {
			if len(got) != len(want) {
				t.Fatalf("%s: %d pairs, want %d", method, len(got), len(want))
			}
			for pair := range want {
				if !got[pair] {
					t.Fatalf("%s: pair %v is missing", method, pair)
				}
			}
		}
	}
}

// Where edges lie elsewhere a piece has the rows of its masters and of other pieces' nodes, no row of the latter without edges; between them
// pieces have every edge once, none without masters has any, and each knows whose the nodes are that it names.
func TestHaloElsewhere(t *testing.T) {
	t.Parallel()
	for i, edges := range []string{EdgesAtSource, EdgesOnGrid, EdgesOnGrid} {
		ds := random(7000, 20000, uint64(i), i > 0)
		count := []int{2, 4, 8}[i] // of which seven have nodes
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), create(t, ds), Options{Method: "contiguous", Edges: edges, Pieces: count})
		if err != nil {
			t.Fatal(err)
		}
		table, b := s.Borders().Table(), s.Borders()
		type edge struct {
			source, target uint32
			weight         float32
		}
		want, got := map[edge]int{}, map[edge]int{}
		add := func(to map[edge]int, g *graph.Graph, e int64, source, target uint32) {
			k := edge{source, target, 0}
			if g.Weights != nil {
				k.weight = g.Weights[e]
			}
			to[k]++
		}
		for v := range uint32(7000) {
			for e := ds.Graph.Indptr[v]; e < ds.Graph.Indptr[v+1]; e++ {
				add(want, ds.Graph, e, ds.Graph.Indices[e], v)
			}
		}
		elsewhere := 0
		for q := range count {
			p, err := s.OpenPiece(q)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			h, err := s.Halo(p)
			if err != nil {
				t.Fatal(err)
			}
			if h.Sends != nil || h.In.NumNodes() != p.Masters || h.Partial.NumNodes() != len(p.Targets) || p.Masters == 0 && p.In.NumEdges() > 0 {
				t.Fatalf("%s: piece %d of %d masters has rows of %d and %d nodes, and %d edges", edges, q, p.Masters, h.In.NumNodes(), h.Partial.NumNodes(), p.In.NumEdges())
			}
			node := func(k uint32) uint32 {
				if int(k) < p.Masters {
					return uint32(p.Of.First) + k
				}
				return p.Sources[int(k)-p.Masters]
			}
			for v := range p.Masters {
				for e := h.In.Indptr[v]; e < h.In.Indptr[v+1]; e++ {
					add(got, h.In, e, node(h.In.Indices[e]), uint32(p.Of.First)+uint32(v))
				}
			}
			for k, v := range p.Targets {
				if h.Partial.Degree(uint32(k)) == 0 {
					t.Fatalf("%s: piece %d has an empty row of node %d", edges, q, v)
				}
				for e := h.Partial.Indptr[k]; e < h.Partial.Indptr[k+1]; e++ {
					add(got, h.Partial, e, node(h.Partial.Indices[e]), v)
					elsewhere++
				}
			}
			for _, m := range []struct {
				ids []uint32
				of  []int
			}{{p.Sources, h.Reads}, {p.Targets, h.Sums}} {
				for k := range count {
					for _, v := range m.ids[m.of[k]:m.of[k+1]] {
						if int(table[v/Border]) != k || v < b[k] || v >= b[k+1] {
							t.Fatalf("%s: piece %d takes node %d for one of piece %d", edges, q, v, k)
						}
					}
				}
				if m.of[0] != 0 || m.of[count] != len(m.ids) {
					t.Fatalf("%s: piece %d names %d nodes, and knows whose %d are", edges, q, len(m.ids), m.of[count])
				}
			}
		}
		if !maps.Equal(got, want) || elsewhere == 0 {
			t.Errorf("%s over %d pieces: %d different edges, want %d; %d are with no target", edges, count, len(got), len(want), elsewhere)
		}
	}
}
