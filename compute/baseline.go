package compute

import (
	"context"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

const (
	baselineSteps = 200
	baselineLR    = 0.01
)

// BaselineOptions are those of Baseline.
type BaselineOptions struct {
	Exec        *cpu.Exec // of the model
	Host        *cpu.Exec // of the optimiser, in the host's memory
	Seed        uint64
	WeightDecay float64
	Chunk       int // rows of inference at once
}

// Baseline returns, for the test nodes of ds, the outputs of a model as wide and as deep as spec that sees the features and not the graph:
// on a graph without edges a GCN layer is a linear layer. It is trained on the whole training set for 200 steps of Adam.
func Baseline(ctx context.Context, spec Spec, ds *graph.Dataset, o BaselineOptions) (none cpu.Matrix[float32], err error) {
	bare := *ds
	bare.Graph = &graph.Graph{Indptr: make([]int64, ds.Graph.NumNodes()+1), Indices: []uint32{}}
	m, err := NewModel(Spec{Model: "gcn", Layers: spec.Layers, Hidden: spec.Hidden, InDim: spec.InDim, OutDim: spec.OutDim, Dropout: spec.Dropout}, bare.Graph)
	if err != nil {
		return none, err
	}
	n := len(ds.Train)
	in := &Input{Features: ds.NodeFeatures, Rows: ds.Train}
	for range spec.Layers {
		in.Blocks = append(in.Blocks, graph.Block{NumDst: n, NumSrc: n, Indptr: make([]int64, n+1), Indices: []uint32{}, SrcIDs: ds.Train})
	}
	if l := ds.Labels; l.IsMulti() {
		in.Multi = l.AppendMulti(nil, ds.Train)
	} else {
		in.Labels = l.AppendClasses(nil, ds.Train)
	}
	engine := m.NewEngine(o.Exec)
	defer engine.Close()
	adam := DefaultAdam(baselineLR)
	adam.WeightDecay = o.WeightDecay
	params := m.Init(o.Seed)
	grad, state := make([]float32, len(params)), NewAdamState(len(params))
	for step := range baselineSteps {
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		in.Key = rng.New(o.Seed, uint64(step))
		s, err := engine.Gradient(grad, params, in)
		if err != nil {
			return none, err
		}
		for i := range grad {
			grad[i] /= float32(s.Weight)
		}
		adam.Step(params, grad, state, o.Host)
	}
	return m.Infer(ctx, o.Exec, params, &bare, ds.Test, o.Chunk)
}
