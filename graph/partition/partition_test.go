package partition

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/graph/community"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
)

// planted returns a directed graph of blocks·size nodes, shuffled ids, in which
// an edge stays in its block with the given probability, and the blocks.
func planted(blocks, size, degree int, inside float64, seed uint64) (*graph.Graph, []uint32) {
	n := blocks * size
	key := rng.New(seed)
	id := make([]uint32, n)
	key.Perm(id)
	block := make([]uint32, n)
	rows := make([][]uint32, n)
	for i := range n {
		block[id[i]] = uint32(i / size)
		k := key.With(uint64(i))
		for j := range uint64(degree) {
			to := int(k.Uintn(3*j, uint64(n)))
			if k.Float64(3*j+1) < inside {
				to = i/size*size + int(k.Uintn(3*j+2, uint64(size)))
			}
			rows[id[i]] = append(rows[id[i]], id[to])
		}
	}
	return fromRows(rows), block
}

func fromRows(rows [][]uint32) *graph.Graph {
	g := &graph.Graph{Indptr: []int64{0}}
	for _, r := range rows {
		slices.Sort(r)
		g.Indices = append(g.Indices, r...)
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	return g
}

// both returns g with every edge's reverse.
func both(g *graph.Graph) *graph.Graph {
	rows := make([][]uint32, g.NumNodes())
	for v := range rows {
		for _, u := range g.InNeighbors(uint32(v)) {
			rows[v] = append(rows[v], u)
			rows[u] = append(rows[u], uint32(v))
		}
	}
	return fromRows(rows)
}

// agreement is the share of nodes whose cluster's most frequent block is theirs.
func agreement(part, block []uint32) float64 {
	counts := make(map[[2]uint32]int)
	for v := range part {
		counts[[2]uint32{part[v], block[v]}]++
	}
	most := make(map[uint32]int)
	for k, c := range counts {
		most[k[0]] = max(most[k[0]], c)
	}
	total := 0
	for _, c := range most {
		total += c
	}
	return float64(total) / float64(len(part))
}

func measured(tb testing.TB, g *graph.Graph, part []uint32) Quality {
	tb.Helper()
	q, err := Measure(tb.Context(), g, part)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}

func TestPlantedBlocksAreFound(t *testing.T) {
	g, block := planted(12, 300, 8, 0.85, 1)
	for _, g := range []*graph.Graph{g, both(g)} {
		for _, method := range Methods()[:3] {
			part, err := Compute(t.Context(), g, method, 12, 3)
			if err != nil {
				t.Fatal(err)
			}
			q := measured(t, g, part)
			t.Logf("%-8s %+v, agreement %.3f", method, q, agreement(part, block))
			if a := agreement(part, block); a < 0.85 {
				t.Errorf("%s: %.2f of the nodes lie with their block", method, a)
			}
			if method != "louvain" && q.Largest > 331 {
				t.Errorf("%s: the largest cluster has %d nodes of an average of 300", method, q.Largest)
			}
			again, _ := Compute(t.Context(), g, method, 12, 3)
			if !slices.Equal(part, again) {
				t.Errorf("%s: not a function of its input", method)
			}
		}
	}
}

// On a graph with hubs and without planted blocks the methods still cut less
// than a random partition, and respect the sizes.
func TestSkewedGraph(t *testing.T) {
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 13, Edges: 40000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := ds.Graph
	for _, count := range []int{2, 16, 100} {
		for _, method := range Methods()[:3] {
			part, err := Compute(t.Context(), g, method, count, 1)
			if err != nil {
				t.Fatal(err)
			}
			q := measured(t, g, part)
			t.Logf("%-8s into %3d: %+v", method, count, q)
			if random := 1 - 1/float64(count); q.CutShare > 0.95*random {
				t.Errorf("%s into %d: cuts %.3f of the edges, a random partition %.3f", method, count, q.CutShare, random)
			}
			if limit := 1.12*float64(g.NumNodes())/float64(count) + 1; method == "metis" && float64(q.Largest) > limit {
				t.Errorf("%s into %d: the largest cluster has %d nodes, at most %.0f are allowed", method, count, q.Largest, limit)
			}
		}
	}
}

// Modularity as gonum computes it, and communities as good as gonum's.
func TestModularityAgainstGonum(t *testing.T) {
	g, _ := planted(8, 40, 5, 0.7, 4)
	s := simple.NewUndirectedGraph()
	for v := range g.NumNodes() {
		s.AddNode(simple.Node(v))
	}
	rows := make([][]uint32, g.NumNodes()) // simple: gonum has no parallel edges
	for v := range rows {
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) != v && !s.HasEdgeBetween(int64(u), int64(v)) {
				s.SetEdge(s.NewEdge(simple.Node(u), simple.Node(v)))
				rows[v] = append(rows[v], u)
				rows[u] = append(rows[u], uint32(v))
			}
		}
	}
	g = fromRows(rows)
	theirs := community.Modularize(s, 1, nil).Communities()
	label := make([]uint32, g.NumNodes())
	for i, c := range theirs {
		for _, v := range c {
			label[v.ID()] = uint32(i)
		}
	}
	want := community.Q(s, theirs, 1)
	if got := measured(t, g, label).Modularity; got < want-1e-9 || got > want+1e-9 {
		t.Errorf("modularity %v, gonum says %v", got, want)
	}
	if got := measured(t, g, louvain(newNetwork(nil, g), 1)).Modularity; got < want-0.02 {
		t.Errorf("louvain reaches modularity %.4f, gonum %.4f", got, want)
	} else {
		t.Logf("modularity %.4f, gonum's %.4f", got, want)
	}
}

