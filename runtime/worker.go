package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// worker is a trainer's engine, with the data that its batches refer to.
type worker struct {
	engine   *compute.Engine
	away     *updater // whose parameters lie in another device's memory than the engine's; nil: they do not
	ds       *graph.Dataset
	loss     *compute.Loss
	slab     *graph.Features // rows of batches that have slots
	labels   []int32
	multi    []uint8
	values   []float32
	target   Target // of task regression, with its loss
	distance compute.RegressionLoss
	pairs    []compute.Link
	limit    int64 // rows that gatherer has room for

	computing sync.Mutex
	gatherer  *features.Gatherer // of a batch's rows; nil: they are read where they lie
}

// Tune implements actors.Tuned.
func (w *worker) Tune(threads int, copied bool) {
	w.computing.Lock()
	defer w.computing.Unlock()
	w.engine.SetThreads(threads)
	switch {
	case !copied:
		w.gatherer = nil
	case w.gatherer == nil:
		w.gatherer = &features.Gatherer{Limit: int(w.limit)}
	}
}

// rest gives up the memory of a batch's rows, unless a gradient is being computed.
func (w *worker) rest() {
	if !w.computing.TryLock() {
		return
	}
	defer w.computing.Unlock()
	if w.gatherer != nil {
		w.gatherer.Release()
	}
}

// Gradient implements actors.Gradienter.
func (w *worker) Gradient(grad, params []float32, b *sampling.Batch, rows actors.Rows, key rng.Key) (messages.Stats, error) {
	w.computing.Lock()
	defer w.computing.Unlock()
	if w.away != nil {
		var err error
		if params, err = w.away.InHost(); err != nil {
			return messages.Stats{}, err
		}
	}
	in := &compute.Input{
		Key: key, Blocks: b.Blocks, Features: w.ds.NodeFeatures, Rows: b.Inputs(), Targets: b.Targets, Weights: b.LossWeights,
		Edges: w.ds.EdgeFeatures, There: b.There, Loss: w.loss,
	}
	switch {
	case rows.X != nil:
		in.Features, in.Rows = graph.NewFeatures(b.NumInputs(), w.ds.NodeFeatures.Cols, rows.X), nil
	case rows.Slots != nil:
		in.Features, in.Rows = w.slab, rows.Slots
	}
	if w.gatherer != nil && in.Rows != nil {
		in.Features, in.Rows = w.gatherer.Gather(in.Features, in.Rows, w.engine.For), nil
	}
	if b.Positive != nil {
		w.pairs = appendLinks(w.pairs[:0], b)
		in.Targets, in.Weights, in.Loss = nil, nil, nil
		s, err := w.engine.LinkGradient(grad, params, in, w.pairs)
		return messages.Stats{Loss: s.Loss, Weight: s.Weight, Correct: s.Correct, Count: s.Count}, err
	}
	switch l := w.ds.Labels; {
	case l.Values != nil:
		w.values = w.values[:0]
		for _, v := range b.Seeds {
			w.values = append(w.values, w.target.Learnt(l.Values[v]))
		}
		in.Values, in.Regression = w.values, w.distance
	case l.IsMulti():
		w.multi = l.AppendMulti(w.multi[:0], b.Seeds)
		in.Multi = w.multi
	default:
		w.labels = l.AppendClasses(w.labels[:0], b.Seeds)
		in.Labels = w.labels
	}
	s, err := w.engine.Gradient(grad, params, in)
	return messages.Stats{Loss: s.Loss, Weight: s.Weight, Correct: s.Correct, Count: s.Count}, err
}

// samplers makes one sampler for each actor, those that rest at first included.
func (r *Runtime) samplers() []sampling.Sampler {
	if r.plan.Together && r.cfg.Cluster.Elsewhere == nil {
		if s, ok := r.sampler.NewParallelSampler(r.pool); ok {
			return []sampling.Sampler{s}
		}
	}
	s := make([]sampling.Sampler, r.plan.MaxSamplers)
	for i := range s {
		s[i] = r.newSampler()
	}
	return s
}

// engine returns a run's engine i. The pipelines of one run, of which there is one
// at a time, have the same ones: their memory is there when nodes come and go.
func (r *Runtime) engine(u *updater, i int) *compute.Engine {
	for len(u.engines) <= i {
		x := r.modelExecOn(r.deviceOf(len(u.engines)))
		e := r.learner.NewEngine(x)
		e.Reserve(r.reserve)
		u.engines, u.execs = append(u.engines, e), append(u.execs, x)
	}
	return u.engines[i]
}

// limitsFirstStep reports whether a pipeline begins with limitFirstStep: all nodes of a new group wait for
// its first step, and what each samples and reads for later ones would take processors
// and links from it.
func limitsFirstStep(w *actors.Work) bool { return w.Mine != nil && w.Window <= 1 }

// limitFirstStep has at most as many batches under way as this process computes of the first
// step, until the pipeline is tuned.
func limitFirstStep(c *actors.Config) {
	own := max(c.Work.Own(c.Work.First), 1)
	working := max(len(c.Samplers)-c.Resting, 1)
	c.Credits = min(c.Credits, (own+working-1)/working)
	if c.Loading != nil {
		c.Loading.Ahead = min(c.Loading.Ahead, own)
	}
}

// trainingConfig returns what a pipeline that trains is made of. The caller closes the
// resident memory after the pipeline.
func (r *Runtime) trainingConfig(ctx context.Context, work actors.Work, u *updater, rec *clock.Recorder) (actors.Config, *resident, error) {
	c, mem, err := r.pipelineConfig(ctx, work, r.plan.DeviceSlab, rec)
	if err != nil {
		return c, nil, err
	}
	c.Updater, c.Reducer, c.Elsewhere = u, u.share, r.cfg.Cluster.Elsewhere
	if u.team != nil {
		for i, s := range c.Samplers {
			c.Samplers[i] = audited{s, u.team}
		}
		if c.Elsewhere != nil {
			c.Elsewhere = auditedElsewhere{c.Elsewhere, u.team}
		}
	}
	if limitsFirstStep(&c.Work) {
		limitFirstStep(&c)
	}
	u.workers = u.workers[:0]
	for i := range r.plan.Trainers {
		w := &worker{engine: r.engine(u, i), ds: r.sampler.Dataset(), loss: r.loss, target: r.cfg.target, distance: compute.RegressionLoss(max(slices.Index(regressionLosses, r.cfg.Training.Loss), 0)), slab: mem.table(), limit: r.plan.CopyRows}
		if r.resident() && r.deviceOf(i) > 0 {
			w.away = u
		}
		w.Tune(r.plan.Threads, r.plan.Copied)
		c.Trainers, u.workers = append(c.Trainers, w), append(u.workers, w)
	}
	return c, mem, nil
}

// trainingPipeline starts a pipeline. When it was stopped, and the error is nil,
// the caller must close the resident memory.
func (r *Runtime) trainingPipeline(ctx context.Context, work actors.Work, u *updater, rec *clock.Recorder) (*actors.Pipeline, *resident, error) {
	c, mem, err := r.trainingConfig(ctx, work, u, rec)
	if err != nil {
		return nil, nil, err
	}
	p, err := actors.Start(c)
	if err != nil {
		return nil, nil, errors.Join(err, mem.close())
	}
	return p, mem, nil
}
