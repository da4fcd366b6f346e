package sampling

import (
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// crooked is a graph whose walks can be enumerated: unequal degrees, a
// self-loop, parallel edges, and a node without in-neighbours that walks run into.
func crooked() *graph.Graph {
	return fromRows([]uint32{1, 2, 3}, []uint32{0}, []uint32{2, 0, 4, 4, 1}, []uint32{4, 5}, nil, []uint32{0, 1, 2, 3})
}

// setOf names a set of nodes, of which there are fewer than 26, whatever their order.
func setOf(nodes ...uint32) string {
	sorted := slices.Sorted(slices.Values(nodes))
	var name []byte
	for _, u := range slices.Compact(sorted) {
		name = append(name, 'a'+byte(u))
	}
	return string(name)
}

// checkSets compares how often sets were drawn with their probabilities.
func checkSets(t *testing.T, name string, got map[string]int, want map[string]float64) {
	t.Helper()
	draws := 0
	for set, n := range got {
		if want[set] == 0 {
			t.Errorf("%s: %q was drawn, which cannot be", name, set)
		}
		draws += n
	}
	var counts []int
	var expected []float64
	for set, p := range want {
		counts, expected = append(counts, got[set]), append(expected, p*float64(draws))
	}
	if p := pValue(counts, expected, len(counts)-1); p < 1e-4 {
		t.Errorf("%s: p = %g", name, p)
	}
}

func drawSets(t *testing.T, g *graph.Graph, spec Spec, draws int) map[string]int {
	t.Helper()
	s := mustPrepare(t, spec, g).factory().(*subgraphs)
	got := make(map[string]int)
	for i := range draws {
		s.nodes(ID{}, rng.New(8, uint64(i)))
		got[setOf(s.set.nodes...)]++
	}
	return got
}

// What walks of two roots and two steps visit, enumerated. For another seed the
// test would fail with probability 1e-4.
func TestWalkSets(t *testing.T) {
	g := crooked()
	n := g.NumNodes()
	visits := make(map[string]float64) // by one walk, its nodes in any order
	var walk func(path []uint32, p float64, left int)
	walk = func(path []uint32, p float64, left int) {
		row := g.InNeighbors(path[len(path)-1])
		if left == 0 || len(row) == 0 {
			visits[setOf(path...)] += p
			return
		}
		for _, u := range row {
			walk(append(slices.Clone(path), u), p/float64(len(row)), left-1)
		}
	}
	for v := range n {
		walk([]uint32{uint32(v)}, 1/float64(n), 2)
	}
	want := make(map[string]float64)
	for a, p := range visits {
		for b, q := range visits {
			var both []uint32
			for _, c := range a + b {
				both = append(both, uint32(c-'a'))
			}
			want[setOf(both...)] += p * q
		}
	}
	checkSets(t, "walk", drawSets(t, g, Spec{Name: "walk", Layers: 1, Roots: 2, WalkLength: 2}, 100_000), want)
}

// What a frontier of two nodes visits in three pops, enumerated: its roots are
// uniform among the nodes with neighbours, a pop is in proportion to the capped
// degree, and a uniform neighbour follows. For another seed the test would fail
// with probability 1e-4.
func TestFrontierSets(t *testing.T) {
	g := crooked()
	const degreeCap = 3
	var walkable []uint32
	for v := range uint32(g.NumNodes()) {
		if g.Degree(v) > 0 {
			walkable = append(walkable, v)
		}
	}
	weight := func(v uint32) float64 { return float64(min(g.Degree(v), degreeCap)) }
	want := make(map[string]float64)
	var pop func(front [2]uint32, seen []uint32, p float64, left int)
	pop = func(front [2]uint32, seen []uint32, p float64, left int) {
		if left == 0 {
			want[setOf(seen...)] += p
			return
		}
		for i, u := range front {
			p := p * weight(u) / (weight(front[0]) + weight(front[1]))
			seen := append(slices.Clone(seen), u)
			for _, next := range g.InNeighbors(u) {
				p := p / float64(g.Degree(u))
				to := []uint32{next}
				if g.Degree(next) == 0 {
					to = walkable
				}
				for _, v := range to {
					after := front
					after[i] = v
					pop(after, seen, p/float64(len(to)), left-1)
				}
			}
		}
	}
	for _, a := range walkable {
		for _, b := range walkable {
			pop([2]uint32{a, b}, nil, 1/float64(len(walkable)*len(walkable)), 3)
		}
	}
	checkSets(t, "frontier", drawSets(t, g, Spec{Name: "frontier", Layers: 1, Frontier: 2, Budget: 3, DegreeCap: degreeCap}, 100_000), want)
}

// Clipping leaves every subset of the right size equally often. For another
// seed a case would fail with probability 1e-4.
func TestClipIsUniform(t *testing.T) {
	for _, limit := range []int{bitsLimit, 0} {
		for _, c := range []struct{ nodes, multiple int }{{5, 4}, {6, 4}, {7, 4}} {
			got, want := make(map[string]int), make(map[string]float64)
			for i := range 20_000 {
				s := newNodeSet(c.nodes, limit)
				for u := range uint32(c.nodes) {
					s.add(u)
				}
				s.clip(c.multiple, rng.New(4, uint64(i)))
				if len(s.nodes) != c.multiple {
					t.Fatalf("%d nodes are clipped to %d", c.nodes, len(s.nodes))
				}
				got[setOf(s.nodes...)]++
			}
			var subsets func(from int, set []uint32)
			subsets = func(from int, set []uint32) {
				if len(set) == c.multiple {
					want[setOf(set...)] = 1
					return
				}
				for u := from; u < c.nodes; u++ {
					subsets(u+1, append(slices.Clone(set), uint32(u)))
				}
			}
			subsets(0, nil)
			for set := range want {
				want[set] = 1 / float64(len(want))
			}
			checkSets(t, "clip", got, want)
		}
	}
}

// fastGCNProbabilities is q(u) ∝ Σ_{v≠u} Â_vu² by its definition, from a dense
// Â = D̂^−½(A + I)D̂^−½ in which every parallel edge counts.
func fastGCNProbabilities(g *graph.Graph) []float64 {
	q := make([]float64, g.NumNodes())
	total := 0.0
	for v := range g.NumNodes() {
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) == v {
				continue
			}
			a := 1 / math.Sqrt(float64(g.Degree(uint32(v))+1)*float64(g.Degree(u)+1))
			q[u] += a * a
			total += a * a
		}
	}
	for u := range q {
		q[u] /= total
	}
	return q
}

