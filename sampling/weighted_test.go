package sampling

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

func TestExponentialIsMinusLog(t *testing.T) {
	key := rng.New(1)
	for i := range uint64(100000) {
		u := (float64(key.Uint64(i)>>12) + 0.5) * 0x1p-52
		if got, want := exponential(key.Uint64(i)), -math.Log(u); math.Abs(got-want) > 1e-15*(1+want) {
			t.Fatalf("exponential of %v is %v, want %v", u, got, want)
		}
	}
	if lo, hi := exponential(math.MaxUint64), exponential(0); lo <= 0 || hi > 40 {
		t.Errorf("the range is [%v, %v]", lo, hi)
	}
}

// star returns a graph whose node 0 has the given edge weights in, from nodes 1
// upward.
func star(weights ...float32) *graph.Graph {
	rows := make([][]uint32, len(weights)+1)
	for i := range weights {
		rows[0] = append(rows[0], uint32(i+1))
	}
	g := fromRows(rows...)
	g.Weights = weights
	return g
}

// subsets counts how often each set of edges is drawn for node 0.
func subsets(t *testing.T, s Sampler, draws int) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	var b Batch
	for i := range draws {
		if err := s.Sample(&b, rng.New(3, uint64(i)), []uint32{0}); err != nil {
			t.Fatal(err)
		}
		row := slices.Clone(b.Blocks[0].EdgeIDs)
		slices.Sort(row)
		name := make([]byte, len(row))
		for j, e := range row {
			name[j] = 'a' + byte(e)
		}
		counts[string(name)]++
	}
	return counts
}

// successive adds the probabilities of the sets that k draws without
// replacement, in proportion to the weights, lead to.
func successive(p map[string]float64, w []float32, set string, prob float64, k int) {
	if k == 0 {
		b := []byte(set)
		slices.Sort(b)
		p[string(b)] += prob
		return
	}
	total := 0.0
	for i, x := range w {
		if !strings.Contains(set, string(rune('a'+i))) {
			total += float64(x)
		}
	}
	for i, x := range w {
		if name := string(rune('a' + i)); x > 0 && !strings.Contains(set, name) {
			successive(p, w, set+name, prob*float64(x)/total, k-1)
		}
	}
}

// For other seeds this would fail with probability 1e-4 in each case.
func TestWeightedSubsets(t *testing.T) {
	w := []float32{1, 0, 5, 2, 0.5, 3}
	for k := 1; k <= 4; k++ {
		s := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{k}, Weighted: true}, star(w...)).NewSampler()
		const draws = 30000
		got := subsets(t, s, draws)
		want := make(map[string]float64)
		successive(want, w, "", 1, k)
		var counts []int
		var expected []float64
		total := 0
		for set, p := range want {
			counts, expected = append(counts, got[set]), append(expected, p*draws)
			total += got[set]
		}
		if total != draws {
			t.Fatalf("k=%d: %d sets were drawn that cannot be", k, draws-total)
		}
		if p := pValue(counts, expected, len(counts)-1); p < 1e-4 {
			t.Errorf("k=%d: sets are not drawn in proportion to the weights, p = %g", k, p)
		}
	}
}

// For other seeds this would fail with probability 1e-4 in each case.
func TestReplacement(t *testing.T) {
	w := []float32{1, 0, 5, 2, 0.5, 3}
	for _, weighted := range []bool{false, true} {
		const draws, k = 5000, 9 // more than there are edges
		s := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{k}, Weighted: weighted, Replace: true}, star(w...)).NewSampler()
		counts := make([]int, len(w))
		var b Batch
		for i := range draws {
			if err := s.Sample(&b, rng.New(3, uint64(i)), []uint32{0, 1}); err != nil {
				t.Fatal(err)
			}
			if n := b.NumEdges(); n != k {
				t.Fatalf("%d entries, want %d for node 0 and none for the isolated one", n, k)
			}
			for _, e := range b.Blocks[0].EdgeIDs {
				counts[e]++
			}
		}
		var c []int
		var expected []float64
		for i, x := range w {
			p := float64(draws * k)
			if weighted {
				p *= float64(x) / 11.5
			} else {
				p /= float64(len(w))
			}
			if p == 0 && counts[i] > 0 {
				t.Errorf("an edge of weight 0 was drawn")
			} else if p > 0 {
				c, expected = append(c, counts[i]), append(expected, p)
			}
		}
		if p := pValue(c, expected, len(c)-1); p < 1e-4 {
			t.Errorf("weighted %v: p = %g", weighted, p)
		}
	}
}

