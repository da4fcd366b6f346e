package runtime

import (
	"slices"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/clock"
	"github.com/gnnactor/gnnactor/internal/rng"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// worker is a trainer's engine, with the data that its batches refer to.
type worker struct {
	engine *compute.Engine
	ds     *graph.Dataset
	labels []int32
}

// Gradient implements actors.Gradienter.
func (w *worker) Gradient(grad, params []float32, b *sampling.Batch, key rng.Key) (messages.Stats, error) {
	w.labels = w.labels[:0]
	for _, v := range b.Seeds {
		w.labels = append(w.labels, w.ds.Labels.Class[v])
	}
	s, err := w.engine.Gradient(grad, params, &compute.Input{
		Key: key, Blocks: b.Blocks, Features: w.ds.NodeFeatures, Rows: b.Inputs(),
		Targets: b.Targets, Labels: w.labels, Weights: b.LossWeights,
	})
	return messages.Stats{Loss: s.Loss, Weight: s.Weight, Correct: s.Correct, Count: s.Count}, err
}

// updater owns the parameters while a run trains.
type updater struct {
	adam   compute.Adam
	state  *compute.AdamState
	params []float32
	x      *cpu.Exec
}

func newUpdater(r *Runtime, params []float32) *updater {
	u := &updater{
		adam:   compute.DefaultAdam(r.cfg.LR),
		state:  compute.NewAdamState(len(params)),
		params: slices.Clone(params),
		x:      cpu.NewExec(r.pool, r.set),
	}
	u.adam.WeightDecay = r.cfg.WeightDecay
	return u
}

func (u *updater) restore(c *checkpoint) {
	u.params, u.state = c.params, &compute.AdamState{Step: int(c.Step), M: c.m, V: c.v}
}

// Params implements actors.Updater.
func (u *updater) Params() []float32 { return u.params }

// Apply implements actors.Updater.
func (u *updater) Apply(grad []float32) { u.adam.Step(u.params, grad, u.state, u.x) }

// Snapshot implements actors.Updater.
func (u *updater) Snapshot() (params, m, v []float32) {
	return slices.Clone(u.params), slices.Clone(u.state.M), slices.Clone(u.state.V)
}

// samplers makes one sampler for each actor.
func (r *Runtime) samplers() []sampling.Sampler {
	s := make([]sampling.Sampler, r.plan.Samplers)
	for i := range s {
		s[i] = r.sampler.NewSampler()
	}
	return s
}

func (r *Runtime) trainingPipeline(work actors.Work, u *updater, rec *clock.Recorder) (*actors.Pipeline, error) {
	c := actors.Config{
		System: r.system, Pool: r.pool, Clock: rec, Work: work, Samplers: r.samplers(), Credits: r.plan.Credits,
		Bytes: r.cfg.LocalCodec == "msgpack", Updater: u,
	}
	for range r.plan.Trainers {
		c.Trainers = append(c.Trainers, &worker{engine: r.model.NewEngine(cpu.NewExec(r.pool, r.set)), ds: r.data.ds})
	}
	return actors.Start(c)
}
