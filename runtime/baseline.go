package runtime

import (
	"context"

	"github.com/gnnactor/gnnactor/compute"
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
	x := r.modelExec()
	defer r.releaseModelExec(x)
	out, err := compute.Baseline(ctx, r.model.Spec(), &ds, compute.BaselineOptions{
		Exec: x, Host: r.newExec(), Seed: r.cfg.Training.Seed, WeightDecay: r.cfg.Training.WeightDecay, Chunk: r.plan.EvalChunk,
	})
	if err != nil {
		return 0, err
	}
	return score(ds.Labels, out, ds.Test, false).Accuracy, nil
}
