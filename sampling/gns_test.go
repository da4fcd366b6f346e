package sampling

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

func TestPortableExpAndLog(t *testing.T) {
	key := rng.New(1)
	for i := range uint64(20000) {
		x := key.Float64(i) * math.Exp(20*(key.Float64(i+1<<32)-0.8))
		if got, want := oneMinusExp(x), -math.Expm1(-x); math.Abs(got-want) > 4e-15*want {
			t.Fatalf("1 − exp(−%v) = %v, want %v", x, got, want)
		}
		if p := key.Float64(i); p < 1 {
			if got, want := log1m(p), math.Log1p(-p); math.Abs(got-want) > 4e-15*math.Abs(want) {
				t.Fatalf("ln(1 − %v) = %v, want %v", p, got, want)
			}
		}
	}
}

func TestKthSmallest(t *testing.T) {
	for round := range 200 {
		key := rng.New(3, uint64(round))
		x := make([]int, 1+key.Uintn(0, 60))
		for i := range x {
			x[i] = int(key.Uintn(uint64(i+1), 1+uint64(round)))
		}
		sorted := slices.Sorted(slices.Values(x))
		for k := range x {
			if got := kthSmallest(slices.Clone(x), k); got != sorted[k] {
				t.Fatalf("rank %d of %v is %d, want %d", k, x, got, sorted[k])
			}
		}
	}
}

func TestSkip(t *testing.T) {
	for _, list := range [][]uint32{nil, {0}, {3}, {0, 1, 2}, {1, 4, 5, 9}} {
		j := uint32(0)
		for r := range uint32(20) {
			if slices.Contains(list, r) {
				continue
			}
			if got := skip(entries(list), j); got != r {
				t.Errorf("number %d outside of %v is %d, want %d", j, list, got, r)
			}
			j++
		}
	}
}

func entries(list []uint32) []CachedNeighbor {
	var c []CachedNeighbor
	for _, e := range list {
		c = append(c, CachedNeighbor{Entry: e})
	}
	return c
}

func gnsOn(t testing.TB, spec Spec, g *graph.Graph, train []uint32) *Prepared {
	t.Helper()
	spec.Name = "gns"
	p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g, Train: train}, 5)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The training nodes have in-neighbours, some more than a fan-out and some fewer,
// so that P differs from P⁰ and min(1, k/d) from 1.
func TestWalkDistribution(t *testing.T) {
	g := skewed(80, 60, 6)
	fanouts := []int{3, -1, 2}
	var train []uint32
	few, many := 0, 0
	for v := range uint32(80) {
		switch d := g.Degree(v); {
		case d > fanouts[0] && many < 3:
			many++
			train = append(train, v)
		case d > 0 && d <= fanouts[0] && few < 2:
			few++
			train = append(train, v)
		}
	}
	if few < 2 || many < 3 {
		t.Fatalf("%d training nodes of few neighbours and %d of many", few, many)
	}
	p := make([]float64, 80)
	for _, v := range train {
		p[v] = 1 / float64(len(train))
	}
	clipped := make([]int, len(fanouts))
	for l, k := range fanouts {
		next := slices.Clone(p)
		for v := range p {
			for _, u := range g.InNeighbors(uint32(v)) {
				f := 1.0
				if k > 0 {
					f = min(1, float64(k)/float64(g.Degree(uint32(v))))
				}
				if f < 1 && p[v] > 0 {
					clipped[l]++
				}
				next[u] += f * p[v]
			}
		}
		p = next
	}
	if clipped[0] == 0 || clipped[2] == 0 {
		t.Fatalf("entries of rows longer than the fan-out, by layer: %v", clipped)
	}
	total := 0.0
	for _, x := range p {
		total += x
	}
	got := gnsOn(t, Spec{Fanouts: fanouts, CacheBy: "walks"}, g, train).Caches().Distribution()
	for u := range p {
		if math.Abs(got[u]-p[u]/total) > 1e-14 {
			t.Fatalf("p(%d) = %v, want %v", u, got[u], p[u]/total)
		}
	}
}

// For other seeds this would fail with probability 1e-4.
func TestCacheIsSuccessiveSampling(t *testing.T) {
	// Out-degrees 1, 0, 5, 2, 3.
	w := []float32{1, 0, 5, 2, 3}
	rows := make([][]uint32, 5)
	for u, d := range w {
		for i := range int(d) {
			rows[i] = append(rows[i], uint32(u))
		}
	}
	c := gnsOn(t, Spec{Fanouts: []int{2}, CacheFraction: 0.4}, fromRows(rows...), nil).Caches()
	want := make(map[string]float64)
	successive(want, w, "", 1, 2)
	const draws = 20000
	got := make(map[string]int)
	for i := range draws {
		name := ""
		for _, u := range c.draw(i).Nodes {
			name += string(rune('a' + u))
		}
		got[name]++
	}
	var counts []int
	var expected []float64
	total := 0
	for set, p := range want {
		counts, expected, total = append(counts, got[set]), append(expected, p*draws), total+got[set]
	}
	if p := pValue(counts, expected, len(counts)-1); p < 1e-4 || total != draws {
		t.Errorf("caches are not drawn in proportion to the degree, p = %g, %d of %d possible", p, total, draws)
	}
}

