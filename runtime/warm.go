package runtime

import (
	"context"
	"fmt"
	"runtime"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/sampling"
)

// warmBatches is how many micro-batches a node computes before it meets others.
const warmBatches = 2

// warm does once, for nothing, what the first step will do: it samples, reads
// rows over the connections that training will use, computes gradients, and
// takes the state apart and puts it together again. The others make no step
// while a node that joined is at its first one, so what is slow the first time
// (connections, memory) is done here.
func (t *trainCall) warm(ctx context.Context) error {
	if err := t.r.tryBatches(ctx, t.updater, min(warmBatches, t.r.cfg.Sampling.MicroBatches), func(*sampling.Batch, Costs) {}); err != nil {
		return err
	}
	state, err := t.position()
	if err != nil {
		return err
	}
	b, err := state.Save()
	if err != nil {
		return err
	}
	_, err = state.Restore(b)
	return err
}

// tryBatches samples micro-batches of the first batch and computes their gradients, and tells what that took.
func (r *Runtime) tryBatches(ctx context.Context, u *updater, n int, tell func(b *sampling.Batch, took Costs)) error {
	seeds := r.seeds()
	if len(seeds) == 0 {
		return nil
	}
	order := sampling.Order(seeds, r.cfg.Training.Seed, 0)
	size := r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(seeds))
	w := &worker{engine: r.engine(u, 0), ds: r.sampler.Dataset()}
	grad := make([]float32, len(u.Params()))
	draw, b := r.newTrial(ctx), new(sampling.Batch)
	runtime.LockOSThread() // whose processor time is measured
	defer runtime.UnlockOSThread()
	for i := range n {
		id := sampling.ID{Phase: "warm", Micro: i % r.cfg.Sampling.MicroBatches, Of: r.cfg.Sampling.MicroBatches}
		took := Costs{Sample: -clock.ThreadCPU()}
		if err := draw(b, id, sampling.Cut(order, size, r.cfg.Sampling.MicroBatches, 0, id.Micro)); err != nil {
			return fmt.Errorf("runtime: %v: %w", id, err)
		}
		took.Sample += clock.ThreadCPU()
		if _, err := r.stages.here(ctx, AfterSample, b, actors.Rows{}, nil, nil, new(clock.Recorder)); err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
		if len(b.Seeds) == 0 {
			continue
		}
		var slots []uint32
		if r.plan.Load {
			store := r.data.rows
			if store == nil {
				store = features.InMemory(r.data.ds.NodeFeatures)
				defer store.Close()
			}
			var err error
			if w.slab, err = features.Table(ctx, store, b.Inputs()); err != nil {
				return fmt.Errorf("runtime: %v: %w", b.ID, err)
			}
			slots = graph.Consecutive(0, b.NumInputs())
		}
		x, err := r.stages.here(ctx, AfterLoad, b, actors.Rows{Slots: slots}, w.slab, nil, new(clock.Recorder))
		if err != nil {
			return fmt.Errorf("runtime: %w", err)
		}
		took.Compute -= clock.ThreadCPU()
		if _, err := w.Gradient(grad, u.Params(), b, actors.Rows{Slots: slots, X: x}, b.ID.Key(r.cfg.Training.Seed)); err != nil {
			return fmt.Errorf("runtime: %v: %w", b.ID, err)
		}
		took.Compute += clock.ThreadCPU()
		tell(b, took)
	}
	return nil
}
