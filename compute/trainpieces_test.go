package compute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// dividedBatch is what of targets, nodes of the whole graph in ascending order, lies in each of pieces.
func dividedBatch(pieces []*Piece, targets []uint32, labels []int32) func(piece int) PieceBatch {
	return func(piece int) (b PieceBatch) {
		p := pieces[piece]
		for i, v := range targets {
			if v >= p.First && v < p.First+uint32(p.Masters) {
				b.Targets, b.Labels = append(b.Targets, v-p.First), append(b.Labels, labels[i])
			}
		}
		return b
	}
}

func pieceTrainer(t *testing.T, m *Model, pieces []*Piece, ex Exchange) *PieceTrainer {
	t.Helper()
	trainer, err := elsewhere(t, m).NewPieceTrainer(t.Context(), func() *cpu.Exec { return testExec(t, 2, detected(t)) }, pieces, ex, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trainer.Close)
	return trainer
}

const large = 1 << 30

// stripes has rows cross as between large pieces.
func stripes(trainer *PieceTrainer) {
	for _, e := range trainer.engines {
		e.halo.mean = large
	}
}

// parted has rows cross a few at a time.
func parted(trainer *PieceTrainer) {
	for _, e := range trainer.engines {
		e.halo.part = 1
	}
}

func use(t *testing.T, trainer *PieceTrainer, batch func(piece int) PieceBatch) {
	t.Helper()
	if err := trainer.Use(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// What a trainer on pieces holds is not on Go's heap: garbage would grow to as much beside it before it is collected.
func TestPieceTrainerIsOffHeap(t *testing.T) {
	ds := testDataset(20000, 5, 64, false)
	m := mustModel(t, sized(variants["gcn"], 2, 64, 64, 5), ds.Graph)
	pieces := cut(ds, 0, 10240, 20000)
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	trainer := pieceTrainer(t, m, pieces, NewMemoryExchange())
	targets, labels := []uint32{1, 100, 199, 15000}, []int32{1, 2, 3, 0}
	use(t, trainer, dividedBatch(pieces, targets, labels))
	if _, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), rng.New(1)); err != nil {
		t.Fatal(err)
	}
	if grew, holds := heap()-before, trainer.Bytes(); grew > holds/2 {
		t.Errorf("the heap grew by %d bytes, of %d that the trainer holds", grew, holds)
	}
	runtime.KeepAlive(trainer)
}

// What is found of a batch takes as much memory as it says.
func TestActiveSetBytes(t *testing.T) {
	ds := testDataset(100_000, 8, 4, false)
	m := mustModel(t, sized(variants["gcn"], 2, 4, 8, 5), ds.Graph)
	pieces := cut(ds, 0, 51200, 100_000)
	trainer := pieceTrainer(t, m, pieces, NewMemoryExchange())
	var targets []uint32
	var labels []int32
	for v := uint32(0); v < 100_000; v += 100 {
		targets, labels = append(targets, v), append(labels, 1)
	}
	batch := dividedBatch(pieces, targets, labels)
	use(t, trainer, batch)
	if _, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), rng.New(1)); err != nil {
		t.Fatal(err)
	}
	use(t, trainer, batch) // from now on blocks are turned round ahead
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers and pools held
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	const sets = 8
	var found [sets]*ActiveSet
	said := int64(0)
	for i := range found {
		set, err := trainer.Search(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		found[i], said = set, said+set.Bytes()
	}
	if took := heap() - before; float64(said) < 0.9*float64(took) || float64(said) > 1.1*float64(took) {
		t.Errorf("%d sets take %d bytes, and say that they take %d", sets, took, said)
	}
	runtime.KeepAlive(found)
}

