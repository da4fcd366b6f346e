package pieces

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Placement that looks at edges cuts fewer than dealing does, where there are communities.
func TestStreamCutsFewer(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 0))
	const n, blocks = 8192, 4
	in := make([][]uint32, n)
	for v := range n {
		for range 10 {
			u := r.IntN(n)
			if r.IntN(10) > 0 {
				u = u/blocks*blocks + v%blocks
			}
			in[v] = append(in[v], uint32(u))
			in[u] = append(in[u], uint32(v))
		}
	}
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v, row := range in {
		g.Indices = append(g.Indices, row...)
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	src := create(t, &graph.Dataset{Name: "blocks", Graph: g})
	cut := map[string]float64{}
	for _, method := range []string{"hash", streaming, "metis"} {
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), src, Options{Method: method, Pieces: 4, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := s.Balance()
		cut[method] = b.CutShare
		if b.Nodes > 1.3 {
			t.Errorf("%s: the largest piece has %.2f of the mean", method, b.Nodes)
		}
	}
	if cut["hash"] < 0.7 || cut[streaming] > 0.2 || cut["metis"] > 0.15 {
		t.Errorf("shares of edges cut: %v", cut)
	}
}

// Whatever is added and taken, the lightest piece is the one that a search from the first finds.
func TestLightest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 0))
	for _, n := range []int{1, 2, 3, 5, 64, 100} {
		l := newLightest(n)
		for range 500 {
			l.add(uint16(r.IntN(n)), float64(r.IntN(7)-3))
			if got, want := int(l.lightest()), slices.Index(l.of, slices.Min(l.of)); got != want {
				t.Fatalf("%v: the lightest of %d is %d, want %d", l.of, n, got, want)
			}
		}
	}
}

// Where degrees are skewed, no piece of a stream has many more bytes than the mean.
func TestStreamIsBalanced(t *testing.T) {
	t.Parallel()
	src := create(t, random(40*Border, 400_000, 6, false))
	for _, pieces := range []int{2, 4} {
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), src, Options{Method: streaming, Pieces: pieces})
		if err != nil {
			t.Fatal(err)
		}
		if b := s.Balance(); b.Bytes > 1.15 {
			t.Errorf("the largest of %d pieces has %.2f of the mean bytes", pieces, b.Bytes)
		}
	}
}

// A power-law graph whose nodes are sorted by degree, hubs first: pieces by ids, hash or a stream of nodes have at most a tenth more bytes than the
// mean, though some have several times its nodes.
func TestBalanceOfSortedRMAT(t *testing.T) {
	if testing.Short() {
		t.Skip("a graph of 4 million edges, cut three times")
	}
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 17, Edges: 2_000_000, Classes: 4, FeatureDim: 64, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	src := create(t, byDegree(ds))
	for _, method := range []string{"contiguous", "hash", streaming} {
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), src, Options{Method: method, Pieces: 4})
		if err != nil {
			t.Fatal(err)
		}
		b := s.Balance()
		t.Logf("%s: the largest piece has %.2f of the mean's nodes, %.2f of its edges, %.3f of its bytes", method, b.Nodes, b.Edges, b.Bytes)
		if b.Bytes > 1.1 {
			t.Errorf("%s: the largest piece has %.3f of the mean bytes", method, b.Bytes)
		}
		if method == "contiguous" && b.Nodes < 1.5 {
			t.Errorf("by ids the largest piece has %.2f of the mean's nodes: its edges do not count", b.Nodes)
		}
	}
}

// What a piece holds of others' nodes, most where its own have many neighbours and few values, is counted in its bytes.
func TestStreamCountsMirrors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a graph of 4 million edges")
	}
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 17, Edges: 2_000_000, Classes: 4, FeatureDim: 16, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), create(t, ds), Options{Method: streaming, Pieces: 4})
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Balance(); b.Bytes > 1.1 {
		t.Errorf("the largest piece has %.3f of the mean bytes", b.Bytes)
	}
}

// Of pieces with nodes beyond a multiple of Border the heaviest gets no others to the next, though it lacks the fewest.
func TestRoundingSparesTheHeaviest(t *testing.T) {
	part := make([]uint16, 8*Border)
	for v := 4*Border + 1000; v < len(part); v++ {
		part[v] = 1
	}
	load := newLightest(2) // nodes of 16 bytes
	load.add(0, 16*(6*Border+1000))
	load.add(1, 16*(4*Border-1000))
	borders := roundSizes(part, &graph.Graph{Indptr: make([]int64, len(part)+1)}, load, 0)
	size := 0
	for _, i := range part {
		size += 1 - int(i)
	}
	if want := []uint32{0, 4 * Border, 8 * Border}; !slices.Equal(borders, want) || size != 4*Border {
		t.Errorf("borders %v, the first piece with %d nodes; want %v", borders, size, want)
	}
}

// Where nodes go does not depend on how many processors count their neighbours, be pieces told apart by a byte or by two.
func TestStreamOnAnyProcessors(t *testing.T) {
	g := random(20*Border, 200_000, 6, false).Graph
	for _, pieces := range []int{5, 300} {
		place := func(processors int) []uint16 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			part, _, err := stream(interrupt.New(t.Context()), g, pieces, 28, func(string, int64, int64) {})
			if err != nil {
				t.Fatal(err)
			}
			return part
		}
		want := place(1)
		if most := int(slices.Max(want)); most != pieces-1 {
			t.Errorf("the last of %d pieces with nodes is %d", pieces, most)
		}
		for _, processors := range []int{2, 3, 7} {
			if !slices.Equal(place(processors), want) {
				t.Errorf("%d processors place nodes elsewhere than one, in %d pieces", processors, pieces)
			}
		}
	}
}

