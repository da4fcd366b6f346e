package sampling

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// For other seeds the test would fail with probability 6e-6 a node.
func TestFastGCNIsUnbiased(t *testing.T) {
	g := skewed(300, 60, 9)
	x := func(u uint32) float64 { return 1 + float64(u%7) }
	var seeds []uint32
	for v := range uint32(300) {
		if g.Degree(v) > 5 && len(seeds) < 8 {
			seeds = append(seeds, v)
		}
	}
	s := mustPrepare(t, Spec{Name: "fastgcn", Fanouts: []int{100}}, g).NewSampler()
	sum, square := make([]float64, len(seeds)), make([]float64, len(seeds))
	const draws = 20000
	var b Batch
	for i := range draws {
		if err := s.Sample(&b, rng.New(2, uint64(i)), seeds); err != nil {
			t.Fatal(err)
		}
		blk := &b.Blocks[0]
		for r := range seeds {
			y, n := 0.0, max(1, float64(blk.Indptr[r+1]-blk.Indptr[r]))
			for e := blk.Indptr[r]; e < blk.Indptr[r+1]; e++ {
				y += float64(blk.Weights[e]) * x(blk.SrcIDs[blk.Indices[e]]) / n
			}
			sum[r] += y
			square[r] += y * y
		}
	}
	for r, v := range seeds {
		want := 0.0
		for _, u := range g.InNeighbors(v) {
			if u != v { // the model adds it
				want += x(u) / float64(g.Degree(v))
			}
		}
		if slices.Contains(g.InNeighbors(v), v) {
			continue // a loop may be drawn for another destination's sake
		}
		mean := sum[r] / draws
		sigma := math.Sqrt((square[r]/draws - mean*mean) / draws)
		if math.Abs(mean-want) > 4.5*sigma {
			t.Errorf("node %d aggregates to %.3f ± %.3f, want %.3f", v, mean, sigma, want)
		}
	}
}

// The reference draws the candidates' keys by the definition and keeps the s
// smallest.
func TestLadiesEqualsReference(t *testing.T) {
	g := skewed(800, 80, 9)
	seeds := Order(allNodes(g), 1, 0)[:40]
	fanouts := []int{60, 90}
	key := rng.New(6)
	var b Batch
	if err := mustPrepare(t, Spec{Name: "ladies", Fanouts: fanouts, EdgeIDs: true}, g).NewSampler().Sample(&b, key, seeds); err != nil {
		t.Fatal(err)
	}
	checkBatch(t, g, &b, seeds)
	d := func(u uint32) float64 { return float64(g.Degree(u) + 1) }
	for hop, size := range fanouts {
		blk := &b.Blocks[len(fanouts)-1-hop]
		if len(blk.EdgeIDs) != len(blk.Indices) {
			t.Fatalf("hop %d: %d edge ids", hop, len(blk.EdgeIDs))
		}
		dst := blk.SrcIDs[:blk.NumDst]
		q := make(map[uint32]float64)
		for _, v := range dst {
			q[v] += 1 / (d(v) * d(v))
			for _, u := range g.InNeighbors(v) {
				if u != v {
					q[u] += 1 / (d(v) * d(u))
				}
			}
		}
		var candidates []uint32
		for u := range q {
			candidates = append(candidates, u)
		}
		score := func(u uint32) float64 { return -math.Log(key.With(uint64(hop)).Open(uint64(u))) / q[u] }
		slices.SortFunc(candidates, func(u, v uint32) int { return cmp.Compare(score(u), score(v)) })
		in := make(map[uint32]bool)
		for _, u := range candidates[:min(size, len(candidates))] {
			in[u] = true
		}
		for _, v := range dst {
			in[v] = true
		}
		for r, v := range dst {
			var want []uint32
			total := 0.0
			for _, u := range g.InNeighbors(v) {
				if in[u] {
					want = append(want, u)
					total += 1 / q[u]
				}
			}
			begin, end := blk.Indptr[r], blk.Indptr[r+1]
			if int(end-begin) != len(want) {
				t.Fatalf("hop %d, node %d: %d entries, want %d", hop, v, end-begin, len(want))
			}
			for i, u := range want {
				e := begin + int64(i)
				if blk.SrcIDs[blk.Indices[e]] != u {
					t.Fatalf("hop %d, node %d: entry %d is node %d, want %d", hop, v, i, blk.SrcIDs[blk.Indices[e]], u)
				}
				if w := float64(len(want)) / q[u] / total; math.Abs(float64(blk.Weights[e])-w) > 1e-5*w {
					t.Fatalf("hop %d, node %d: entry %d weighs %v, want %v", hop, v, i, blk.Weights[e], w)
				}
			}
		}
	}
}