// The gradient of every model over any pieces is the whole graph's, with the same values dropped, and each row and its gradient
// crosses each border once.
func TestPieceGradient(t *testing.T) {
	const n = 200
	for shift, name := range slices.Sorted(maps.Keys(variants)) {
		spec := variants[name]
		if spec.EdgeDim > 0 || spec.GCNNorm == "block" {
			continue
		}
		for i, dims := range [][3]int{{37, 12, 5}, {7, 21, 40}, {21, 33, 5}} { // products come before the first layer's sums, or, of few features, after them
			spec.Dropout, spec.InputDropout = 0.4, 0.2
			if i == 1 {
				spec.InputDropout = 0
			}
			ds := testDataset(n, 5, dims[0], dims[0] > dims[1])
			m := mustModel(t, sized(spec, 2, dims[0], dims[1], dims[2]), ds.Graph)
			params := randomParams(m, 5)
			var targets []uint32
			var labels []int32
			for v := uint32(0); v < n; v += 3 {
				targets, labels = append(targets, v), append(labels, int32(v)%int32(dims[2]))
			}
			want := make([]float32, len(params))
			in := Input{Key: rng.New(8), Blocks: wholeBlocks(ds.Graph, m.Blocks()), Features: ds.NodeFeatures, Targets: targets, Labels: labels}
			wantStats, err := m.NewEngine(testExec(t, 2, detected(t))).Gradient(want, params, &in)
			if err != nil {
				t.Fatal(err)
			}
			scale := float32(0)
			for _, v := range want {
				scale = max(scale, float32(math.Abs(float64(v))))
			}
			for j, lie := range append([]string{"target"}, edgesLie...) {
				for k, cutting := range slices.Sorted(maps.Keys(someBorders)) {
					crossings := []string{"whole", "in stripes", "in parts"}
					if cutting == "1" { // nothing crosses
						crossings = crossings[:1]
					}
					// Of sizes, cuttings and where edges lie a model has all pairs, and models together all triples.
					if cutting == "1" && lie != "target" || cutting != "1" && (i+j+k+shift)%3 > 0 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%v/%s/%s", name, dims, cutting, lie), func(t *testing.T) {
						pieces := cutEdges(ds, lie, someBorders[cutting]...)
						var first []float32
						for _, cross := range crossings {
							memory := NewMemoryExchange()
							trainer := pieceTrainer(t, m, pieces, memory)
							switch cross {
							case "in stripes":
								stripes(trainer)
							case "in parts":
								parted(trainer)
							}
							use(t, trainer, dividedBatch(pieces, targets, labels))
							for _, e := range trainer.engines { // rows that did not cross are read all the same
								e.halo.table = slices.Repeat([]float32{float32(math.NaN())}, e.halo.nodes()*e.halo.stripe(max(dims[0], dims[1], dims[2])))
							}
							for range 2 { // the second uses the memory of the first
								grads, stats, err := trainer.Gradient(t.Context(), params, rng.New(8))
								if err != nil {
									t.Fatal(err)
								}
								var sum Stats
								for _, s := range stats {
									sum.Loss, sum.Weight, sum.Count, sum.Correct = sum.Loss+s.Loss, sum.Weight+s.Weight, sum.Count+s.Count, sum.Correct+s.Correct
								}
								if math.Abs(sum.Loss-wantStats.Loss) > 1e-5*wantStats.Loss || sum.Count != wantStats.Count || sum.Weight != wantStats.Weight || sum.Correct != wantStats.Correct {
									t.Errorf("got %+v, want %+v", sum, wantStats)
								}
								SumTree(grads)
								if first == nil {
									first = slices.Clone(grads[0])
								}
								if !slices.Equal(grads[0], first) {
									t.Error("bits depend on how many columns or rows cross at once, or change from one gradient to the next")
								}
								for i, g := range grads[0] {
									if d := g - want[i]; !(d <= 1e-5*scale && d >= -1e-5*scale) {
										t.Fatalf("gradient %d: got %v, want %v, the largest being %v", i, g, want[i], scale)
									}
								}
							}
							allReceived(t, memory)
							entries, want := 0, 0
							for _, e := range trainer.engines {
								entries += len(e.last().Indices)
							}
							for v := range ds.Graph.NumNodes() {
								if v%3 == 0 || spec.Norm == "batch" {
									want += ds.Graph.Degree(uint32(v))
								}
							}
							if cutting == "2" && lie == "target" && entries != want {
								t.Errorf("the last layer sums %d entries, want %d", entries, want)
							}
						}
					})
				}
			}
		}
	}
}

