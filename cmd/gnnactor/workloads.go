package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/limits"
	"github.com/gnnactor/gnnactor/internal/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// The shapes of bench's workloads.
const (
	benchSeed    = 1
	benchBatch   = 1024
	benchHidden  = 256
	benchClasses = 47
	benchWidth   = limits.RowLen // features
	meanRows     = 40_000        // nodes of the aggregation
	meanDegree   = 10
)

// workload is something that bench measures.
type workload struct {
	name  string
	limit limits.Limit // what it is divided by
	// start gets it ready to run on x; step runs it once.
	start func(x *cpu.Exec) (step func() (work, error), err error)
}

// work is what was done: useful FLOP, bytes moved at least, and edges.
type work struct{ flop, bytes, edges float64 }

func (w *work) add(v work) {
	w.flop += v.flop
	w.bytes += v.bytes
	w.edges += v.edges
}

// against returns the part of w that l limits.
func (w *work) against(l limits.Limit) float64 {
	switch l {
	case limits.FMA32:
		return w.flop
	case limits.Random8:
		return w.edges
	}
	return w.bytes
}

// benchWorkloads returns all workloads. They read rows out of table; the graph
// is made when the first asks for it.
func benchWorkloads(o benchOptions, table []float32) []workload {
	data := sync.OnceValues(func() (*graph.Dataset, error) {
		ds, err := graph.RMAT(graph.RMATOptions{Scale: o.scale, Edges: o.graphEdges(), Classes: benchClasses, Seed: benchSeed})
		if err != nil {
			return nil, &usageError{err}
		}
		n := ds.Graph.NumNodes()
		ds.NodeFeatures = graph.NewFeatures(n, benchWidth, table[:n*benchWidth])
		ds.Train = drawNodes(ds.Graph, seedsWithoutSplit, benchSeed)
		return ds, nil
	})
	var all []workload
	for _, s := range [][3]int{{65536, 256, 128}, {10000, 256, 602}, {1024, 47, 256}} {
		all = append(all, products(s[0], s[1], s[2])...)
	}
	return append(all,
		meanWorkload(table),
		workload{"spmm", limits.Gather512, func(x *cpu.Exec) (func() (work, error), error) { return startSpMM(x, data) }},
		workload{"sample", limits.Random8, func(x *cpu.Exec) (func() (work, error), error) { return startSample(x, data) }},
		workload{"step", limits.FMA32, func(x *cpu.Exec) (func() (work, error), error) { return startStep(x, data) }},
	)
}

// products returns C = A·B with A m×k and B k×n, and the products of its
// gradient: Aᵀ·C and C·Bᵀ.
func products(m, n, k int) []workload {
	one := func(form string, run func(x *cpu.Exec, a, b, c cpu.Matrix[float32])) workload {
		name := fmt.Sprintf("gemm/%dx%dx%d/%s", m, n, k, form)
		return workload{name, limits.FMA32, func(x *cpu.Exec) (func() (work, error), error) {
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
	return workload{"aggregate", limits.Gather512, func(x *cpu.Exec) (func() (work, error), error) {
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

// batches returns a function that samples the next batch of an endless run of
// epochs, with all of x's threads.
func batches(x *cpu.Exec, ds *graph.Dataset) (next func() (*sampling.Batch, error), err error) {
	p, err := sampling.Prepare(sampling.Spec{Name: "neighbor", Fanouts: []int{15, 10, 5}}, ds, benchSeed)
	if err != nil {
		return nil, err
	}
	s := p.NewSampler()
	if x.Pool().Size() > 1 {
		if all, ok := p.NewParallelSampler(x.Pool()); ok {
			s = all
		}
	}
	b, id, order := new(sampling.Batch), sampling.ID{Phase: "bench"}, []uint32(nil)
	return func() (*sampling.Batch, error) {
		if id.Batch == sampling.NumBatches(len(order), benchBatch) {
			if order != nil {
				id.Epoch++
			}
			id.Batch, order = 0, sampling.Order(ds.Train, benchSeed, id.Epoch)
		}
		b.Reset()
		err := s.Sample(b, id.Key(benchSeed), sampling.Cut(order, benchBatch, 1, id.Batch, 0))
		b.ID = id
		id.Batch++
		return b, err
	}, nil
}

func startSample(x *cpu.Exec, data func() (*graph.Dataset, error)) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	next, err := batches(x, ds)
	if err != nil {
		return nil, err
	}
	return func() (work, error) {
		b, err := next()
		if err != nil {
			return work{}, err
		}
		return work{edges: float64(b.NumEdges())}, nil
	}, nil
}

func startStep(x *cpu.Exec, data func() (*graph.Dataset, error)) (func() (work, error), error) {
	ds, err := data()
	if err != nil {
		return nil, err
	}
	next, err := batches(x, ds)
	if err != nil {
		return nil, err
	}
	m, err := compute.NewModel(compute.Spec{Model: "sage", Layers: 3, Hidden: benchHidden, InDim: benchWidth, OutDim: benchClasses}, ds.Graph)
	if err != nil {
		return nil, err
	}
	engine, params := m.NewEngine(x), m.Init(benchSeed)
	grad, state, adam := make([]float32, len(params)), compute.NewAdamState(len(params)), compute.DefaultAdam(0.001)
	var labels []int32
	return func() (work, error) {
		b, err := next()
		if err != nil {
			return work{}, err
		}
		labels = slices.Grow(labels[:0], len(b.Seeds))
		for _, v := range b.Seeds {
			labels = append(labels, ds.Labels.Class[v])
		}
		s, err := engine.Gradient(grad, params, &compute.Input{
			Key: b.ID.Key(benchSeed), Blocks: b.Blocks, Features: ds.NodeFeatures, Rows: b.Inputs(), Labels: labels,
		})
		if err != nil {
			return work{}, err
		}
		for i := range grad {
			grad[i] /= float32(s.Weight)
		}
		adam.Step(params, grad, state, x)
		return work{flop: usefulFLOP(b.Blocks), edges: float64(b.NumEdges())}, nil
	}, nil
}

// usefulFLOP is the work of the dense products of one step: for the weights of
// a node and of its neighbours' mean, forward, weight gradient, and input
// gradient where there is a layer below.
func usefulFLOP(blocks []graph.Block) float64 {
	total := 0.0
	for i := range blocks {
		in, out, passes := benchHidden, benchHidden, 3
		if i == 0 {
			in, passes = benchWidth, 2
		}
		if i == len(blocks)-1 {
			out = benchClasses
		}
		total += 2 * 2 * float64(passes) * float64(blocks[i].NumDst) * float64(in) * float64(out)
	}
	return total
}
