package sampling

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

func mustPrepare(t testing.TB, spec Spec, g *graph.Graph) *Prepared {
	t.Helper()
	p, err := Prepare(t.Context(), spec, &graph.Dataset{Graph: g}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkBatch verifies what every node-wise sampler promises of a batch.
func checkBatch(t *testing.T, g *graph.Graph, b *Batch, seeds []uint32) {
	t.Helper()
	if !slices.Equal(b.Seeds, seeds) {
		t.Fatalf("seeds are %v, want %v", b.Seeds, seeds)
	}
	last := &b.Blocks[len(b.Blocks)-1]
	if !slices.Equal(last.SrcIDs[:last.NumDst], seeds) {
		t.Fatalf("destinations of the last block are not the seeds")
	}
	for i := range b.Blocks {
		blk := &b.Blocks[i]
		if i+1 < len(b.Blocks) && blk.NumDst != b.Blocks[i+1].NumSrc {
			t.Fatalf("block %d has %d destinations, the next one %d sources", i, blk.NumDst, b.Blocks[i+1].NumSrc)
		}
		if len(blk.Indptr) != blk.NumDst+1 || blk.Indptr[0] != 0 || blk.Indptr[blk.NumDst] != int64(len(blk.Indices)) || len(blk.SrcIDs) != blk.NumSrc {
			t.Fatalf("block %d: sizes do not agree", i)
		}
		seen := make(map[uint32]bool)
		for _, u := range blk.SrcIDs {
			if seen[u] {
				t.Fatalf("block %d: node %d has two local ids", i, u)
			}
			seen[u] = true
		}
		next := uint32(blk.NumDst)
		for _, j := range blk.Indices {
			if j > next {
				t.Fatalf("block %d: local id %d comes before %d", i, j, next)
			}
			if j == next {
				next++
			}
		}
		if int(next) != blk.NumSrc {
			t.Fatalf("block %d has %d sources, but only %d occur", i, blk.NumSrc, next)
		}
		for r := range blk.NumDst {
			v := blk.SrcIDs[r]
			if blk.EdgeIDs == nil {
				continue
			}
			for e := blk.Indptr[r]; e < blk.Indptr[r+1]; e++ {
				p := blk.EdgeIDs[e]
				if p < g.Indptr[v] || p >= g.Indptr[v+1] || g.Indices[p] != blk.SrcIDs[blk.Indices[e]] {
					t.Fatalf("block %d: entry %d is not edge %d of node %d", i, e, p, v)
				}
			}
		}
	}
}

func TestNeighborBlocks(t *testing.T) {
	g := skewed(2000, 400, 1)
	for _, fanouts := range [][]int{{1}, {5}, {15, 10, 5}, {3, -1}, {-1, 2}, {70, 2}, {300}, {10000, 5}} {
		s := mustPrepare(t, Spec{Name: "neighbor", Fanouts: fanouts, EdgeIDs: true}, g).NewSampler()
		var b Batch
		for i, n := range []int{1, 40, 0, 500, 2000} {
			seeds := Order(allNodes(g), 3, i)[:n]
			if err := s.Sample(&b, rng.New(9, uint64(i)), seeds); err != nil {
				t.Fatal(err)
			}
			checkBatch(t, g, &b, seeds)
			for hop, k := range fanouts {
				blk := &b.Blocks[len(fanouts)-1-hop]
				for r := range blk.NumDst {
					v := blk.SrcIDs[r]
					row := slices.Clone(blk.EdgeIDs[blk.Indptr[r]:blk.Indptr[r+1]])
					want := g.Degree(v)
					if k >= 0 {
						want = min(k, want)
					}
					if len(row) != want {
						t.Fatalf("node %d of degree %d, fan-out %d: %d entries", v, g.Degree(v), k, len(row))
					}
					if want == g.Degree(v) && !slices.IsSorted(row) {
						t.Fatalf("node %d: a row taken whole is not in the graph's order", v)
					}
					slices.Sort(row)
					if len(slices.Compact(row)) != want {
						t.Fatalf("node %d: an edge was drawn twice", v)
					}
				}
			}
		}
	}
}

func allNodes(g *graph.Graph) []uint32 {
	p := make([]uint32, g.NumNodes())
	for i := range p {
		p[i] = uint32(i)
	}
	return p
}

// The reference is the definition in plain Go: Floyd's method on a map, the id
// map a Go map.
func TestNeighborEqualsReference(t *testing.T) {
	g := skewed(3000, 3000, 2)
	for _, fanouts := range [][]int{{15, 10, 5}, {100, 3}, {2, -1}} {
		seeds := Order(allNodes(g), 1, 0)[:300]
		key := rng.New(5, 6)
		var b Batch
		if err := mustPrepare(t, Spec{Name: "neighbor", Fanouts: fanouts}, g).NewSampler().Sample(&b, key, seeds); err != nil {
			t.Fatal(err)
		}
		nodes := slices.Clone(seeds)
		local := make(map[uint32]uint32)
		for i, u := range nodes {
			local[u] = uint32(i)
		}
		for hop, k := range fanouts {
			var indices []uint32
			for _, v := range slices.Clone(nodes) {
				row := g.InNeighbors(v)
				var chosen []uint32
				if d := len(row); k < 0 || d <= k {
					chosen = row
				} else {
					drawn := make(map[int]bool)
					vk := key.With(uint64(hop)).With(uint64(v))
					for i := range k {
						p := int(vk.Uintn(uint64(i), uint64(d-k+i+1)))
						if drawn[p] {
							p = d - k + i
						}
						drawn[p] = true
						chosen = append(chosen, row[p])
					}
				}
				for _, u := range chosen {
					if _, ok := local[u]; !ok {
						local[u] = uint32(len(nodes))
						nodes = append(nodes, u)
					}
					indices = append(indices, local[u])
				}
			}
			blk := b.Blocks[len(fanouts)-1-hop]
			if !slices.Equal(blk.Indices, indices) || !slices.Equal(blk.SrcIDs, nodes) {
				t.Fatalf("fan-outs %v: layer %d differs from the reference", fanouts, hop)
			}
		}
	}
}

// pValue returns the probability of a chi-square statistic this large or
// larger when the counts have the expected values.
func pValue(counts []int, expected []float64, freedom int) float64 {
	x := 0.0
	for i, c := range counts {
		d := float64(c) - expected[i]
		x += d * d / expected[i]
	}
	return distuv.ChiSquared{K: float64(freedom)}.Survival(x)
}

// A uniform k-subset of d includes each of the d(d-1)/2 pairs equally often.
// With fixed seeds the test either passes always or never; for another choice
// of seeds it would fail with probability 1e-4 per case, 8e-4 in all.
func TestNeighborSubsetsUniform(t *testing.T) {
	for _, c := range []struct{ k, d int }{{1, 7}, {2, 7}, {5, 7}, {6, 7}, {15, 40}, {5, 1500}, {64, 90}, {65, 90}} {
		rows := [][]uint32{make([]uint32, c.d)}
		for i := range rows[0] {
			rows[0][i] = uint32(i % 2)
		}
		g := fromRows(append(rows, nil)...)
		s := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{c.k}, EdgeIDs: true}, g).NewSampler()
		const draws = 20000
		single := make([]int, c.d)
		pairs := make([]int, min(c.d, 40)*min(c.d, 40))
		side := min(c.d, 40)
		var b Batch
		for i := range draws {
			if err := s.Sample(&b, rng.New(4, uint64(i)), []uint32{0}); err != nil {
				t.Fatal(err)
			}
			for x, p := range b.Blocks[0].EdgeIDs {
				single[p]++
				for _, q := range b.Blocks[0].EdgeIDs[x+1:] {
					if lo, hi := min(p, q), max(p, q); int(hi) < side {
						pairs[int(lo)*side+int(hi)]++
					}
				}
			}
		}
		// Inclusions are negatively correlated with correlation -1/(d-1), so the
		// statistic over singles is (1-k/d)·d/(d-1) times a chi-square with d-1 degrees of freedom.
		want := float64(draws) * float64(c.k) / float64(c.d)
		x := 0.0
		for _, n := range single {
			x += (float64(n) - want) * (float64(n) - want) / want
		}
		x /= (1 - float64(c.k)/float64(c.d)) * float64(c.d) / float64(c.d-1)
		if p := (distuv.ChiSquared{K: float64(c.d - 1)}).Survival(x); p < 1e-4 {
			t.Errorf("k=%d d=%d: inclusion is not uniform, p = %g", c.k, c.d, p)
		}
		// Pair frequencies, each within its binomial 5.5 sigma (two-sided 4e-8, times
		// at most 780 pairs: below 1e-4).
		if c.k >= 2 {
			p2 := float64(c.k*(c.k-1)) / float64(c.d*(c.d-1))
			sigma := math.Sqrt(draws * p2 * (1 - p2))
			for lo := range side {
				for hi := lo + 1; hi < side; hi++ {
					if n := float64(pairs[lo*side+hi]); math.Abs(n-draws*p2) > 5.5*sigma+5 {
						t.Errorf("k=%d d=%d: pair (%d, %d) occurs %v times, want %.0f", c.k, c.d, lo, hi, n, draws*p2)
					}
				}
			}
		}
	}
}