// A piece that reads no other's rows is read all the same.
func TestPieceGradientOneWay(t *testing.T) {
	g := &graph.Graph{Indptr: []int64{0, 1, 2, 4, 6}, Indices: []uint32{1, 0, 0, 3, 1, 2}} // pieces {0, 1} and {2, 3}
	ds := testDataset(4, 1, 8, false)
	ds.Graph = g
	m := mustModel(t, sized(Spec{Model: "gcn", InputDropout: 0.5}, 2, 8, 20, 3), g)
	params := randomParams(m, 5)
	want := make([]float32, len(params))
	in := Input{Key: rng.New(8), Blocks: wholeBlocks(g, 2), Features: ds.NodeFeatures, Targets: []uint32{1, 3}, Labels: []int32{1, 2}}
	if _, err := m.NewEngine(testExec(t, 2, detected(t))).Gradient(want, params, &in); err != nil {
		t.Fatal(err)
	}
	pieces, memory := cut(ds, 0, 2, 4), NewMemoryExchange()
	trainer := pieceTrainer(t, m, pieces, memory)
	use(t, trainer, dividedBatch(pieces, in.Targets, in.Labels))
	for range 2 {
		grads, _, err := trainer.Gradient(t.Context(), params, rng.New(8))
		if err != nil {
			t.Fatal(err)
		}
		SumTree(grads)
		for i, g := range grads[0] {
			if d := math.Abs(float64(g - want[i])); !(d <= 1e-6) {
				t.Fatalf("gradient %d is %v, want %v", i, g, want[i])
			}
		}
		allReceived(t, memory)
	}
}

// activePairs returns, of each of a model's layers, how many pairs there are of a node and a piece other than its own that sums its row, or sums
// for it, for outputs of targets: found with what all pieces have in one place.
func activePairs(pieces []*Piece, targets []uint32, layers int) (sources, sums []int) {
	active := map[uint32]bool{}
	for _, v := range targets {
		active[v] = true
	}
	sources, sums = make([]int, layers), make([]int, layers)
	for l := layers - 1; l >= 0; l-- {
		next := maps.Clone(active)
		for _, p := range pieces {
			read := map[uint32]bool{}
			row := func(g *graph.Graph, v int) {
				for _, u := range g.InNeighbors(uint32(v)) {
					if int(u) < p.Masters {
						next[p.First+u] = true
					} else {
						next[p.Sources.IDs[int(u)-p.Masters]], read[u] = true, true
					}
				}
			}
			for v := range p.Masters {
				if active[p.First+uint32(v)] {
					row(p.In, v)
				}
			}
			for i, v := range p.Targets.IDs {
				if active[v] && p.Partial != nil {
					sums[l]++
					row(p.Partial, i)
				}
			}
			sources[l] += len(read)
		}
		active = next
	}
	return sources, sums
}

// Rows of small pieces cross whole; of larger ones as many columns as fit the same memory, and at least an eighth.
func TestStripes(t *testing.T) {
	for _, c := range []struct{ masters, cols, want int }{
		{50_000, 64, 64}, {50_000, 7, 16}, {50_000, 256, 160}, {131_072, 64, 64}, {131_073, 64, 48}, {1 << 21, 64, 16}, {1 << 21, 256, 32}, {1 << 21, 250, 32}, {1, 47, 47}, {large, 47, 16},
	} {
		if got := (&halo{mean: c.masters}).stripe(c.cols); got != c.want {
			t.Errorf("of %d columns of %d masters %d cross at once, want %d", c.cols, c.masters, got, c.want)
		}
	}
	for borders, want := range map[string]int{"1": 200, "3 uneven": 66, "8 and empty ones": 33} {
		if got := cut(testDataset(200, 5, 4, false), someBorders[borders]...)[0].mean(); got != want {
			t.Errorf("a mean piece of %s has %d masters, want %d", borders, got, want)
		}
	}
}

