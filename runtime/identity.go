package runtime

import (
	"github.com/gnnactor/gnnactor/sampling/overlap"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Identity is everything that changes the result of a run, other than how long it runs. It is
// kept in every checkpoint.
type Identity = checkpoint.Identity

// Recipe says how gradients change the parameters. It is part of a run's identity.
type Recipe = checkpoint.Recipe

// ErrIdentity is wrapped when a checkpoint belongs to another run.
var ErrIdentity = checkpoint.ErrIdentity

func (r *Runtime) identify() Identity {
	id := Identity{
		Data: r.data.ds.Fingerprint, NormalizeFeatures: r.cfg.Data.NormalizeFeatures, Sampler: r.sampler.Spec(), Seed: r.cfg.Training.Seed,
		BatchSize: r.cfg.Sampling.BatchSize, MicroBatches: r.cfg.Sampling.MicroBatches, Stages: r.cfg.StageNames(), Recipe: r.cfg.recipe(),
		Precision: r.cfg.precision.String(), Kernels: r.kernels(),
	}
	if r.cfg.Training.keepsBest() {
		id.Keep = "best"
	}
	if m := r.cfg.method; m != 0 {
		id.Reorder, id.ReorderMethod = r.cfg.Sampling.Reorder, m.String()
		if m == overlap.Sketch && r.cfg.Sampling.MicroBatches > 1 {
			id.ReorderMethod += " of micro-batches" // how many nodes those have together was counted before
		}
	}
	if r.cfg.Training.Sync.Asynchronous() {
		id.Sync = r.cfg.Training.Sync.String()
	}
	if r.links != nil {
		id.Task, id.Negatives, id.KeepTargetEdges = r.cfg.Model.Task, r.cfg.negatives(), r.cfg.Sampling.KeepTargetEdges
	}
	if r.Regression() {
		id.Task = taskRegression
	}
	if r.model != nil {
		id.Model = r.model.Spec()
	}
	return id
}