func TestCacheNeighbors(t *testing.T) {
	g := skewed(1000, 200, 3)
	c := gnsOn(t, Spec{Fanouts: []int{5}, CacheFraction: 0.05}, g, nil).Caches().At(2)
	if len(c.Nodes) != 50 || !slices.IsSorted(c.Nodes) {
		t.Fatalf("the cache is %v, want 50 nodes in order", c.Nodes)
	}
	for i, u := range c.Nodes {
		if !c.Contains(u) || c.Slot(u) != i {
			t.Fatalf("node %d: slot %d, want %d", u, c.Slot(u), i)
		}
	}
	for v := range uint32(1000) {
		var want []CachedNeighbor
		for i, u := range g.InNeighbors(v) {
			if slices.Contains(c.Nodes, u) {
				want = append(want, CachedNeighbor{uint32(i), 1 / float32(c.Chance(u))})
			}
		}
		if !slices.Equal(c.Neighbors(v), want) {
			t.Fatalf("cached neighbours of %d: %v, want %v", v, c.Neighbors(v), want)
		}
	}
}

// aggregate returns (1/|S|)·Σ w·x over row 0, 0 for an empty row.
func aggregate(b *graph.Block, x func(u uint32) float64) float64 {
	sum := 0.0
	begin, end := b.Indptr[0], b.Indptr[1]
	for e := begin; e < end; e++ {
		w := 1.0
		if b.Weights != nil {
			w = float64(b.Weights[e])
		}
		sum += w * x(b.SrcIDs[b.Indices[e]])
	}
	return sum / max(1, float64(end-begin))
}

// The cache-only estimator divided by the degree is unbiased over caches and
// draws. So is, whatever it is divided by, that of rows which always have fewer
// cached neighbours than the fan-out, and more in all: given the cache, its entries
// stand for themselves. For the others the bias is measured. Over other seeds the
// z-test would fail with probability 6e-6 a node, 1.6e-4 in all.
func TestGNSBias(t *testing.T) {
	g := skewed(300, 300, 9)
	var targets []uint32
	for v := range uint32(300) {
		if g.Degree(v) > 40 && len(targets) < 6 {
			targets = append(targets, v)
		}
	}
	x := func(u uint32) float64 { return 1 + float64(u%7) + 20*float64(u)/300 }
	for _, c := range []struct {
		name     string
		spec     Spec
		mixed    bool // every row has cached entries and others
		unbiased bool
		bound    float64 // on the relative bias
	}{
		{"cache only, by degree", Spec{CacheOnly: true, Normalize: "degree"}, false, true, 0},
		{"cache only, by degree, all cached", Spec{CacheOnly: true, Normalize: "degree", CacheFraction: 1}, false, true, 0},
		{"cache only, by degree, eq. 13", Spec{CacheOnly: true, Normalize: "degree", CacheApproximate: true}, false, false, 0.5},
		{"cache only, by sum", Spec{CacheOnly: true}, false, false, 0.5},
		{"by degree", Spec{Normalize: "degree"}, false, false, 0.5},
		{"by sum", Spec{}, false, false, 0.2},
		{"mixed rows, by degree", Spec{Normalize: "degree", Fanouts: []int{36}, CacheFraction: 0.04}, true, true, 0},
		{"mixed rows, by sum", Spec{Fanouts: []int{36}, CacheFraction: 0.04}, true, true, 0},
	} {
		draws := 1500
		switch {
		case c.mixed:
			draws = 3000
		case c.unbiased:
			draws = 8000
		}
		spec := c.spec
		if spec.Fanouts == nil {
			spec.Fanouts = []int{4}
		}
		if spec.CacheFraction == 0 {
			spec.CacheFraction = 0.2
		}
		s := gnsOn(t, spec, g, nil).factory()
		sum, square := make([]float64, len(targets)), make([]float64, len(targets))
		var b Batch
		mixed := 0
		for i := range draws {
			b.ID.Epoch = i
			if spec.CacheFraction == 1 {
				b.ID.Epoch = 0
			}
			for j, v := range targets {
				if err := s.Sample(&b, rng.New(11, uint64(i)), []uint32{v}); err != nil {
					t.Fatal(err)
				}
				switch n := len(s.(*fused).picker.(*gns).cache.Neighbors(v)); {
				case c.mixed && n >= spec.Fanouts[0]:
					t.Fatalf("%s: node %d has %d cached neighbours", c.name, v, n)
				case n > 0:
					mixed++
				}
				y := aggregate(&b.Blocks[0], x)
				sum[j] += y
				square[j] += y * y
			}
		}
		if rows := draws * len(targets); c.mixed && mixed < rows*95/100 {
			t.Errorf("%s: %d of %d rows mix cached entries with others", c.name, mixed, rows)
		}
		worst := 0.0
		for j, v := range targets {
			want := 0.0
			for _, u := range g.InNeighbors(v) {
				want += x(u) / float64(g.Degree(v))
			}
			mean := sum[j] / float64(draws)
			sigma := math.Sqrt((square[j]/float64(draws) - mean*mean) / float64(draws))
			if z := (mean - want) / sigma; c.unbiased && math.Abs(z) > 4.5 {
				t.Errorf("%s: node %d aggregates to %.4f, want %.4f: %.1f standard errors", c.name, v, mean, want, z)
			}
			if bias := mean/want - 1; math.Abs(bias) > math.Abs(worst) {
				worst = bias
			}
		}
		t.Logf("%-35s worst relative bias %+.4f", c.name, worst)
		if !c.unbiased && math.Abs(worst) > c.bound {
			t.Errorf("%s: relative bias %+.3f", c.name, worst)
		}
	}
}