// A layer of one node is drawn with q, one of two by two such draws; and an
// entry weighs c/(s·q). For other seeds a layer would fail with probability 1e-4.
func TestFastGCNDrawsByQ(t *testing.T) {
	g := skewed(40, 30, 2)
	q := fastGCNProbabilities(g)
	for _, size := range []int{1, 2} {
		want := make(map[[2]uint32]float64)
		for u, p := range q {
			for v, r := range q {
				if size == 1 {
					want[[2]uint32{uint32(u), uint32(u)}] += p * r
				} else {
					want[[2]uint32{uint32(min(u, v)), uint32(max(u, v))}] += p * r
				}
			}
		}
		d := mustPrepare(t, Spec{Name: "fastgcn", Fanouts: []int{size}}, g).factory().(*layerwise)
		got := make(map[[2]uint32]int)
		const draws = 200_000
		for i := range draws {
			d.set.clear()
			d.raw = d.drawer.draw(d.set, d.raw, rng.New(3, uint64(i)), nil, nil, size)
			nodes := d.set.nodes
			got[[2]uint32{slices.Min(nodes), slices.Max(nodes)}]++
			for j, u := range nodes {
				times := float64(size) / float64(len(nodes))
				if w := times / (float64(size) * q[u]); math.Abs(d.raw[j]-w) > 1e-9*w {
					t.Fatalf("node %d, drawn %v times of %d, weighs %v, want %v", u, times, size, d.raw[j], w)
				}
			}
		}
		var counts []int
		var expected []float64
		rare, rareWant := 0, 0.0
		for pair, p := range want {
			switch n := got[pair]; {
			case p == 0 && n > 0:
				t.Fatalf("nodes %v were drawn, which cannot be", pair)
			case p*draws < 5: // too rare for χ² one by one
				rare, rareWant = rare+n, rareWant+p*draws
			default:
				counts, expected = append(counts, n), append(expected, p*draws)
			}
		}
		if rareWant > 5 {
			counts, expected = append(counts, rare), append(expected, rareWant)
		}
		if p := pValue(counts, expected, len(counts)-1); p < 1e-4 {
			t.Errorf("layers of %d: p = %g", size, p)
		}
	}
}