// A gradient sends each row and its gradient once to each piece that the other lies in and that outputs with loss need it of; rows of the table that are summed as they are, which
// have no gradient, the first one alone, and where they are dropped, between small pieces, instead the features that they are made of, before it. So does what is summed for other pieces' targets, and what attention reads of them.
func TestPieceGradientBytes(t *testing.T) {
	for _, c := range []struct {
		model  string
		in     int
		widths [][]int // of the rows of each layer; products come before sums of 5 entries but for few features
		table  bool    // those of layer 0 are the table's
		lie    string
		drop   float64 // of those
		large  bool    // pieces
	}{
		{model: "gcn", in: 80, widths: [][]int{{20}, {5}}, lie: "target"}, {model: "sage", in: 80, widths: [][]int{{20}, {5}}, lie: "target"}, {model: "gat", in: 80, widths: [][]int{{20, 1}, {5, 1}}, lie: "target"}, {model: "sage", in: 8, widths: [][]int{{8}, {5}}, table: true, lie: "target"},
		{model: "gcn", in: 80, widths: [][]int{{20}, {5}}, lie: "grid"}, {model: "sage", in: 80, widths: [][]int{{20}, {5}}, lie: "source"}, {model: "sage", in: 8, widths: [][]int{{8}, {5}}, table: true, lie: "grid"}, {model: "gat", in: 80, widths: [][]int{{20, 1}, {5, 1}}, lie: "grid"},
		{model: "gcn", in: 24, widths: [][]int{{24}, {5}}, table: true, lie: "target", drop: 0.5}, {model: "gcn", in: 24, widths: [][]int{{24}, {5}}, lie: "target", drop: 0.5, large: true},
		{model: "gcn", in: 80, widths: [][]int{{20}, {5}}, lie: "target", drop: 0.5},
	} {
		ds := testDataset(200, 5, c.in, false)
		m := mustModel(t, sized(Spec{Model: c.model, InputDropout: c.drop}, 2, c.in, 20, 5), ds.Graph)
		pieces := cutEdges(ds, c.lie, someBorders["3 uneven"]...)
		counted := NewCounted(NewMemoryExchange())
		trainer := pieceTrainer(t, m, pieces, counted)
		if c.large {
			stripes(trainer)
		}
		targets := []uint32{1, 100, 199}
		pairs, sums := activePairs(pieces, targets, 2)
		if all, _ := pairsOf(pieces); all > 0 && (pairs[1] == 0 || 2*pairs[1] > pairs[0] || pairs[0] >= all) {
			t.Fatalf("%v of %d pairs are active", pairs, all)
		}
		use(t, trainer, dividedBatch(pieces, targets, []int32{1, 2, 3}))
		summed, there := 0, 0 // entries of the first layer
		for _, e := range trainer.engines {
			summed, there = summed+len(e.blocks[0].Indices), there+len(e.piece.In.Indices)
		}
		if c.lie == "target" && 2*summed > there {
			t.Errorf("%d of %d entries are summed in the first layer", summed, there)
		}
		for step := 1; step <= 2; step++ {
			if _, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), 0); err != nil {
				t.Fatal(err)
			}
			check := func(kind string, l, k, pairs, width int) {
				for _, way := range []string{"", "back-"} {
					name, got := fmt.Sprintf("%s%sstep-%d-layer-%d-%d", way, kind, step, l, k), int64(0)
					for round, bytes := range counted.bytes { // its stripes
						if round == name || strings.HasPrefix(round, name+"-") || strings.HasPrefix(round, name+".") {
							got += bytes
						}
					}
					want := int64(4 * pairs * width)
					if l == 0 && c.table && (step > 1 || way != "" || c.drop > 0) || l == 0 && c.large && way != "" {
						want = 0
					}
					if got != want {
						t.Errorf("%s of %d features, edges at %s, step %d, layer %d: %s %d bytes, want %d", c.model, c.in, c.lie, step, l, name, got, want)
					}
				}
			}
			for l, values := range c.widths {
				all := 0
				for k, width := range values {
					check("", l, k, pairs[l], width)
					all += width
				}
				check("sum-", l, 0, sums[l], all)
				if c.model == "gat" {
					check("targets-", l, 0, sums[l], 1)
				}
			}
			want := int64(0)
			if all, _ := pairsOf(pieces); c.table && c.drop > 0 {
				want = int64(4 * all * c.in)
			}
			if got := counted.Bytes("inputs"); got != want {
				t.Errorf("%d features, dropped: %g, step %d: %d bytes of features, want %d", c.in, c.drop, step, got, want)
			}
			held, inputs := trainer.Bytes(), trainer.inputs
			trainer.inputs = nil
			if got := held - trainer.Bytes(); got != want {
				t.Errorf("%d features, dropped: %g: %d bytes are held, want %d", c.in, c.drop, got, want)
			}
			for _, inFiles := range []bool{true, false} {
				for _, e := range trainer.engines {
					e.core.tape.inFiles = inFiles
				}
				if alone := trainer.Bytes(); inFiles {
					trainer.inputs = inputs
					if got := trainer.Bytes(); got != alone || got >= held/2 {
						t.Errorf("%d features, dropped: %g, in files: %d bytes of memory are held, %d without features, of %d in all", c.in, c.drop, got, alone, held)
					}
				}
			}
			trainer.inputs = inputs
		}
	}
}