// The stream ends with the pass that moves next to no node: of two rings, each of which is a piece at once, that is the second or third.
func TestStreamEndsWhenSettled(t *testing.T) {
	t.Parallel()
	const n = 8 * Border
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n {
		half := v / (n / 2) * (n / 2)
		for _, by := range []int{1, 2, 3, n/2 - 3, n/2 - 2, n/2 - 1} {
			g.Indices = append(g.Indices, uint32(half+(v-half+by)%(n/2)))
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	passes := int64(0)
	part, _, err := stream(interrupt.New(t.Context()), g, 2, 28, func(_ string, done, _ int64) { passes = done / n })
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for v := range n {
		for _, u := range g.InNeighbors(uint32(v)) {
			if part[u] != part[v] {
				cut++
			}
		}
	}
	if passes < 2 || passes >= streamPasses || cut > len(g.Indices)/10 {
		t.Errorf("%d passes, and %d of %d edges cut", passes, cut, len(g.Indices))
	}
}

// A stream that is interrupted in its first pass, when most nodes are nowhere, ends so.
func TestStreamInterrupted(t *testing.T) {
	t.Parallel()
	src := create(t, random(40*Border, 400_000, 6, false))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Create(ctx, filepath.Join(t.TempDir(), "set"), src, Options{Method: streaming, Pieces: 4, Progress: func(what string, _, _ int64) {
		if what == "placing nodes" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// byDegree returns a graph with ids by falling in-degree.
func byDegree(ds *graph.Dataset) *graph.Dataset {
	g, n := ds.Graph, ds.Graph.NumNodes()
	old, id := make([]uint32, n), make([]uint32, n)
	for v := range old {
		old[v] = uint32(v)
	}
	slices.SortStableFunc(old, func(a, b uint32) int {
		return int(g.Indptr[b+1] - g.Indptr[b] - g.Indptr[a+1] + g.Indptr[a])
	})
	for v, u := range old {
		id[u] = uint32(v)
	}
	sorted := &graph.Graph{Indptr: make([]int64, n+1), Indices: make([]uint32, 0, len(g.Indices))}
	x := make([]float32, n*ds.NodeFeatures.Cols)
	labels := &graph.Labels{NumClasses: ds.Labels.NumClasses}
	for v, u := range old {
		from := len(sorted.Indices)
		for _, w := range g.Indices[g.Indptr[u]:g.Indptr[u+1]] {
			sorted.Indices = append(sorted.Indices, id[w])
		}
		slices.Sort(sorted.Indices[from:])
		sorted.Indptr[v+1] = int64(len(sorted.Indices))
		labels.Class = append(labels.Class, ds.Labels.Class[u])
	}
	return &graph.Dataset{Name: "sorted", Graph: sorted, NodeFeatures: graph.NewFeatures(n, ds.NodeFeatures.Cols, x), Labels: labels}
}

// A border is a multiple of Border, and pieces by ids hold about as many bytes each.
func TestBalanceByBytes(t *testing.T) {
	t.Parallel()
	const n = 40 * Border
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n { // the first nodes have most of the edges
		for u := range 2 + 60*Border/(v+Border) {
			g.Indices = append(g.Indices, uint32((v*7+u*6007)%n))
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	s, err := Create(t.Context(), filepath.Join(t.TempDir(), "set"), create(t, &graph.Dataset{Graph: g}), Options{Method: "contiguous", Pieces: 4})
	if err != nil {
		t.Fatal(err)
	}
	if b := s.Balance(); b.Bytes > 1.15 || b.Nodes < 1.3 {
		t.Errorf("the largest piece has %.2f of the mean bytes and %.2f of the nodes", b.Bytes, b.Nodes)
	}
}

// Neighbours are counted by pieces, in long rows and short ones, but for those that are counted later and the node itself.
func TestStreamCounts(t *testing.T) {
	const nodes, from, to = 600, 200, 240 // the nodes that are counted: later's
	for _, pieces := range []int{3, 200} {
		indptr, indices := []int64{0}, []uint32(nil)
		for v := range nodes {
			for k := range v % 41 {
				indices = append(indices, uint32(v+k*k*(k-1))%nodes)
			}
			indptr = append(indptr, int64(len(indices)))
		}
		s := newStreamer[uint8](nil, &graph.Graph{Indptr: indptr, Indices: indices}, pieces, 0)
		for v := range s.part {
			if s.part[v] = uint8(v * 7 % (pieces + 1)); v >= from && v < to { // the piece behind the last: not placed yet
				s.part[v] = s.later()
			}
		}
		var c counts
		near, near2, at := make([]int32, pieces+2), make([]int32, pieces+2), [2]int{}
		s.count(&c, near, near2, from, to)
		for k, end := range c.ends {
			got, want, later := map[uint16]int32{}, map[uint16]int32{}, []uint32(nil)
			for _, x := range c.shares[at[0]:end[0]] {
				got[x.piece] += x.nodes
			}
			for _, u := range s.g.InNeighbors(uint32(from + k)) {
				if i := s.part[u]; int(i) < pieces {
					want[uint16(i)]++
				} else if i == s.later() && int(u) != from+k {
					later = append(later, u)
				}
			}
			if !maps.Equal(got, want) || end[0]-at[0] != len(want) || !slices.Equal(c.later[at[1]:end[1]], later) {
				t.Fatalf("%d pieces, node %d: %v and later %v, want %v and %v", pieces, from+k, got, c.later[at[1]:end[1]], want, later)
			}
			at = end
		}
		if slices.Max(near) > 0 || slices.Max(near2) > 0 {
			t.Errorf("%d pieces: counts are left", pieces)
		}
	}
}