func TestGNSPrefersTheCache(t *testing.T) {
	g := skewed(4000, 500, 3)
	p := gnsOn(t, Spec{Fanouts: []int{8, 5}, CacheFraction: 0.03, EdgeIDs: true}, g, nil)
	cache := p.Caches().At(0)
	s := p.NewSampler()
	var b Batch
	seeds := Order(allNodes(g), 1, 0)[:300]
	if err := s.Sample(&b, 3, seeds); err != nil {
		t.Fatal(err)
	}
	checkBatch(t, g, &b, seeds)
	for i, k := range []int{5, 8} {
		blk := &b.Blocks[i]
		for r := range blk.NumDst {
			v := blk.SrcIDs[r]
			row := slices.Clone(blk.EdgeIDs[blk.Indptr[r]:blk.Indptr[r+1]])
			cached := 0
			for _, e := range row {
				if cache.Contains(g.Indices[e]) {
					cached++
				}
			}
			d := g.Degree(v)
			if len(row) != min(d, k) {
				t.Fatalf("node %d of degree %d: %d entries", v, d, len(row))
			}
			if want := min(k, len(cache.Neighbors(v))); d > k && cached != want {
				t.Fatalf("node %d: %d cached entries, want %d", v, cached, want)
			}
			slices.Sort(row)
			if len(slices.Compact(row)) != min(d, k) {
				t.Fatalf("node %d: an edge was taken twice", v)
			}
			mean := 0.0
			for _, w := range blk.Weights[blk.Indptr[r]:blk.Indptr[r+1]] {
				mean += float64(w) / float64(max(1, min(d, k)))
			}
			if d > 0 && math.Abs(mean-1) > 1e-5 {
				t.Fatalf("node %d: weights average %v, want 1", v, mean)
			}
		}
	}
}

func TestCachesGenerations(t *testing.T) {
	g := skewed(2000, 100, 3)
	p := gnsOn(t, Spec{Fanouts: []int{4}, CacheFraction: 0.02, CachePeriod: 2}, g, nil)
	// Whoever asks gets the same cache, made once.
	got := make([]*Cache, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = p.Caches().At(1) })
	}
	wg.Wait()
	for _, c := range got {
		if c != got[0] {
			t.Fatal("a generation was made twice")
		}
	}
	nodes := slices.Clone(got[0].Nodes)
	for gen := range 10 {
		p.Caches().At(gen)
		if n := len(p.Caches().made); n > keepGenerations {
			t.Fatalf("%d generations are kept", n)
		}
	}
	again := p.Caches().At(1)
	if again == got[0] || !slices.Equal(again.Nodes, nodes) {
		t.Error("a generation that was forgotten is not drawn again the same")
	}
	// Epochs 2 and 3 use generation 1.
	s := p.factory().(*fused)
	var b Batch
	for epoch, gen := range []int{0, 0, 1, 1, 2} {
		b.ID.Epoch = epoch
		if err := s.Sample(&b, 1, []uint32{7}); err != nil {
			t.Fatal(err)
		}
		if c := s.picker.(*gns).cache; c.Generation != gen {
			t.Errorf("epoch %d uses generation %d, want %d", epoch, c.Generation, gen)
		}
	}
	sameBits(t, p, Order(allNodes(g), 1, 0), 128)
}

func TestGNSErrors(t *testing.T) {
	g := skewed(100, 10, 3)
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{CacheFraction: 2}, "at most 1"},
		{Spec{CacheFraction: math.NaN()}, "at most 1"},
		{Spec{CacheBy: "luck"}, "degree or walks"},
		{Spec{CacheBy: "walks"}, "the data has none"},
		{Spec{Normalize: "luck"}, "sum or degree"},
		{Spec{CachePeriod: -1}, "at least 1"},
	} {
		c.spec.Name, c.spec.Fanouts = "gns", []int{3}
		if _, err := New(t.Context(), c.spec, g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
}

func BenchmarkGNSCache(b *testing.B) {
	p := gnsOn(b, Spec{Fanouts: []int{15, 10, 5}}, loadBenchGraph(b), nil)
	b.ResetTimer()
	for i := range b.N {
		p.Caches().draw(i)
	}
}
