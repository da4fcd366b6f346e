package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/machinelimits"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// The shapes of bench's workloads.
const (
	benchSeed    = 1
	benchBatch   = 1024
	benchHidden  = 256
	benchClasses = 47
	benchWidth   = machinelimits.RowLen // features
	meanRows     = 40_000               // nodes of the aggregation
	meanDegree   = 10

	sampledBatches = 8
)

// workload is something that bench measures.
type workload struct {
	name  string
	limit machinelimits.Limit // what it is divided by
	// start gets it ready to run on x; step runs it once.
	start func(x *cpu.Exec) (step func() (work, error), err error)
	// stages, if there are any, are told of what a step is made of.
	stages *stages
}

// work is what was done: useful FLOP, bytes moved at least, and edges.
type work struct{ flop, bytes, edges float64 }

func (w *work) add(v work) {
	w.flop += v.flop
	w.bytes += v.bytes
	w.edges += v.edges
}

// against returns the part of w that l limits.
func (w *work) against(l machinelimits.Limit) float64 {
	switch l {
	case machinelimits.FMA32:
		return w.flop
	case machinelimits.Random8:
		return w.edges
	}
	return w.bytes
}

// inBFloat16 is w with products of values rounded to bfloat16.
func inBFloat16(w workload) workload {
	start := w.start
	w.name += "/bf16"
	w.start = func(x *cpu.Exec) (func() (work, error), error) {
		x.SetPrecision(cpu.BFloat16)
		return start(x)
	}
	return w
}

// benchWorkloads returns all workloads that set has. They read rows out of table;
// the graph is made when the first asks for it.
func benchWorkloads(ctx context.Context, o benchOptions, table []float32, set cpu.Set) []workload {
	data := sync.OnceValues(func() (*graph.Dataset, error) {
		ds, err := generate.RMAT(ctx, generate.RMATOptions{Scale: o.scale, Edges: o.graphEdges(), Classes: benchClasses, Seed: benchSeed})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, &usageError{err}
		}
		n := ds.Graph.NumNodes()
		ds.NodeFeatures = graph.NewFeatures(n, benchWidth, table[:n*benchWidth])
		ds.Train = drawNodes(ds.Graph, seedsWithoutSplit, benchSeed)
		return ds, nil
	})
	var all []workload
	add := func(w workload) {
		if all = append(all, w); set.Has(cpu.BFloat16) {
			all = append(all, inBFloat16(w))
		}
	}
	for _, s := range [][3]int{{65536, 256, 128}, {10000, 256, 602}, {1024, 47, 256}} {
		for _, w := range products(s[0], s[1], s[2]) {
			add(w)
		}
	}
	add(workload{name: "step", limit: machinelimits.FMA32, start: func(x *cpu.Exec) (func() (work, error), error) { return startStep(x, data, nil) }})
	parts := newStages()
	all = append(all, workload{"stages", machinelimits.FMA32, func(x *cpu.Exec) (func() (work, error), error) { return startStep(x, data, parts) }, parts})
	return append(all,
		meanWorkload(table),
		workload{name: "spmm", limit: machinelimits.Gather512, start: func(x *cpu.Exec) (func() (work, error), error) { return startSpMM(x, data) }},
		workload{name: "sample", limit: machinelimits.Random8, start: func(x *cpu.Exec) (func() (work, error), error) { return startSample(x, data, false) }},
		workload{name: "sample/unfused", limit: machinelimits.Random8, start: func(x *cpu.Exec) (func() (work, error), error) { return startSample(x, data, true) }},
		workload{name: "subgraph", limit: machinelimits.FMA32, start: func(x *cpu.Exec) (func() (work, error), error) { return startSubgraph(x, data, true) }},
		workload{name: "subgraph/train", limit: machinelimits.FMA32, start: func(x *cpu.Exec) (func() (work, error), error) { return startSubgraph(x, data, false) }},
	)
}

// products returns C = A·B with A m×k and B k×n, and the products of its
// gradient: Aᵀ·C and C·Bᵀ.
func products(m, n, k int) []workload {
	one := func(form string, run func(x *cpu.Exec, a, b, c cpu.Matrix[float32])) workload {
		name := fmt.Sprintf("gemm/%dx%dx%d/%s", m, n, k, form)
		return workload{name: name, limit: machinelimits.FMA32, start: func(x *cpu.Exec) (func() (work, error), error) {
			a, b, c := randomMatrix(m, k, 1), randomMatrix(k, n, 2), randomMatrix(m, n, 3)
			w := work{flop: 2 * float64(m) * float64(n) * float64(k), bytes: 4 * float64(m*k+k*n+m*n)}
			return func() (work, error) {
				run(x, a, b, c)
				return w, nil
			}, nil
		}}
	}
	type matrix = cpu.Matrix[float32]
	var plain cpu.Epilogue[float32]
	return []workload{
		one("nn", func(x *cpu.Exec, a, b, c matrix) { cpu.Gemm(x, c, a, false, b, false, plain) }),
		one("tn", func(x *cpu.Exec, a, b, c matrix) { cpu.Gemm(x, b, a, true, c, false, plain) }),
		one("nt", func(x *cpu.Exec, a, b, c matrix) { cpu.Gemm(x, a, c, false, b, true, plain) }),
	}
}

