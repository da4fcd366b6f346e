package compute

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// batchOf returns a training input of n seeds on blocks with the given fan-out.
func batchOf(ds *graph.Dataset, n, layers, fanout, classes int) *Input {
	seeds := make([]uint32, ds.Graph.NumNodes())
	rng.New(5).Perm(seeds)
	blocks := sampleBlocks(ds.Graph, seeds[:n], layers, fanout, 6)
	in := &Input{Key: 3, Blocks: blocks, Features: ds.NodeFeatures, Rows: blocks[0].SrcIDs}
	for i := range n {
		in.Labels = append(in.Labels, int32(i%classes))
	}
	return in
}

// TestGradientBits checks that a gradient's bits depend neither on the number
// of threads nor on what the engine computed before.
func TestGradientBits(t *testing.T) {
	ds := testDataset(700, 5, 33, true)
	for _, set := range []cpu.Set{cpu.Go, cpu.AVX2, cpu.AVX512} {
		if !set.Supported() {
			continue
		}
		for name, spec := range variants {
			t.Run(fmt.Sprintf("%v/%s", set, name), func(t *testing.T) {
				spec := sized(spec, 2, 33, 24, 7)
				spec.Dropout, spec.InputDropout = 0.5, 0.1
				m := mustModel(t, spec, ds.Graph)
				params := m.Init(1)
				in, other := batchOf(ds, 150, m.Blocks(), 3, 7), batchOf(ds, 57, m.Blocks(), 4, 7)
				in.Edges, other.Edges = edgeFeatures(m), edgeFeatures(m)
				var want []float32
				for _, threads := range []int{1, 2, 3} {
					e := m.NewEngine(testExec(t, threads, set))
					grad := make([]float32, len(params))
					for _, b := range []*Input{other, in, in} {
						for i := range grad {
							grad[i] = float32(math.NaN()) // what was there does not matter
						}
						if _, err := e.Gradient(grad, params, b); err != nil {
							t.Fatal(err)
						}
						if b == other {
							continue
						}
						if want == nil {
							want = slices.Clone(grad)
						}
						if !slices.Equal(grad, want) {
							t.Fatalf("%d threads: other bits", threads)
						}
					}
				}
			})
		}
	}
}

// TestGradientIsASum checks that the gradients of a batch's parts add up to the
// batch's, and that loss weights scale them.
func TestGradientIsASum(t *testing.T) {
	ds := testDataset(60, 4, 5, false)
	for name, spec := range variants {
		m := mustModel(t, sized(spec, 2, 5, 9, 3), ds.Graph)
		e := m.NewEngine(testExec(t, 1, cpu.Go))
		params := m.Init(2)
		in := &Input{Blocks: wholeBlocks(ds.Graph, m.Blocks()), Features: ds.NodeFeatures, Edges: edgeFeatures(m), Targets: []uint32{7, 3, 50}, Labels: []int32{0, 2, 1}, Weights: []float32{1, 2, 0.5}}
		all := make([]float32, len(params))
		stats, err := e.Gradient(all, params, in)
		if err != nil {
			t.Fatal(err)
		}
		m.Observe(slices.Clone(params), all, e.core.tape.x) // the statistics are no sums
		if stats.Count != 3 || stats.Weight != 3.5 {
			t.Errorf("count %d, weight %v, want 3, 3.5", stats.Count, stats.Weight)
		}
		sum, loss := make([]float32, len(params)), 0.0
		for i := range in.Targets {
			part := *in
			part.Targets, part.Labels, part.Weights = in.Targets[i:i+1], in.Labels[i:i+1], nil
			grad := make([]float32, len(params))
			s, err := e.Gradient(grad, params, &part)
			if err != nil {
				t.Fatal(err)
			}
			m.Observe(slices.Clone(params), grad, e.core.tape.x)
			loss += s.Loss * float64(in.Weights[i])
			for j, v := range grad {
				sum[j] += v * in.Weights[i]
			}
		}
		closeTo(t, name, all, sum, 1e-5)
		if math.Abs(loss-stats.Loss) > 1e-5*loss {
			t.Errorf("%s: loss %v, sum of parts %v", name, stats.Loss, loss)
		}
	}
}

