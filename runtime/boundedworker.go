package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// boundedWorker computes batches for one trainer of the asynchronous mode.
type boundedWorker struct {
	*trainCall
	index  int
	draw   func(*sampling.Batch, sampling.ID) error
	engine worker
	places [2]boundedBatch
}

// boundedBatch is a batch, with the rows of its inputs where those do not lie in
// memory.
type boundedBatch struct {
	batch sampling.Batch
	rows  *graph.Features
	slots []uint32
	x     []float32 // the rows that the program's own stages made
}

// newWorker returns a worker, and what ends it.
func (s *bounded) newWorker(index int) (w *boundedWorker, end func()) {
	r := s.r
	x := r.modelExec()
	e := r.learner.NewEngine(x)
	w = &boundedWorker{
		trainCall: s.trainCall, index: index, draw: r.newDraw(s.orders),
		engine: worker{engine: e, ds: r.sampler.Dataset(), links: r.links, limit: r.plan.CopyRows},
	}
	w.engine.Tune(r.plan.Threads, r.plan.Copied)
	return w, func() {
		e.Close()
		r.releaseModelExec(x)
	}
}

// id names the batch of a step.
func (t *trainCall) id(step int64) sampling.ID {
	return sampling.ID{Phase: "train", Epoch: int(step / t.steps), Batch: int(step % t.steps)}
}

func (t *trainCall) label(id sampling.ID) string {
	if t.clock.Keeping() {
		return id.String()
	}
	return ""
}

// Sample implements async.Worker.
func (w *boundedWorker) Sample(ctx context.Context, place int, step int64) error {
	p, r := &w.places[place], w.r
	id := w.id(step)
	id.Of = 1
	node, err := w.sample(ctx, &p.batch, id, step)
	if err != nil {
		return fmt.Errorf("%v: sample: %w", id, err)
	}
	if w.team != nil {
		w.team.Sampled(&p.batch, node)
	}
	if _, err := r.stages.here(ctx, AfterSample, &p.batch, actors.Rows{}, nil, nil, &w.clock); err != nil {
		return err
	}
	var slots []uint32
	if r.data.rows != nil {
		if err := w.read(ctx, p); err != nil {
			return err
		}
		slots = p.slots[:p.batch.NumInputs()]
	}
	p.x, err = r.stages.here(ctx, AfterLoad, &p.batch, actors.Rows{Slots: slots}, p.rows, p.x, &w.clock)
	return err
}

// sample makes b the batch of a step, where its sampler is, and returns the node; "": this one.
func (w *boundedWorker) sample(ctx context.Context, b *sampling.Batch, id sampling.ID, step int64) (node string, err error) {
	if e := w.r.cfg.Cluster.Elsewhere; e != nil && !e.Here(w.index) {
		if node, err = e.Draw(ctx, w.index, &messages.Seeds{ID: id, Step: step}, b); !errors.Is(err, actors.ErrHere) {
			return node, err
		}
	}
	span := w.clock.Begin(clock.Sample)
	defer func() { span.End(w.label(id)) }()
	return "", w.draw(b, id)
}

// read reads the rows of a batch's inputs.
func (w *boundedWorker) read(ctx context.Context, p *boundedBatch) error {
	id, store := p.batch.ID, w.r.data.rows
	span := w.clock.Begin(clock.Load)
	defer func() { span.End(w.label(id)) }()
	ids := p.batch.Inputs()
	if p.rows == nil || p.rows.Rows < len(ids) {
		l := store.Layout()
		p.rows = l.NewTable(len(ids) + len(ids)/4)
		p.slots = make([]uint32, p.rows.Rows)
		for i := range p.slots {
			p.slots[i] = uint32(i)
		}
	}
	if err := features.Read(ctx, store, features.Request{IDs: ids, Dst: p.rows}); err != nil {
		return fmt.Errorf("%v: load: %w", id, err)
	}
	return nil
}

// Gradient implements async.Worker.
func (w *boundedWorker) Gradient(grad, params []float32, place int, step int64) (s messages.Stats, err error) {
	p := &w.places[place]
	id := p.batch.ID
	span := w.clock.Begin(clock.Compute)
	defer func() { span.End(w.label(id)) }()
	rows := actors.Rows{X: p.x}
	if p.rows != nil {
		w.engine.slab, rows.Slots = p.rows, p.slots[:p.batch.NumInputs()]
	}
	err = graph.Guard(func() error {
		s, err = w.engine.Gradient(grad, params, &p.batch, rows, actors.Key(w.r.cfg.Training.Seed, id))
		return err
	})
	if err != nil {
		err = fmt.Errorf("%v: compute: %w", id, err)
	}
	return s, err
}

// boundedModel is what an owner of the parameters steps.
type boundedModel struct {
	*trainCall
	// decides waits until this node may make steps for others; nil: it makes them alone.
	decides func() error
}

// Params implements async.Model.
func (m boundedModel) Params() []float32 { return m.updater.params }

// Apply implements async.Model: what actors' parameters do with a step's gradients.
func (m boundedModel) Apply(g *async.Push) error {
	if m.decides != nil {
		if err := m.decides(); err != nil {
			return err
		}
	}
	span := m.clock.Begin(clock.Update)
	defer func() { span.End(m.label(m.id(g.Step))) }()
	u := m.updater
	u.Observe(g.Data)
	if g.Stats.Weight > 0 {
		compute.Divide(g.Data, float32(g.Stats.Weight))
	} else { // a subgraph without training nodes
		clear(g.Data)
	}
	u.Apply(g.Data)
	return nil
}