func TestSeedErrors(t *testing.T) {
	g := skewed(50, 10, 1)
	for _, name := range []string{"full", "khop", "neighbor"} {
		spec := Spec{Name: name, Layers: 2}
		if name == "neighbor" {
			spec.Fanouts = []int{3, 3}
		}
		s := mustPrepare(t, spec, g).NewSampler()
		var b Batch
		if err := s.Sample(&b, 1, []uint32{4, 7, 4}); err == nil || !strings.Contains(err.Error(), "both node 4") {
			t.Errorf("%s: duplicate seeds: %v", name, err)
		}
		if err := s.Sample(&b, 1, []uint32{4, 50}); err == nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("%s: seed out of range: %v", name, err)
		}
		if err := s.Sample(&b, 1, []uint32{4, 49}); err != nil {
			t.Errorf("%s: a sampler does not work after an error: %v", name, err)
		}
	}
}

func TestSpecErrors(t *testing.T) {
	g := skewed(50, 10, 1)
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "nonsense"}, "choose one of"},
		{Spec{Name: "neighbor"}, "number of layers"},
		{Spec{Name: "neighbor", Fanouts: []int{3, 0}}, "fan-out 2 is 0"},
		{Spec{Name: "neighbor", Fanouts: []int{3}, Layers: 2}, "1 fan-outs given for 2 layers"},
		{Spec{Name: "khop", Fanouts: []int{3}}, "no fan-outs"},
		{Spec{Name: "full", Layers: -1}, "layers is -1"},
	} {
		if _, err := New(t.Context(), c.spec, g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want one with %q", c.spec, err, c.want)
		}
	}
	if _, err := Prepare(t.Context(), Spec{Name: "full", Layers: 1}, &graph.Dataset{}, 0); err == nil {
		t.Error("a data set without a graph was accepted")
	}
}