// TestGradientAllocations checks that in steady state neither the number nor the
// bytes of allocations grow with the batch.
func TestGradientAllocations(t *testing.T) {
	ds := testDataset(2500, 6, 16, true)
	for name, spec := range variants {
		spec := sized(spec, 2, 16, 15, 5)
		spec.Dropout = 0.5
		m := mustModel(t, spec, ds.Graph)
		params := m.Init(1)
		grad := make([]float32, len(params))
		measure := func(seeds int) (allocs, bytes float64) {
			e := m.NewEngine(testExec(t, 1, cpu.Go))
			in := batchOf(ds, seeds, m.Blocks(), 4, 5)
			in.Edges = edgeFeatures(m)
			step := func() {
				if _, err := e.Gradient(grad, params, in); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				step()
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			const runs = 3
			for range runs {
				step()
			}
			runtime.ReadMemStats(&after)
			return float64(after.Mallocs-before.Mallocs) / runs, float64(after.TotalAlloc-before.TotalAlloc) / runs
		}
		small, smallBytes := measure(20)
		large, largeBytes := measure(800)
		t.Logf("%s: %v allocations of %v bytes for 20 seeds, %v of %v for 800", name, small, smallBytes, large, largeBytes)
		if large > small+2 || largeBytes > smallBytes+1024 {
			t.Errorf("%s: allocations grow with the batch", name)
		}
	}
}

func TestGradientErrors(t *testing.T) {
	ds := testDataset(30, 2, 3, true)
	m := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: 3, Hidden: 4, OutDim: 2}, ds.Graph)
	e := m.NewEngine(testExec(t, 1, cpu.Go))
	params := m.Init(1)
	grad := make([]float32, len(params))
	for want, spoil := range map[string]func(in *Input){
		"1 blocks, the model needs 2":       func(in *Input) { in.Blocks = in.Blocks[:1] },
		"must be the same nodes":            func(in *Input) { in.Blocks[1].NumSrc++ },
		"weights for":                       func(in *Input) { in.Blocks[0].Weights = make([]float32, 1) },
		"no EdgeIDs":                        func(in *Input) { in.Blocks[0].EdgeIDs = nil },
		"no features":                       func(in *Input) { in.Features = nil },
		"have 4 columns, the model needs 3": func(in *Input) { in.Features = graph.NewFeatures(30, 4, make([]float32, 120)) },
		"feature rows are named":            func(in *Input) { in.Rows = in.Rows[1:] },
		"2 targets have labels for 5":       func(in *Input) { in.Targets = []uint32{0, 1} },
		"twice":                             func(in *Input) { in.Targets = []uint32{0, 1, 2, 3, 3} },
		"output row 5":                      func(in *Input) { in.Targets = []uint32{0, 1, 2, 3, 5} },
		"class -1, outside [0, 2)":          func(in *Input) { in.Labels[4] = graph.Unlabeled },
		"class 2, outside":                  func(in *Input) { in.Labels[4] = 2 },
		"but only 5 output rows":            func(in *Input) { in.Labels = make([]int32, 6) },
		"both one class and several":        func(in *Input) { in.Multi = make([]uint8, 10) },
		"9 labels are not a multiple":       func(in *Input) { in.Labels, in.Multi = nil, make([]uint8, 9) },
		"have 3 loss weights":               func(in *Input) { in.Weights = make([]float32, 3) },
		"the loss is NaN": func(in *Input) {
			x := make([]float32, 90)
			for i := range x {
				x[i] = float32(math.NaN())
			}
			in.Features = graph.NewFeatures(30, 3, x)
		},
	} {
		in := batchOf(ds, 5, 2, 3, 2)
		if _, err := e.Gradient(grad, params, in); err != nil {
			t.Fatalf("before it is spoilt: %v", err)
		}
		spoil(in)
		if _, err := e.Gradient(grad, params, in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if _, err := e.Gradient(grad[1:], params, batchOf(ds, 5, 2, 3, 2)); err == nil {
		t.Error("a short gradient is no error")
	}
}

// TestTraining fits random labels of a small graph: the loss must fall to where
// a model with enough parameters takes it.
func TestTraining(t *testing.T) {
	ds := testDataset(40, 2, 12, false)
	for _, name := range append(Models(), "mixhop") {
		m := mustModel(t, sized(Spec{Model: name}, 2, 12, 33, 3), ds.Graph)
		x := testExec(t, 2, cpu.Go)
		e, params, state := m.NewEngine(x), m.Init(1), NewAdamState(m.layout.Len())
		grad := make([]float32, len(params))
		in := &Input{Blocks: wholeBlocks(ds.Graph, m.Blocks()), Features: ds.NodeFeatures, Edges: edgeFeatures(m)}
		for i := range 15 {
			in.Targets = append(in.Targets, uint32(2*i))
			in.Labels = append(in.Labels, int32(i%3))
		}
		var first, last Stats
		for step := range 120 {
			s, err := e.Gradient(grad, params, in)
			if err != nil {
				t.Fatal(err)
			}
			if last = s; step == 0 {
				first = s
			}
			for i := range grad {
				grad[i] /= float32(s.Count)
			}
			DefaultAdam(0.01).Step(params, grad, state, x)
		}
		if first.Loss < 10 || last.Loss > first.Loss/3 || last.Correct < 12 {
			t.Errorf("%s: loss went from %v to %v, %d of %d right", name, first.Loss, last.Loss, last.Correct, last.Count)
		}
	}
}

func BenchmarkGradient(b *testing.B) {
	set, err := cpu.Detect()
	if err != nil {
		b.Fatal(err)
	}
	ds := testDataset(20000, 8, 128, false)
	for name, spec := range variants {
		b.Run(name, func(b *testing.B) {
			spec := sized(spec, 2, 128, 129, 47)
			spec.Dropout = 0.5
			m := mustModel(b, spec, ds.Graph)
			e, params := m.NewEngine(testExec(b, 2, set)), m.Init(1)
			grad := make([]float32, len(params))
			in := batchOf(ds, 512, m.Blocks(), 10, 47)
			in.Edges = edgeFeatures(m)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Gradient(grad, params, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Gradients keep their bits in later versions, too: whoever changes what a model
// computes raises the version in a run's identity, and these digests with it. The
// portable kernels round alike on every amd64.
func TestGradientsKeepTheirBits(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the compiler fuses multiplications and additions here")
	}
	want := map[string]string{
		"gat": "87e1b90526ffc1bb", "gatv2": "ac4ca1b58d5579bd", "gcn": "fd78d85253c9638c", "gin": "5d0e9a6bad3e4370", "sage": "16d47d70e3a0b3df",
	}
	ds := testDataset(60, 4, 9, false)
	for _, name := range Models() {
		t.Run(name, func(t *testing.T) {
			m := mustModel(t, Spec{Model: name, Layers: 2, InDim: 9, Hidden: 6, OutDim: 3, Dropout: 0.5, InputDropout: 0.2, Norm: "layer"}, ds.Graph)
			grad := make([]float32, m.layout.Len())
			if _, err := m.NewEngine(testExec(t, 1, cpu.Go)).Gradient(grad, m.Init(1), batchOf(ds, 30, m.Blocks(), 3, 3)); err != nil {
				t.Fatal(err)
			}
			h := fnv.New64a()
			for _, x := range grad {
				fmt.Fprintln(h, math.Float32bits(x))
			}
			if got := fmt.Sprintf("%016x", h.Sum64()); got != want[name] {
				t.Errorf("the gradient's digest is %s, and was %s", got, want[name])
			}
		})
	}
}

// What cannot be computed is refused, and says why.
func TestFeaturesThatDoNotFit(t *testing.T) {
	ds := testDataset(20, 3, 4, false)
	m := mustModel(t, Spec{Model: "sage", Layers: 1, InDim: 4, OutDim: 2}, ds.Graph)
	e := m.NewEngine(testExec(t, 1, cpu.Go))
	for want, change := range map[string]func(in *Input){
		"no features":    func(in *Input) { in.Features = nil },
		"has 19 rows":    func(in *Input) { in.Rows, in.Features = nil, graph.NewFeatures(19, 4, make([]float32, 76)) },
		"have 5 columns": func(in *Input) { in.Features = graph.NewFeatures(20, 5, make([]float32, 100)) },
		"19 feature rows are named for 20 source nodes": func(in *Input) { in.Rows = in.Rows[:19] },
	} {
		in := &Input{Blocks: wholeBlocks(ds.Graph, 1), Features: ds.NodeFeatures, Rows: make([]uint32, 20), Labels: make([]int32, 20)}
		if _, err := e.Gradient(make([]float32, m.layout.Len()), m.Init(1), in); err != nil {
			t.Fatal(err)
		}
		change(in)
		if _, err := e.Gradient(make([]float32, m.layout.Len()), m.Init(1), in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestOwnModelsHaveOwnNames(t *testing.T) {
	for name, ok := range map[string]bool{"mine": true, "": false, "sage": false, "mixhop": false} {
		s := Spec{Model: name, Layers: 1, InDim: 1, OutDim: 1}
		if err := s.validate(true); (err == nil) != ok {
			t.Errorf("an own model %q: %v", name, err)
		}
	}
}

// Which order of products costs less, by hand: a product of n rows costs
// n·in·out, one aggregation eight for each entry and column.
func TestTransformFirst(t *testing.T) {
	const inference, firstLayer, laterLayer = 0, 1, 2
	for _, c := range []struct {
		pass, dst, src, entries, in, out int
		want                             bool
	}{
		{inference, 100, 100, 20, 11, 10, true}, // as many rows: by the columns that are aggregated
		{inference, 100, 100, 20, 10, 10, false},
		{inference, 100, 100, 20, 10, 11, false},
		{inference, 100, 1000, 1238, 110, 10, true}, // 900 rows more cost 990,000; 100 columns less save 800 an entry
		{inference, 100, 1000, 1237, 110, 10, false},
		{firstLayer, 100, 100, 20, 21, 10, true}, // two aggregations after the product, one before
		{firstLayer, 100, 100, 20, 20, 10, false},
		{firstLayer, 100, 1000, 2200, 120, 10, false}, // two products: 2,160,000 against 2,200·8·100
		{firstLayer, 100, 1000, 2701, 120, 10, true},
		{laterLayer, 100, 100, 20, 11, 10, true}, // two aggregations either way
		{laterLayer, 100, 100, 20, 10, 11, false},
		{laterLayer, 100, 1000, 1856, 110, 10, false}, // three products: 2,970,000 against 1,600 an entry
		{laterLayer, 100, 1000, 1857, 110, 10, true},
	} {
		block := &graph.Block{NumDst: c.dst, NumSrc: c.src, Indices: make([]uint32, c.entries)}
		ctx := &Context[float32]{Tape: NewTape[float32](testExec(t, 1, cpu.Go), c.pass != inference), Block: block, wantsInput: c.pass == laterLayer}
		if got := ctx.TransformFirst(c.in, c.out); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