// randomMatrix returns values in [-1, 1).
func randomMatrix(rows, cols int, seed uint64) cpu.Matrix[float32] {
	key, m := rng.New(benchSeed, seed), cpu.NewMatrix[float32](rows, cols)
	for i := range m.Data {
		m.Data[i] = float32(2*key.Float64(uint64(i)) - 1)
	}
	return m
}

// meanWorkload is the mean of random rows of table.
func meanWorkload(table []float32) workload {
	return workload{name: "aggregate", limit: machinelimits.Gather512, start: func(x *cpu.Exec) (func() (work, error), error) {
		rows := len(table) / benchWidth
		key, b := rng.New(benchSeed, 4), &graph.Block{NumDst: meanRows, NumSrc: rows, Indptr: make([]int64, meanRows+1)}
		for i := range meanRows {
			b.Indptr[i+1] = int64(meanDegree * (i + 1))
		}
		b.Indices = make([]uint32, meanRows*meanDegree)
		for e := range b.Indices {
			b.Indices[e] = uint32(key.Uintn(uint64(e), uint64(rows)))
		}
		return startMean(x, b, cpu.Source[float32]{Dense: cpu.Dense(rows, benchWidth, table)}), nil
	}}
}

// startMean averages src over the entries of b.
func startMean(x *cpu.Exec, b *graph.Block, src cpu.Source[float32]) func() (work, error) {
	dst := cpu.NewMatrix[float32](b.NumDst, src.Cols())
	edges := float64(len(b.Indices))
	values := edges * float64(src.Cols())
	return func() (work, error) {
		cpu.Aggregate(x, dst, b, src, cpu.AggregateOptions[float32]{Reduce: cpu.Mean})
		return work{flop: values, bytes: 4 * values, edges: edges}, nil
	}
}

func startSpMM(x *cpu.Exec, data func() (*graph.Dataset, error)) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	b := graph.WholeGraph(ds.Graph)
	return startMean(x, &b, cpu.Source[float32]{Table: ds.NodeFeatures}), nil
}

// plan is an endless run of epochs over ds.Train in batches.
type plan struct {
	ds    *graph.Dataset
	id    sampling.ID // of the next batch
	order []uint32    // of its epoch
}

// next sets b.ID to the next batch's name and returns its seeds.
func (p *plan) next(b *sampling.Batch) (seeds []uint32) {
	if p.id.Batch == sampling.NumBatches(len(p.order), benchBatch) {
		if p.order != nil {
			p.id.Epoch++
		}
		p.id.Batch, p.order = 0, sampling.Order(p.ds.Train, benchSeed, p.id.Epoch)
	}
	b.Reset()
	b.ID = p.id
	p.id.Batch++
	return sampling.Cut(p.order, benchBatch, 1, b.ID.Batch, 0)
}

// newSamplers returns a sampler for each of n goroutines, fused or not.
func newSamplers(ds *graph.Dataset, n int, unfused bool) ([]sampling.Sampler, error) {
	p, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: []int{15, 10, 5}}, ds, benchSeed)
	if err != nil {
		return nil, err
	}
	s := make([]sampling.Sampler, n)
	for i := range s {
		if s[i] = p.NewSampler(); unfused {
			s[i], _ = p.NewUnfusedSampler() // it is node-wise
		}
	}
	return s, nil
}

// startSample samples sampledBatches batches at a time, each on one thread.
func startSample(x *cpu.Exec, data func() (*graph.Dataset, error), unfused bool) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	samplers, err := newSamplers(ds, x.Pool().Size(), unfused)
	if err != nil {
		return nil, err
	}
	var (
		p       = plan{ds: ds, id: sampling.ID{Phase: "bench"}}
		batches [sampledBatches]sampling.Batch
		seeds   [sampledBatches][]uint32
		errs    [sampledBatches]error
	)
	return func() (w work, err error) {
		for i := range batches {
			seeds[i] = p.next(&batches[i])
		}
		x.Pool().For(sampledBatches, func(worker, i int) {
			errs[i] = samplers[worker].Sample(&batches[i], batches[i].ID.Key(benchSeed), seeds[i])
		})
		for i := range batches {
			w.add(work{edges: float64(batches[i].NumEdges())})
		}
		return w, errors.Join(errs[:]...)
	}, nil
}