func TestLayerwiseSameBits(t *testing.T) {
	g := skewed(2000, 60, 1)
	for _, spec := range []Spec{
		{Name: "fastgcn", Fanouts: []int{200, 200}},
		{Name: "ladies", Fanouts: []int{200, 200}},
		{Name: "lazy", Fanouts: []int{5, 5}, Recycle: 3, MiniBatch: 150},
		{Name: "pinsage", Fanouts: []int{4, 4}},
	} {
		sameBits(t, mustPrepare(t, spec, g), allNodes(g), 150)
		allocatesNothing(t, mustPrepare(t, spec, g), allNodes(g)[:200])
	}
}

func allocatesNothing(t *testing.T, p *Prepared, seeds []uint32) {
	t.Helper()
	s := p.NewSampler()
	var b Batch
	sample := func() {
		if err := s.Sample(&b, 3, seeds); err != nil {
			t.Fatal(err)
		}
	}
	sample()
	if n := testing.AllocsPerRun(5, sample); n != 0 {
		t.Errorf("%s: %v allocations per batch", p.Spec().Name, n)
	}
}

// The reference walks one walk at a time and counts in a map.
func TestPinSAGEEqualsReference(t *testing.T) {
	g := skewed(700, 30, 4)
	spec := Spec{Name: "pinsage", Fanouts: []int{4, 3}, Walks: 7, WalkLength: 3, Restart: 0.3}
	seeds := Order(allNodes(g), 1, 0)[:80]
	key := rng.New(6)
	var b Batch
	if err := mustPrepare(t, spec, g).NewSampler().Sample(&b, key, seeds); err != nil {
		t.Fatal(err)
	}
	checkBatch(t, g, &b, seeds)
	for hop, k := range spec.Fanouts {
		blk := &b.Blocks[len(spec.Fanouts)-1-hop]
		for r, v := range blk.SrcIDs[:blk.NumDst] {
			rk := key.With(uint64(hop)).With(uint64(v))
			counts := make(map[uint32]int)
			var order []uint32
			for w := range spec.Walks {
				at := v
				for step := range spec.WalkLength {
					draw := uint64(2 * (w*spec.WalkLength + step))
					if rk.Float64(draw) < spec.Restart {
						at = v
					}
					if row := g.InNeighbors(at); len(row) > 0 {
						at = row[rk.Uintn(draw+1, uint64(len(row)))]
					}
					if at != v {
						if counts[at] == 0 {
							order = append(order, at)
						}
						counts[at]++
					}
				}
			}
			slices.SortStableFunc(order, func(u, w uint32) int { return counts[w] - counts[u] })
			order = order[:min(k, len(order))]
			total := 0
			for _, u := range order {
				total += counts[u]
			}
			begin, end := blk.Indptr[r], blk.Indptr[r+1]
			if int(end-begin) != len(order) {
				t.Fatalf("node %d: %d entries, want %d", v, end-begin, len(order))
			}
			for i, u := range order {
				e := begin + int64(i)
				if got := blk.SrcIDs[blk.Indices[e]]; got != u {
					t.Fatalf("node %d: entry %d is node %d, want %d", v, i, got, u)
				}
				if w := float64(counts[u]*len(order)) / float64(total); math.Abs(float64(blk.Weights[e])-w) > 1e-6*w {
					t.Fatalf("node %d: entry %d weighs %v, want %v", v, i, blk.Weights[e], w)
				}
			}
		}
	}
}

