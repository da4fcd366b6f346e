package runtime

import (
	"context"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

const (
	baselineSteps = 200
	baselineLR    = 0.01
)

// BaselineAccuracy returns the test accuracy of a model of the same width and
// depth that sees the features and not the graph: what is above it, the edges
// brought. On a graph without edges a GCN layer is a linear layer, so the
// baseline is one, trained on the whole training set for 200 steps.
func (r *Runtime) BaselineAccuracy(ctx context.Context) (accuracy float64, err error) {
	err = r.call(ctx, nil, func(ctx context.Context) error {
		if accuracy, err = r.baseline(ctx); err != nil {
			return err
		}
		return r.Verified(ctx)
	})
	return accuracy, err
}

func (r *Runtime) baseline(ctx context.Context) (float64, error) {
	if err := r.classesOnly("accuracies"); err != nil {
		return 0, err
	}
	if err := r.check(); err != nil {
		return 0, err
	}
	release, err := r.admit(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	data, err := r.readable(ctx)
	if err != nil {
		return 0, err
	}
	ds := *data
	if rows := r.inferenceRows(ctx, data); rows != nil {
		if ds.NodeFeatures, err = rows(r.stages.every()); err != nil {
			return 0, err
		}
	}
	ds.Graph = &graph.Graph{Indptr: make([]int64, r.data.ds.Graph.NumNodes()+1), Indices: []uint32{}}
	spec := r.model.Spec()
	spec = compute.Spec{Model: "gcn", Layers: spec.Layers, Hidden: spec.Hidden, InDim: spec.InDim, OutDim: spec.OutDim, Dropout: spec.Dropout}
	m, err := compute.NewModel(spec, ds.Graph)
	if err != nil {
		return 0, err
	}
	n := len(ds.Train)
	in := &compute.Input{Features: ds.NodeFeatures, Rows: ds.Train}
	for range spec.Layers {
		in.Blocks = append(in.Blocks, graph.Block{NumDst: n, NumSrc: n, Indptr: make([]int64, n+1), Indices: []uint32{}, SrcIDs: ds.Train})
	}
	if l := ds.Labels; l.IsMulti() {
		in.Multi = l.AppendMulti(nil, ds.Train)
	} else {
		in.Labels = l.AppendClasses(nil, ds.Train)
	}
	x := r.modelExec()
	defer r.releaseModelExec(x)
	engine := m.NewEngine(x)
	defer engine.Close()
	host := r.newExec() // the optimiser's, whose memory is no device's
	adam := compute.DefaultAdam(baselineLR)
	adam.WeightDecay = r.cfg.Training.WeightDecay
	params := m.Init(r.cfg.Training.Seed)
	grad := make([]float32, len(params))
	state := compute.NewAdamState(len(params))
	for step := range baselineSteps {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		in.Key = rng.New(r.cfg.Training.Seed, uint64(step))
		s, err := engine.Gradient(grad, params, in)
		if err != nil {
			return 0, err
		}
		for i := range grad {
			grad[i] /= float32(s.Weight)
		}
		adam.Step(params, grad, state, host)
	}
	out, err := m.Infer(ctx, x, params, &ds, ds.Test, r.plan.EvalChunk)
	if err != nil {
		return 0, err
	}
	return score(ds.Labels, out, ds.Test, false).Accuracy, nil
}