func TestOddGraphs(t *testing.T) {
	loop := fromRows([][]uint32{{0, 0}, {1}, {2}})
	for name, g := range map[string]*graph.Graph{
		"empty": fromRows(nil), "isolated": fromRows(make([][]uint32, 50)), "loops": loop,
		"star": fromRows([][]uint32{{1, 2, 3, 4, 5, 6, 7}, {}, {}, {}, {}, {}, {}, {}}),
	} {
		for _, method := range Methods() {
			for _, count := range []int{1, 3, 100} {
				part, err := Compute(t.Context(), g, method, count, 1)
				if count > max(g.NumNodes(), 1) {
					if err == nil || !strings.Contains(err.Error(), "at most as many as nodes") {
						t.Errorf("%s, %s into %d: error %v", name, method, count, err)
					}
					continue
				}
				if err != nil || len(part) != g.NumNodes() {
					t.Fatalf("%s, %s into %d: %d nodes, error %v", name, method, count, len(part), err)
				}
				for _, p := range part {
					if int(p) >= count {
						t.Fatalf("%s, %s into %d: cluster %d", name, method, count, p)
					}
				}
				if q := measured(t, g, part); name == "isolated" && method != "hash" && count == 3 && q.Largest > 19 {
					t.Errorf("%s: %d of 50 nodes in one of 3 clusters", method, q.Largest)
				}
			}
		}
	}
	if _, err := Compute(t.Context(), loop, "luck", 2, 1); err == nil {
		t.Error("a method that does not exist was accepted")
	}
	if _, err := Compute(t.Context(), loop, "metis", 0, 1); err == nil {
		t.Error("no clusters were accepted")
	}
}

// Without a look at the edges: even sizes, runs of ids. The chance that a sound
// "hash" puts more than 1150 of 10,000 nodes into one of ten is below 1e-6.
func TestBlindMethods(t *testing.T) {
	g := fromRows(make([][]uint32, 10_000))
	part, err := Compute(t.Context(), g, "contiguous", 7, 1)
	if err != nil || !slices.IsSorted(part) || part[0] != 0 || part[9999] != 6 || measured(t, g, part).Largest != 1429 {
		t.Errorf("contiguous: %+v, %v", measured(t, g, part), err)
	}
	part, err = Compute(t.Context(), g, "hash", 10, 1)
	if q := measured(t, g, part); err != nil || q.Clusters != 10 || q.Largest > 1150 {
		t.Errorf("hash: %+v, %v", q, err)
	}
	other, _ := Compute(t.Context(), g, "hash", 10, 2)
	if slices.Equal(part, other) {
		t.Error("hash does not depend on the seed")
	}
}

func BenchmarkCompute(b *testing.B) {
	ds, err := generate.RMAT(b.Context(), generate.RMATOptions{Scale: 17, Edges: 1 << 20, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	for _, method := range Methods()[:3] {
		b.Run(method, func(b *testing.B) {
			var part []uint32
			for range b.N {
				part, _ = Compute(b.Context(), ds.Graph, method, 500, 1)
			}
			b.ReportMetric(measured(b, ds.Graph, part).CutShare, "cut")
		})
	}
}

// BenchmarkLouvain compares with gonum's Louvain. The larger graphs, where gonum
// takes minutes, need GNNACTOR_BENCH_SCALE set.
func BenchmarkLouvain(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		if n > 10_000 && os.Getenv("GNNACTOR_BENCH_SCALE") == "" {
			continue
		}
		g, _ := planted(n/500, 500, 8, 0.8, 4)
		b.Run(fmt.Sprintf("ours/nodes=%d", n), func(b *testing.B) {
			var q Quality
			for range b.N {
				q = measured(b, g, louvain(newNetwork(nil, g), 1))
			}
			b.ReportMetric(q.Modularity, "modularity")
		})
		b.Run(fmt.Sprintf("gonum/nodes=%d", n), func(b *testing.B) {
			s := simple.NewUndirectedGraph()
			for v := range g.NumNodes() {
				for _, u := range g.InNeighbors(uint32(v)) {
					if int(u) != v {
						s.SetEdge(simple.Edge{F: simple.Node(u), T: simple.Node(v)})
					}
				}
			}
			b.ResetTimer()
			for range b.N {
				r := community.Modularize(s, 1, rand.NewPCG(1, 1))
				b.ReportMetric(community.Q(s, r.Communities(), 1), "modularity")
			}
		})
	}
}