// The bits of gradients, their sum, its statistics and figures depend on the pieces alone: not on threads, nor on who computes which pieces, nor on whether activations
// are computed again.
func TestPieceGradientBits(t *testing.T) {
	ds := testDataset(200, 5, 37, true)
	targets, labels := []uint32{1, 8, 70, 71, 100, 199}, []int32{1, 2, 3, 4, 0, 1}
	type result struct {
		stats []byte // of batch norms
		sum   []float32
		total Stats
		stops bool
		err   error
	}
	for name, lie := range map[string]string{
		"gcn": "target", "gin batch normed": "target", "gat of heads": "target", "sage jumping max": "target", "mixhop": "target",
		"gcn batch normed": "grid", "gin": "source", "gat": "source", "gatv2": "grid", "sage max": "grid", "sage": "grid",
	} {
		spec, known := variants[name]
		if !known {
			t.Fatalf("there is no %s", name)
		}
		m := mustModel(t, sized(spec, 2, 37, 12, 5), ds.Graph)
		params := randomParams(m, 5)
		pieces := cutEdges(ds, lie, someBorders["8 and empty ones"]...)
		compute := func(own []*Piece, ex Exchange, x *cpu.Exec, again bool) (r result) {
			var trainer *PieceTrainer
			trainer, r.err = elsewhere(t, m).NewPieceTrainer(t.Context(), func() *cpu.Exec { return cpu.NewExec(x.Pool(), detected(t)) }, own, ex, "")
			if r.err == nil && again {
				trainer.Recompute()
			}
			if r.err == nil {
				r.err = trainer.Use(t.Context(), dividedBatch(pieces, targets, labels))
			}
			for range 2 {
				if r.err != nil {
					return r
				}
				var grads [][]float32
				var stats []Stats
				if grads, stats, r.err = trainer.Gradient(t.Context(), params, 3); r.err == nil {
					r.stats = m.TakeStatistics(nil, grads[0])
					var sum []float32
					sum, r.total, r.stops, r.err = trainer.Sum(t.Context(), grads, stats, slices.ContainsFunc(own, func(p *Piece) bool { return p.Index == 1 }))
					r.sum = slices.Clone(sum)
					clear(sum) // it is the caller's
				}
			}
			return r
		}
		want := compute(pieces, NewMemoryExchange(), testExec(t, 2, detected(t)), false)
		if want.err != nil {
			t.Fatal(want.err)
		}
		for _, placed := range []string{"00000000", "01101010", "01234567", "22021100"} { // pieces 0 and 3 have no nodes
			memory := NewMemoryExchange()
			own := map[rune][]*Piece{}
			for i, place := range placed {
				own[place] = append(own[place], pieces[i])
			}
			results := make(chan result)
			places := 0
			for _, some := range own {
				if !slices.ContainsFunc(some, func(p *Piece) bool { return p.Masters > 0 }) {
					continue
				}
				places++
				x := testExec(t, 1+places%2, detected(t))
				go func() { results <- compute(some, memory, x, placed[7] == '0') }()
			}
			for range places {
				r := <-results
				if r.err != nil {
					t.Fatal(r.err)
				}
				if !slices.Equal(r.sum, want.sum) || r.total != want.total || !r.stops || !want.stops || !slices.Equal(r.stats, want.stats) {
					t.Errorf("%s, edges at %s: what is computed depends on where pieces are: %s", name, lie, placed)
				}
			}
			if len(memory.rows) > 0 {
				t.Errorf("%s, %s: %d messages were not received", name, placed, len(memory.rows))
			}
		}
	}
}

// What fails in one piece ends the others, which wait for its rows, and is said.
func TestPieceGradientFails(t *testing.T) {
	ds := testDataset(200, 5, 37, true)
	m := mustModel(t, sized(Spec{Model: "gcn"}, 2, 37, 12, 5), ds.Graph)
	pieces := cut(ds, someBorders["2"]...)
	trainer := pieceTrainer(t, m, pieces, NewMemoryExchange())
	err := trainer.Use(t.Context(), func(piece int) PieceBatch {
		return PieceBatch{Targets: []uint32{1}, Labels: []int32{int32(5 * piece)}}
	})
	if err == nil || !strings.Contains(err.Error(), "piece 1: target 0 has class 5") {
		t.Errorf("a class that there is not: %v", err)
	}
	trainer = pieceTrainer(t, m, pieces, lost{NewMemoryExchange()})
	use(t, trainer, dividedBatch(pieces, []uint32{3}, []int32{1}))
	if _, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), 0); !errors.Is(err, errDiskGone) {
		t.Errorf("an exchange that fails: %v", err)
	}
	pieces[1].Features = graph.NewFeatures(110, 36, make([]float32, 110*36))
	if _, err := elsewhere(t, m).NewPieceTrainer(t.Context(), nil, pieces, NewMemoryExchange(), ""); err == nil || !strings.Contains(err.Error(), "110×36 features") {
		t.Errorf("features that do not fit: %v", err)
	}
}