// startStep trains, and tells parts, which may be nil, of it: with one thread it samples a batch and steps, with more it
// samples the next batch while it steps, as the dataflow does. Either way a step
// takes as long as it and one sampling.
func startStep(x *cpu.Exec, data func() (*graph.Dataset, error), parts *stages) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	samplers, err := newSamplers(ds, 1, false)
	if err != nil {
		return nil, err
	}
	t, err := newStepper(x, ds, compute.Spec{Model: "sage", Layers: 3, Hidden: benchHidden, InDim: benchWidth, OutDim: benchClasses})
	if err != nil {
		return nil, err
	}
	p := plan{ds: ds, id: sampling.ID{Phase: "bench"}}
	now, next := new(sampling.Batch), new(sampling.Batch)
	sample := func(b *sampling.Batch) error {
		seeds, began := p.next(b), time.Now()
		err := samplers[0].Sample(b, b.ID.Key(benchSeed), seeds)
		if parts != nil {
			parts.sampled(b.NumEdges(), time.Since(began))
		}
		return err
	}
	if x.Pool().Size() == 1 {
		return func() (work, error) {
			if err := sample(now); err != nil {
				return work{}, err
			}
			return t.step(now)
		}, nil
	}
	if err := sample(now); err != nil {
		return nil, err
	}
	sampled := make(chan error, 1)
	return func() (work, error) {
		x.Pool().Go(func() error { return sample(next) }, func(err error) { sampled <- err })
		w, err := t.step(now)
		now, next = next, now
		return w, errors.Join(<-sampled, err)
	}, nil
}

// startSubgraph trains on one subgraph, again and again: what the frontier
// sampler made of the graph, without the time of sampling it. Loss is on all its
// nodes, or on its training nodes.
func startSubgraph(x *cpu.Exec, data func() (*graph.Dataset, error), all bool) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	if all {
		copied := *ds
		copied.Train = nil // then every node of a subgraph is a target
		ds = &copied
	}
	budget := min(8000, ds.Graph.NumNodes()/4)
	p, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "frontier", Layers: 2, Frontier: budget / 8, Budget: budget}, ds, benchSeed)
	if err != nil {
		return nil, err
	}
	b := &sampling.Batch{ID: sampling.ID{Phase: "bench"}}
	if err := p.NewSampler().Sample(b, b.ID.Key(benchSeed), nil); err != nil {
		return nil, err
	}
	t, err := newStepper(x, ds, compute.Spec{Model: "sage", Combine: "concat", Layers: 2, Hidden: 512, InDim: benchWidth, OutDim: benchClasses})
	if err != nil {
		return nil, err
	}
	return func() (work, error) { return t.step(b) }, nil
}

// stepper is a model in training.
type stepper struct {
	ds           *graph.Dataset
	x            *cpu.Exec
	spec         compute.Spec
	engine       *compute.Engine
	params, grad []float32
	state        *compute.AdamState
	labels       []int32
}

func newStepper(x *cpu.Exec, ds *graph.Dataset, spec compute.Spec) (*stepper, error) {
	m, err := compute.NewModel(spec, ds.Graph)
	if err != nil {
		return nil, err
	}
	params := m.Init(benchSeed)
	return &stepper{ds: ds, x: x, spec: spec, engine: m.NewEngine(x), params: params, grad: make([]float32, len(params)), state: compute.NewAdamState(len(params))}, nil
}

// step updates the parameters from batch b.
func (t *stepper) step(b *sampling.Batch) (work, error) {
	t.labels = t.labels[:0]
	for _, v := range b.Seeds {
		t.labels = append(t.labels, t.ds.Labels.Class[v])
	}
	s, err := t.engine.Gradient(t.grad, t.params, &compute.Input{
		Key: b.ID.Key(benchSeed), Blocks: b.Blocks, Features: t.ds.NodeFeatures, Rows: b.Inputs(),
		Targets: b.Targets, Labels: t.labels, Weights: b.LossWeights,
	})
	if err != nil {
		return work{}, err
	}
	for i := range t.grad {
		t.grad[i] /= float32(s.Weight)
	}
	compute.DefaultAdam(0.001).Step(t.params, t.grad, t.state, t.x)
	computed := make([]graph.Block, len(b.Blocks))
	for i, rows := range t.engine.Rows() {
		computed[i].NumDst = rows
	}
	return work{flop: usefulFLOP(t.spec, computed), edges: float64(b.NumEdges())}, nil
}

// usefulFLOP is the work of the dense products of one step of a GraphSAGE on
// blocks of so many destinations: for
// the weights of a node and of its neighbours' mean, forward, weight gradient,
// and input gradient where there is a layer below; and for the linear output, if
// there is one. Where both parts are concatenated, each is half as wide.
func usefulFLOP(spec compute.Spec, blocks []graph.Block) float64 {
	concat := spec.Combine == "concat"
	linear := concat || spec.Decoder > 0
	total := 0.0
	product := func(rows, in, out, passes int) {
		total += 2 * float64(passes) * float64(rows) * float64(in) * float64(out)
	}
	for i := range blocks {
		in, out, passes := spec.Hidden, spec.Hidden, 3
		if i == 0 {
			in, passes = spec.InDim, 2
		}
		if i == len(blocks)-1 && !linear {
			out = spec.OutDim
		}
		if concat {
			out /= 2
		}
		product(2*blocks[i].NumDst, in, out, passes)
	}
	if linear {
		product(blocks[len(blocks)-1].NumDst, spec.Hidden, spec.OutDim, 3)
	}
	return total
}