// layerError returns the bias of a layer-wise sampler's aggregation against that
// of all neighbours, and its standard deviation, both as shares of the latter and
// as root mean squares over the destinations and draws. Rows without a drawn entry
// aggregate to 0.
func layerError(t *testing.T, g *graph.Graph, spec Spec, dst []uint32, x func(u uint32) float64, draws int) (bias, deviation float64) {
	t.Helper()
	s := mustPrepare(t, spec, g).NewSampler()
	sum, square := make([]float64, len(dst)), make([]float64, len(dst))
	var b Batch
	for i := range draws {
		if err := s.Sample(&b, rng.New(2, uint64(i)), dst); err != nil {
			t.Fatal(err)
		}
		blk := &b.Blocks[0]
		for r := range dst {
			y, n := 0.0, float64(blk.Indptr[r+1]-blk.Indptr[r])
			for e := blk.Indptr[r]; e < blk.Indptr[r+1]; e++ {
				y += float64(blk.Weights[e]) * x(blk.SrcIDs[blk.Indices[e]]) / n
			}
			sum[r] += y
			square[r] += y * y
		}
	}
	for r, v := range dst {
		want := 0.0
		for _, u := range g.InNeighbors(v) {
			want += x(u) / float64(g.Degree(v))
		}
		mean := sum[r] / float64(draws)
		bias += (mean/want - 1) * (mean/want - 1)
		deviation += max(0, square[r]/float64(draws)-mean*mean) / (want * want)
	}
	return math.Sqrt(bias / float64(len(dst))), math.Sqrt(deviation / float64(len(dst)))
}

// LADIES weighs what it draws without replacement, and the destinations, which it
// always keeps, as if all had been drawn with q: its rows are biased, also when
// every candidate is in the layer, and vary far less than FastGCN's, which are not
// biased. The bounds are 1.2 and 0.8 times what was measured: the error of a
// measurement is below 2 %.
func TestLadiesAgainstFullAggregation(t *testing.T) {
	g := skewed(2000, 120, 9)
	var dst []uint32
	for v := range uint32(2000) {
		if g.Degree(v) > 15 && len(dst) < 40 {
			dst = append(dst, v)
		}
	}
	x := func(u uint32) float64 { return 1 + 4*float64(u)/2000 }
	for _, c := range []struct {
		size            int
		bias, deviation float64
	}{{60, 0.329, 0.189}, {200, 0.187, 0.171}, {2000, 0.144, 0}} {
		bias, deviation := layerError(t, g, Spec{Name: "ladies", Fanouts: []int{c.size}}, dst, x, 1500)
		_, fast := layerError(t, g, Spec{Name: "fastgcn", Fanouts: []int{c.size}}, dst, x, 1500)
		t.Logf("%d nodes: bias %.4f, standard deviation %.4f, FastGCN's %.4f", c.size, bias, deviation, fast)
		if bias < 0.8*c.bias || bias > 1.2*c.bias || deviation < 0.8*c.deviation || deviation > 1.2*c.deviation+1e-6 {
			t.Errorf("%d nodes: bias %.4f and standard deviation %.4f, measured before: %v and %v", c.size, bias, deviation, c.bias, c.deviation)
		}
		if deviation > fast/10 {
			t.Errorf("%d nodes: standard deviation %.4f, FastGCN's is %.4f", c.size, deviation, fast)
		}
	}
}

// Two of the candidates are drawn one after the other, each in proportion to
// q(u) = Σ_{v∈dst} Â_vu² among those that are left, and the destinations are there
// besides; a node weighs 1/q. For another seed it would fail with probability 1e-4.
func TestLadiesDrawsByQ(t *testing.T) {
	g := fromRows([]uint32{1, 2, 2, 5}, []uint32{0}, []uint32{6}, []uint32{2, 4, 6}, []uint32{0, 1, 3}, nil, []uint32{5})
	dst := []uint32{3, 0}
	q := make([]float32, g.NumNodes())
	for _, v := range dst {
		for _, u := range append(slices.Clone(g.InNeighbors(v)), v) { // Â has every node's loop
			q[u] += 1 / (float32(g.Degree(v)+1) * float32(g.Degree(u)+1))
		}
	}
	drawn := make(map[string]float64)
	successive(drawn, q, "", 1, 2)
	want := make(map[string]float64)
	for set, p := range drawn {
		nodes := slices.Clone(dst)
		for _, c := range set {
			nodes = append(nodes, uint32(c-'a'))
		}
		want[setOf(nodes...)] += p
	}
	d := mustPrepare(t, Spec{Name: "ladies", Fanouts: []int{2}}, g).factory().(*layerwise)
	got := make(map[string]int)
	for i := range 50_000 {
		d.set.clear()
		d.drawer.begin()
		d.raw = d.drawer.draw(d.set, d.raw, rng.New(3, uint64(i)), dst, nil, 2)
		got[setOf(d.set.nodes...)]++
		for j, u := range d.set.nodes {
			if w := 1 / float64(q[u]); math.Abs(d.raw[j]-w) > 1e-5*w {
				t.Fatalf("node %d weighs %v, want %v", u, d.raw[j], w)
			}
		}
	}
	checkSets(t, "ladies", got, want)
}