func TestWeightErrors(t *testing.T) {
	nan := float32(math.NaN())
	for _, g := range []*graph.Graph{skewed(10, 4, 1), star(1, -1), star(1, nan), star(float32(math.Inf(1)))} {
		if _, err := New(t.Context(), Spec{Name: "neighbor", Fanouts: []int{2}, Weighted: true}, g); err == nil {
			t.Errorf("weights %v were accepted", g.Weights)
		}
	}
	// All weights 0: nothing can be drawn.
	for _, replace := range []bool{false, true} {
		var b Batch
		s, err := New(t.Context(), Spec{Name: "neighbor", Fanouts: []int{2}, Weighted: true, Replace: replace}, star(0, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Sample(&b, 1, []uint32{0}); err != nil || b.NumEdges() != 0 {
			t.Errorf("replace %v: %d edges of weight 0 were drawn, error %v", replace, b.NumEdges(), err)
		}
	}
}

func TestLaborKeepsTheSmallest(t *testing.T) {
	g := skewed(3000, 2000, 2)
	key := rng.New(5, 6)
	seeds := Order(allNodes(g), 1, 0)[:400]
	fanouts := []int{10, 4}
	var b Batch
	if err := mustPrepare(t, Spec{Name: "labor", Fanouts: fanouts, EdgeIDs: true}, g).NewSampler().Sample(&b, key, seeds); err != nil {
		t.Fatal(err)
	}
	checkBatch(t, g, &b, seeds)
	for hop, k := range fanouts {
		blk := &b.Blocks[len(fanouts)-1-hop]
		for r := range blk.NumDst {
			v := blk.SrcIDs[r]
			var want []int64
			for p := g.Indptr[v]; p < g.Indptr[v+1]; p++ {
				want = append(want, p)
			}
			slices.SortStableFunc(want, func(p, q int64) int {
				k1, k2 := halves(key.With(uint64(hop)))
				rp, rq := hash32(g.Indices[p], k1, k2), hash32(g.Indices[q], k1, k2)
				switch {
				case rp < rq:
					return -1
				case rp > rq:
					return 1
				}
				return 0
			})
			want = want[:min(k, len(want))]
			slices.Sort(want)
			if got := blk.EdgeIDs[blk.Indptr[r]:blk.Indptr[r+1]]; !slices.Equal(got, want) {
				t.Fatalf("hop %d, node %d: edges %v, want %v", hop, v, got, want)
			}
		}
	}
}

// Each edge of a row is kept equally often; with correlation −1/(d−1) between
// inclusions the statistic is a scaled chi-square. For another seed this would fail
// with probability 1e-4.
func TestLaborInclusion(t *testing.T) {
	const d, k, draws = 30, 7, 20000
	s := mustPrepare(t, Spec{Name: "labor", Fanouts: []int{k}}, star(make([]float32, d)...)).NewSampler()
	counts := make([]float64, d)
	var b Batch
	for i := range draws {
		if err := s.Sample(&b, rng.New(4, uint64(i)), []uint32{0}); err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Blocks[0].EdgeIDs {
			counts[e]++
		}
	}
	want, x := float64(draws*k)/d, 0.0
	for _, n := range counts {
		x += (n - want) * (n - want) / want
	}
	x /= (1 - float64(k)/d) * d / (d - 1)
	if p := (distuv.ChiSquared{K: d - 1}).Survival(x); p < 1e-4 {
		t.Errorf("inclusion is not uniform, p = %g", p)
	}
}

// LABOR reads fewer distinct nodes than neighbour sampling, and consecutive
// batches share more of them when r_t stays.
func TestLaborSharesSources(t *testing.T) {
	g := skewed(20000, 200, 3)
	order := Order(allNodes(g), 1, 0)
	inputs := func(spec Spec) (nodes int, match float64) {
		s := mustPrepare(t, spec, g).NewSampler()
		var b Batch
		last := make(map[uint32]bool)
		for i := range 8 {
			b.ID = ID{Phase: "train", Batch: i}
			if err := s.Sample(&b, b.ID.Key(1), Cut(order, 256, 1, i, 0)); err != nil {
				t.Fatal(err)
			}
			nodes += b.NumInputs()
			common, cur := 0, make(map[uint32]bool)
			for _, u := range b.Inputs() {
				cur[u] = true
				if last[u] {
					common++
				}
			}
			if i%4 > 0 { // inside a group of dependent batches
				match += float64(common) / float64(min(len(cur), len(last))) / 6
			}
			last = cur
		}
		return nodes, match
	}
	fanouts := []int{10, 5}
	neighbour, _ := inputs(Spec{Name: "neighbor", Fanouts: fanouts})
	labor, match := inputs(Spec{Name: "labor", Fanouts: fanouts})
	dependent, depMatch := inputs(Spec{Name: "labor", Fanouts: fanouts, Dependency: 4})
	t.Logf("input nodes: neighbor %d, labor %d, labor with dependency %d; match degree of labor %.3f, with dependency %.3f", neighbour, labor, dependent, match, depMatch)
	if float64(labor) > 0.95*float64(neighbour) {
		t.Errorf("labor reads %d nodes, neighbour sampling %d", labor, neighbour)
	}
	if depMatch < match+0.05 {
		t.Errorf("match degree %.3f with a dependency of 4, %.3f without", depMatch, match)
	}
}

// With a dependency of κ a node keeps the same edges in batches iκ to (i+1)κ-1 of an
// epoch, and others in those around them; with none or one, others in each batch.
func TestLaborDependency(t *testing.T) {
	const d, k = 30, 7
	for _, dependency := range []int{0, 1, 2, 3} {
		s := mustPrepare(t, Spec{Name: "labor", Fanouts: []int{k}, Dependency: dependency, EdgeIDs: true}, star(make([]float32, d)...)).NewSampler()
		var last []int64
		for batch := range 12 {
			b := Batch{ID: ID{Phase: "train", Epoch: batch / 6, Batch: batch % 6}}
			if err := s.Sample(&b, b.ID.Key(1), []uint32{0}); err != nil {
				t.Fatal(err)
			}
			if same, want := slices.Equal(b.Blocks[0].EdgeIDs, last), batch%6%max(dependency, 1) != 0; batch > 0 && same != want {
				t.Errorf("dependency %d: %v keeps the edges of the batch before: %v", dependency, b.ID, same)
			}
			last = slices.Clone(b.Blocks[0].EdgeIDs)
		}
	}
}

func TestNodeWiseSameBits(t *testing.T) {
	g := skewed(3000, 300, 8)
	g.Weights = make([]float32, g.NumEdges())
	for i := range g.Weights {
		g.Weights[i] = float32(rng.New(3).Float64(uint64(i)))
	}
	order := Order(allNodes(g), 1, 0)
	for _, spec := range []Spec{
		{Name: "labor", Fanouts: []int{10, 5}},
		{Name: "labor", Fanouts: []int{10, 5}, Dependency: 3},
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true},
		{Name: "neighbor", Fanouts: []int{10, 5}, Replace: true},
		{Name: "neighbor", Fanouts: []int{10, 5}, Weighted: true, Replace: true},
	} {
		sameBits(t, mustPrepare(t, spec, g), order, 128)
	}
}