func TestLayerwiseErrors(t *testing.T) {
	g := skewed(100, 10, 3)
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "fastgcn", Fanouts: []int{-1}}, "number of nodes of the layer"},
		{Spec{Name: "ladies", Layers: 2}, "0 fan-outs given"},
		{Spec{Name: "lazy", Fanouts: []int{2}, MiniBatch: 2, RecycleGrowth: 0.5}, "at least 1"},
		{Spec{Name: "lazy", Fanouts: []int{2}}, "give mini-batch"},
		{Spec{Name: "lazy", Fanouts: []int{2}, MiniBatch: 8, MegaBatch: 7}, "at least as many, like mega-batch=32"},
		{Spec{Name: "pinsage", Fanouts: []int{-1}}, "at least 1"},
		{Spec{Name: "pinsage", Fanouts: []int{2}, Restart: 1}, "restart=1: it takes"},
		{Spec{Name: "pinsage", Fanouts: []int{2}, EdgeIDs: true}, "edge ids"},
		{Spec{Name: "labor", Fanouts: []int{2}, Dependency: -1}, "dependency"},
	} {
		if _, err := New(t.Context(), c.spec, g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
	// Graphs without edges, and no seeds at all.
	for _, spec := range []Spec{{Name: "fastgcn", Fanouts: []int{5}}, {Name: "ladies", Fanouts: []int{5}}, {Name: "lazy", Fanouts: []int{2}, MiniBatch: 9}, {Name: "pinsage", Fanouts: []int{2}}, {Name: "labor", Fanouts: []int{2}}, {Name: "gns", Fanouts: []int{2}}} {
		for _, g := range []*graph.Graph{fromRows(nil, nil), fromRows()} {
			s, err := New(t.Context(), spec, g)
			if err != nil {
				t.Fatal(err)
			}
			var b Batch
			if err := s.Sample(&b, 1, allNodes(g)); err != nil || b.NumEdges() != 0 || len(b.Seeds) != g.NumNodes() {
				t.Errorf("%s: %d edges, error %v", spec.Name, b.NumEdges(), err)
			}
		}
	}
}

func TestStats(t *testing.T) {
	g := fromRows([]uint32{1, 2, 3}, []uint32{0}, nil, nil)
	var s Stats
	add := func(seeds []uint32, indptr []int64, indices []uint32, src []uint32, weights []float32) {
		s.Add(g, &Batch{Seeds: seeds, Blocks: []graph.Block{{NumDst: len(seeds), NumSrc: len(src), Indptr: indptr, Indices: indices, SrcIDs: src, Weights: weights}}}, true)
	}
	add([]uint32{0, 2}, []int64{0, 2, 2}, []uint32{2, 1}, []uint32{0, 2, 1}, nil)
	add([]uint32{1}, []int64{0, 0}, nil, []uint32{1}, nil)
	want := (signal(1)+signal(2))/2 - (signal(1)+signal(2)+signal(3))/3
	got := s
	got.last, got.cur = nil, nil
	expect := Stats{
		Batches: 2, Inputs: 4, Degrees: []int64{2, 0, 1}, InputDegrees: []int64{1, 2, 0, 1}, Match: 1, Pairs: 1,
		Layers: []LayerStats{{Destinations: 3, Sources: 4, Edges: 2, Rows: 2, Isolated: 1, ErrorRows: 2, SquaredError: want*want + 1}},
	}
	if !reflect.DeepEqual(got, expect) {
		t.Errorf("stats are %+v, want %+v", got, expect)
	}
}

// The last layer's sums, which go on from layer to layer, are to the bit those of
// its destinations' rows alone, with loops and parallel edges in the way, also where
// parts are large and not all rows can be dealt at once.
func TestLadiesSumsGoOn(t *testing.T) {
	key, rows := rng.New(8), make([][]uint32, 400)
	for v := range rows {
		for i := range 1 + key.Uintn(uint64(v), 60) {
			u := uint32(key.With(uint64(v)).Uintn(i, 400))
			if i%7 == 0 {
				u = uint32(v)
			}
			rows[v] = append(rows[v], u*u/400)
		}
		rows[v] = append(rows[v], uint32(v), rows[v][0])
	}
	g := fromRows(rows...)
	s := mustPrepare(t, Spec{Name: "ladies", Fanouts: []int{20, 30, 400}}, g).factory().(*layerwise)
	var b Batch
	for batch := range 4 { // what is kept of one batch must not show in the next
		if batch == 2 {
			large := ladiesOf(g, 8)
			if large.most<<large.shift != 1<<32 {
				t.Errorf("%d rows of parts of %d nodes do not fit 32 bits, or more would", large.most, 1<<large.shift)
			}
			large.most, s.drawer = 3, large
		}
		if err := s.Sample(&b, rng.New(uint64(batch)), []uint32{5, 77, 200 + uint32(batch)}); err != nil {
			t.Fatal(err)
		}
		q := map[uint32]float64{}
		dst := b.Blocks[0].SrcIDs[:b.Blocks[0].NumDst]
		for _, v := range dst {
			inv := 1 / float64(g.Degree(v)+1)
			q[v] = inv * inv
		}
		for _, v := range dst {
			for _, u := range g.InNeighbors(v) {
				if u != v {
					q[u] += 1 / float64(g.Degree(v)+1) / float64(g.Degree(u)+1)
				}
			}
		}
		if len(s.set.nodes) != len(q) {
			t.Fatalf("batch %d: %d candidates, want %d", batch, len(s.set.nodes), len(q))
		}
		for i, u := range s.set.nodes {
			if s.raw[i] != 1/q[u] {
				t.Fatalf("batch %d: the sum of node %d is %v, want %v", batch, u, 1/s.raw[i], q[u])
			}
		}
	}
}

// How far a sampler looked for a layer's nodes in the batch before, of other seeds, does not
// show in what it draws.
func TestLadiesForgetsBatches(t *testing.T) {
	g := skewed(3000, 40, 9)
	p := mustPrepare(t, Spec{Name: "ladies", Fanouts: []int{30, 60, 3000}}, g)
	s := p.NewSampler()
	for i, seeds := range []int{500, 2, 500, 1, 40, 3} {
		var got, want Batch
		key, order := rng.New(uint64(i)), Order(allNodes(g), uint64(i), 0)
		for s, b := range map[Sampler]*Batch{s: &got, p.NewSampler(): &want} {
			if err := s.Sample(b, key, order[:seeds]); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got.Blocks, want.Blocks) {
			t.Errorf("batch %d, of %d seeds, is another one than a new sampler's", i, seeds)
		}
	}
}