// opMade is a layer that sends along edges what an op made.
type opMade struct {
	Layer[float32]
	entries bool
}

func (l opMade) Gather(c *Context[float32], x *Value[float32], h []*Value[float32]) Message[float32] {
	m := l.Layer.Gather(c, x, h)
	if m.Value = c.Add(m.Value, m.Value); l.entries {
		m.Entries = c.FromSources(m.Value)
	}
	return m
}

// readAs is a layer that reads all rows of what it sends.
type readAs struct{ Layer[float32] }

func (l readAs) Gather(c *Context[float32], x *Value[float32], h []*Value[float32]) Message[float32] {
	m := l.Layer.Gather(c, x, h)
	m.Value.Matrix()
	return m
}

// Sums over pieces of what an op made, which only the rows of one piece are of, are refused, and not made of this piece's entries.
func TestPieceGradientOfOps(t *testing.T) {
	ds := testDataset(200, 5, 37, true)
	m := mustModel(t, sized(Spec{Model: "gcn"}, 2, 37, 12, 5), ds.Graph)
	for i, wrap := range []func(l Layer[float32]) Layer[float32]{
		func(l Layer[float32]) Layer[float32] { return opMade{l, false} },
		func(l Layer[float32]) Layer[float32] { return opMade{l, true} },
		func(l Layer[float32]) Layer[float32] { return readAs{l} },
	} {
		trainer := pieceTrainer(t, m, cutEdges(ds, "grid", someBorders["2"]...), NewMemoryExchange())
		for _, e := range trainer.engines {
			e.core.layers[1].Layer = wrap(e.core.layers[1].Layer)
		}
		use(t, trainer, dividedBatch([]*Piece{trainer.engines[0].piece, trainer.engines[1].piece}, []uint32{3}, []int32{1}))
		_, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), 0)
		if err == nil || !strings.Contains(err.Error(), "--edges target") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// Rows of a first layer whose sums are kept cross once for each batch, and of another batch, which may differ in one piece alone, others do.
func TestPieceGradientOfOneLayer(t *testing.T) {
	ds := testDataset(200, 5, 4, false)
	m := mustModel(t, sized(Spec{Model: "sage"}, 1, 4, 12, 5), ds.Graph)
	params := randomParams(m, 5)
	pieces := cut(ds, someBorders["2"]...)
	counted := NewCounted(NewMemoryExchange())
	trainer := pieceTrainer(t, m, pieces, counted)
	some := func(from, to uint32) (ids []uint32) { // whose rows are not worth a copy
		for v := from; v < to; v++ {
			ids = append(ids, v)
		}
		return ids
	}
	for turn, targets := range [][]uint32{{3, 100}, {4, 100}, some(0, 150), some(40, 190), {4}} {
		want := make([]float32, len(params))
		in := Input{Blocks: wholeBlocks(ds.Graph, 1), Features: ds.NodeFeatures, Targets: targets, Labels: make([]int32, len(targets))}
		if _, err := m.NewEngine(testExec(t, 2, detected(t))).Gradient(want, params, &in); err != nil {
			t.Fatal(err)
		}
		use(t, trainer, dividedBatch(pieces, targets, in.Labels))
		for step := range 2 {
			grads, _, err := trainer.Gradient(t.Context(), params, 0)
			if err != nil {
				t.Fatal(err)
			}
			SumTree(grads)
			for i, g := range grads[0] {
				if d := math.Abs(float64(g - want[i])); !(d <= 1e-5*float64(len(targets))) {
					t.Fatalf("%d targets: gradient %d is %v, want %v", len(targets), i, g, want[i])
				}
			}
			sent := int64(0)
			for round, bytes := range counted.bytes {
				if strings.HasPrefix(round, fmt.Sprintf("step-%d-layer-", 2*turn+step+1)) {
					sent += bytes
				}
			}
			sources, _ := activePairs(pieces, targets, 1)
			if want := int64(4 * 4 * (1 - step) * sources[0]); sent != want || sources[0] == 0 && len(targets) > 1 {
				t.Errorf("%d targets, step %d: %d bytes were sent, want %d", len(targets), step, sent, want)
			}
		}
	}
}