func TestFull(t *testing.T) {
	g := skewed(100, 10, 1)
	s := mustPrepare(t, Spec{Name: "full", Layers: 3}, g).NewSampler()
	var b Batch
	if err := s.Sample(&b, 1, []uint32{9, 3}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Seeds, []uint32{9, 3}) || !slices.Equal(b.Targets, b.Seeds) || len(b.Blocks) != 3 || b.Inputs() != nil || b.NumInputs() != 100 {
		t.Errorf("batch is %+v", b)
	}
	if &b.Blocks[2].Indices[0] != &g.Indices[0] {
		t.Error("the block does not alias the graph")
	}
	if n := (Spec{Name: "full"}).BatchSize(64, 140); n != 140 {
		t.Errorf("batch size is %d, want 140", n)
	}
}

func TestKHopIsBreadthFirst(t *testing.T) {
	g := skewed(300, 12, 4)
	var b Batch
	if err := mustPrepare(t, Spec{Name: "khop", Layers: 2}, g).NewSampler().Sample(&b, 1, []uint32{5, 6}); err != nil {
		t.Fatal(err)
	}
	checkBatch(t, g, &b, []uint32{5, 6})
	reached := map[uint32]bool{5: true, 6: true}
	for range 2 {
		for v := range reached {
			reached[v] = true
		}
		next := make(map[uint32]bool)
		for v := range reached {
			next[v] = true
			for _, u := range g.InNeighbors(v) {
				next[u] = true
			}
		}
		reached = next
	}
	if len(reached) != b.NumInputs() {
		t.Errorf("%d input nodes, want %d", b.NumInputs(), len(reached))
	}
}