// lost is an exchange that loses what piece 1 sends backward.
type lost struct{ Exchange }

func (l lost) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	if from == 1 && strings.HasPrefix(round, "back") {
		return errDiskGone
	}
	return l.Exchange.Send(ctx, round, from, to, rows)
}

// Sums over pieces are as precise as over one's rows.
func TestPieceSums(t *testing.T) {
	pieces := cut(testDataset(200, 5, 7, false), someBorders["8 and empty ones"]...)
	memory := NewMemoryExchange()
	said, want := make(chan float64, len(pieces)), 0.0
	for _, p := range pieces {
		if p.Masters == 0 {
			continue
		}
		x := 1 + float64(p.Index)*0x1p-40
		want += x
		go func() {
			h := &halo{piece: p, exchange: memory}
			h.begin(t.Context(), 1)
			sums := []float64{x}
			h.add(sums)
			said <- sums[0]
		}()
	}
	for _, p := range pieces {
		if p.Masters == 0 {
			continue
		}
		if got := <-said; got != want {
			t.Errorf("a piece has %v for the sum, which is %v", got, want)
		}
	}
}

// A gradient's values that no step reads any more make room for others, columns of others' rows take turns in the same memory, and where
// there is a scratch directory values lie in files: the bits stay.
func TestPieceMemory(t *testing.T) {
	const n, hidden, layers = 4000, 64, 4
	ds := testDataset(n, 5, 8, false)
	m := mustModel(t, sized(Spec{Model: "gcn"}, layers, 8, hidden, 5), ds.Graph)
	pieces := cut(ds, 0, n/2, n)
	batch := dividedBatch(pieces, []uint32{1, 100, n - 1}, []int32{1, 2, 3})
	var want []float32
	for _, scratch := range []string{"", t.TempDir()} {
		memory := NewMemoryExchange()
		trainer, err := elsewhere(t, m).NewPieceTrainer(t.Context(), func() *cpu.Exec { return testExec(t, 2, detected(t)) }, pieces, memory, scratch)
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		stripes(trainer)
		use(t, trainer, batch)
		for range 2 {
			grads, _, err := trainer.Gradient(t.Context(), randomParams(m, 5), 0)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = slices.Clone(grads[0])
			}
			if !slices.Equal(grads[0], want) {
				t.Errorf("with scratch %q the gradient differs", scratch)
			}
		}
		// Of each layer what it multiplied and what it made, and the gradients of two values.
		most := 4 * n * hidden * (2*layers + 2)
		for _, e := range trainer.engines {
			most += 4*e.halo.stripe(hidden)*e.halo.nodes() + 4*cap(e.halo.back) + 24*len(e.piece.In.Indices) + 40*e.halo.nodes()
		}
		if got := trainer.Bytes(); got > int64(most) {
			t.Errorf("with scratch %q %d bytes are held, more than %d", scratch, got, most)
		}
	}
}

// Of maxima that several pieces have alike the first piece is noted, whichever of them has the master, and of none the one that has any.
func TestMaximaOfPieces(t *testing.T) {
	tape := NewTape[float32](testExec(t, 1, detected(t)), false)
	nan := float32(math.NaN())
	y := cpu.NewMatrix[float32](2, 4)
	copy(y.Row(0), []float32{1, 1, 2, 1}) // of piece 1
	m := tape.maximaOf(y, []int64{0, 3, 3}, 1, make([]uint32, 8))
	m.take(tape, 0, []uint32{0}, []float32{1, 0, 1, nan})
	m.take(tape, 2, []uint32{1, 0}, []float32{-1, -2, -3, -4, 1, 1, 3, 5})
	m.take(tape, 3, []uint32{1}, []float32{-1, -1, -3, -5})
	if want := []uint32{0, 1, 2, 0, 2, 3, 2, 2}; !slices.Equal(m.of, want) {
		t.Errorf("the maxima are of the pieces %v, want %v", m.of, want)
	}
	for i, want := range []float32{1, 1, 3, nan, -1, -1, -3, -4} {
		if got := y.Data[i]; got != want && (got == got || want == want) {
			t.Errorf("maximum %d is %v, want %v", i, got, want)
		}
	}
}