// clone copies what a batch says, not its spare memory.
func (b *Batch) clone() Batch {
	c := Batch{ID: b.ID, Seeds: slices.Clone(b.Seeds), Targets: slices.Clone(b.Targets), LossWeights: slices.Clone(b.LossWeights)}
	for _, blk := range b.Blocks {
		blk.Indptr, blk.Indices, blk.Weights = slices.Clone(blk.Indptr), slices.Clone(blk.Indices), slices.Clone(blk.Weights)
		blk.EdgeIDs, blk.SrcIDs = slices.Clone(blk.EdgeIDs), slices.Clone(blk.SrcIDs)
		c.Blocks = append(c.Blocks, blk)
	}
	return c
}

// A batch depends on nothing but its key and seeds: not on the sampler's
// history, nor on what other samplers do meanwhile.
func TestSameBitsForAnyNumberOfSamplers(t *testing.T) {
	g := skewed(4000, 300, 8)
	order := Order(allNodes(g), 1, 0)
	p := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{10, 5}}, g)
	sameBits(t, p, order, 128)
}

func sameBits(t *testing.T, p *Prepared, order []uint32, batchSize int) {
	t.Helper()
	n := NumBatches(len(order), batchSize)
	var want []Batch
	for _, samplers := range []int{1, 2, 5} {
		got := make([]Batch, n)
		var wg sync.WaitGroup
		for w := range samplers {
			wg.Go(func() {
				s := p.NewSampler()
				var b Batch
				for i := w; i < n; i += samplers {
					b.ID = ID{Phase: "train", Batch: i}
					if err := s.Sample(&b, b.ID.Key(7), Cut(order, batchSize, 1, i, 0)); err != nil {
						t.Error(err)
						return
					}
					got[i] = b.clone()
				}
			})
		}
		wg.Wait()
		if want == nil {
			want = got
		} else if !reflect.DeepEqual(want, got) {
			t.Fatalf("%d samplers give other batches than 1", samplers)
		}
	}
}

func TestNeighborAllocatesNothing(t *testing.T) {
	g := skewed(4000, 300, 8)
	seeds := Order(allNodes(g), 1, 0)[:256]
	s := mustPrepare(t, Spec{Name: "neighbor", Fanouts: []int{10, 5}, EdgeIDs: true}, g).NewSampler()
	var b Batch
	key := rng.New(1)
	sample := func() {
		if err := s.Sample(&b, key, seeds); err != nil {
			t.Fatal(err)
		}
	}
	sample()
	if n := testing.AllocsPerRun(10, sample); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}

func TestCut(t *testing.T) {
	nodes := allNodes(&graph.Graph{Indptr: make([]int64, 24)})
	order := Order(nodes, 1, 2)
	if slices.Equal(order, nodes) || slices.Equal(order, Order(nodes, 1, 3)) || !slices.Equal(order, Order(nodes, 1, 2)) {
		t.Error("the order is not a permutation keyed by the epoch")
	}
	for _, size := range []int{1, 5, 23, 100} {
		for _, micro := range []int{1, 2, 4, 7} {
			var all []uint32
			for i := range NumBatches(len(order), size) {
				of := NumMicro(len(order), size, micro, i)
				if want := min(micro, min(size, len(order)-i*size)); of != want {
					t.Fatalf("batch %d of size %d: %d micro-batches, want %d", i, size, of, want)
				}
				longest, shortest := 0, len(order)
				for j := range of {
					part := Cut(order, size, micro, i, j)
					longest, shortest = max(longest, len(part)), min(shortest, len(part))
					all = append(all, part...)
				}
				if longest-shortest > 1 {
					t.Fatalf("parts of %d and %d seeds", longest, shortest)
				}
			}
			if !slices.Equal(all, order) {
				t.Fatalf("size %d, micro %d: the parts are not the order", size, micro)
			}
		}
	}
}

func TestIDMapWraps(t *testing.T) {
	var m idMap
	m.clear()
	m.base = math.MaxUint32 - 3000
	for round := range 5 {
		m.clear()
		ids := []uint32{7, 9, 7, 11, uint32(round) + 100}
		nodes := m.number(ids, make([]uint32, 0, 5))
		if !slices.Equal(ids, []uint32{0, 1, 0, 2, 3}) || len(nodes) != 4 {
			t.Fatalf("round %d: numbered %v, nodes %v", round, ids, nodes)
		}
		for i := range 500 {
			m.put(uint32(1000 + i))
		}
	}
	if m.base > math.MaxUint32/2 {
		t.Error("the table was not swept before the values ran out")
	}
}

// BenchmarkSampler samples with all node-wise and layer-wise samplers.
func BenchmarkSampler(b *testing.B) {
	g := loadBenchGraph(b)
	fanouts := []int{15, 10, 5}
	for _, c := range []struct {
		name string
		spec Spec
	}{
		{"neighbor", Spec{Name: "neighbor", Fanouts: fanouts}},
		{"replace", Spec{Name: "neighbor", Fanouts: fanouts, Replace: true}},
		{"labor", Spec{Name: "labor", Fanouts: fanouts}},
		{"gns", Spec{Name: "gns", Fanouts: fanouts}},
		{"pinsage", Spec{Name: "pinsage", Fanouts: []int{5, 5, 5}}},
		{"fastgcn", Spec{Name: "fastgcn", Fanouts: []int{8192, 8192, 8192}}},
		{"ladies", Spec{Name: "ladies", Fanouts: []int{8192, 8192, 8192}}},
		{"ladies4096", Spec{Name: "ladies", Fanouts: []int{4096, 4096, 4096}}},
		{"lazy", Spec{Name: "lazy", Fanouts: fanouts, MiniBatch: 1024}},
	} {
		p := mustPrepare(b, c.spec, g)
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				benchSampler(b, p, benchSeeds(g), 1024, threads)
				if p.Caches() != nil {
					b.ReportMetric(cachedShare(b, p, benchSeeds(g)), "cached/input")
				}
			})
		}
	}
}

// cachedShare returns the share of a batch's input nodes that are cached.
func cachedShare(b *testing.B, p *Prepared, seeds []uint32) float64 {
	var bt Batch
	if err := p.NewSampler().Sample(&bt, 1, seeds[:1024]); err != nil {
		b.Fatal(err)
	}
	n := 0
	for _, u := range bt.Inputs() {
		if p.Caches().At(0).Contains(u) {
			n++
		}
	}
	return float64(n) / float64(bt.NumInputs())
}

// processTime returns the CPU seconds that this process has used: on a shared
// machine they say more than wall time.
func processTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// benchSampler reports sampled edges, rows, batches and input nodes of p's batches.
func benchSampler(b *testing.B, p *Prepared, seeds []uint32, batchSize, threads int) {
	b.ReportAllocs()
	order := Order(seeds, 1, 0)
	n := len(order) / batchSize
	type total struct{ edges, rows, nodes, batches int }
	totals := make([]total, threads)
	samplers := make([]Sampler, threads)
	batches := make([]Batch, threads)
	run := func(w, i int) {
		bt := &batches[w]
		bt.ID = ID{Phase: "train", Batch: i % n}
		if p.ChoosesSeeds() {
			bt.ID.Batch = i // always another one
		}
		if err := samplers[w].Sample(bt, bt.ID.Key(1), Cut(order, batchSize, 1, i%n, 0)); err != nil {
			b.Error(err)
		}
		totals[w].edges += bt.NumEdges()
		for i := range bt.Blocks {
			totals[w].rows += bt.Blocks[i].NumDst
		}
		totals[w].nodes += bt.NumInputs()
		totals[w].batches++
	}
	for w := range threads {
		samplers[w] = p.NewSampler()
		run(w, w)
	}
	clear(totals)
	b.ResetTimer()
	cpu := processTime()
	var wg sync.WaitGroup
	for w := range threads {
		wg.Go(func() {
			for i := w; i < b.N; i += threads {
				run(w, i)
			}
		})
	}
	wg.Wait()
	var sum total
	for _, t := range totals {
		sum.edges, sum.rows, sum.nodes, sum.batches = sum.edges+t.edges, sum.rows+t.rows, sum.nodes+t.nodes, sum.batches+t.batches
	}
	cpu = processTime() - cpu
	sec := b.Elapsed().Seconds()
	b.ReportMetric(float64(sum.edges)/cpu/1e6, "Medges/cpu-s")
	b.ReportMetric(float64(sum.edges)/sec/1e6, "Medges/s")
	b.ReportMetric(float64(sum.rows)/sec/1e6, "Mrows/s")
	b.ReportMetric(float64(sum.batches)/sec, "batches/s")
	b.ReportMetric(float64(sum.edges)/float64(sum.batches), "edges/batch")
	b.ReportMetric(float64(sum.nodes)/float64(sum.batches), "inputs/batch")
}
