package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// staleWorker computes batches for one trainer of the asynchronous mode.
type staleWorker struct {
	t       *trainCall
	orders  *epochOrders
	sampler sampling.Sampler
	engine  worker
	places  [2]staleBatch
}

// staleBatch is a batch, with the rows of its inputs where those do not lie in
// memory.
type staleBatch struct {
	batch sampling.Batch
	rows  *graph.Features
	slots []uint32
	x     []float32 // the rows that the program's own stages made
}

func (t *trainCall) newStaleWorker(o *epochOrders) *staleWorker {
	r := t.r
	w := &staleWorker{
		t: t, orders: o, sampler: t.audit(r.newSampler()),
		engine: worker{engine: r.learner.NewEngine(r.newExec()), ds: r.sampler.Dataset(), links: r.links, limit: r.plan.CopyRows},
	}
	w.engine.Tune(r.plan.Threads, r.plan.Copied)
	return w
}

// epochOrders keeps the order of the newest epoch's seeds.
type epochOrders struct {
	work  actors.Work
	mu    sync.Mutex
	epoch int
	order []uint32
}

// of returns the order of an epoch.
func (o *epochOrders) of(epoch int) []uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.order == nil || o.epoch != epoch {
		o.order, o.epoch = sampling.Order(o.work.Nodes, o.work.Seed, epoch), epoch
	}
	return o.order
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
func (w *staleWorker) Sample(ctx context.Context, place int, step int64) error {
	p, r := &w.places[place], w.t.r
	id := w.t.id(step)
	id.Of = 1
	span := w.t.clock.Begin(clock.Sample)
	p.batch.Reset()
	p.batch.ID = id
	err := graph.Guard(func() error {
		var seeds []uint32
		if work := &w.orders.work; work.Batches == 0 {
			seeds = sampling.Cut(w.orders.of(id.Epoch), work.BatchSize, 1, id.Batch, 0)
		}
		return w.sampler.Sample(&p.batch, id.Key(r.cfg.Training.Seed), seeds)
	})
	span.End(w.t.label(id))
	if err != nil {
		return fmt.Errorf("%v: sample: %w", id, err)
	}
	if _, err := r.stages.here(ctx, AfterSample, &p.batch, actors.Rows{}, nil, nil, &w.t.clock); err != nil {
		return err
	}
	var slots []uint32
	if r.data.rows != nil {
		if err := w.read(ctx, p); err != nil {
			return err
		}
		slots = p.slots[:p.batch.NumInputs()]
	}
	p.x, err = r.stages.here(ctx, AfterLoad, &p.batch, actors.Rows{Slots: slots}, p.rows, p.x, &w.t.clock)
	return err
}

// read reads the rows of a batch's inputs.
func (w *staleWorker) read(ctx context.Context, p *staleBatch) error {
	id, store := p.batch.ID, w.t.r.data.rows
	span := w.t.clock.Begin(clock.Load)
	defer func() { span.End(w.t.label(id)) }()
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
func (w *staleWorker) Gradient(grad, params []float32, place int, step int64) (s messages.Stats, err error) {
	p := &w.places[place]
	id := p.batch.ID
	span := w.t.clock.Begin(clock.Compute)
	defer func() { span.End(w.t.label(id)) }()
	rows := actors.Rows{X: p.x}
	if p.rows != nil {
		w.engine.slab, rows.Slots = p.rows, p.slots[:p.batch.NumInputs()]
	}
	err = graph.Guard(func() error {
		s, err = w.engine.Gradient(grad, params, &p.batch, rows, actors.Key(w.t.r.cfg.Training.Seed, id))
		return err
	})
	if err != nil {
		err = fmt.Errorf("%v: compute: %w", id, err)
	}
	return s, err
}

// staleModel is what an owner of the parameters steps.
type staleModel struct {
	t *trainCall
	// decides waits until this node may make steps for others; nil: it makes them alone.
	decides func() error
}

// Params implements async.Model.
func (m staleModel) Params() []float32 { return m.t.updater.params }

// Apply implements async.Model: what actors' parameters do with a step's gradients.
func (m staleModel) Apply(g *async.Push) error {
	if m.decides != nil {
		if err := m.decides(); err != nil {
			return err
		}
	}
	span := m.t.clock.Begin(clock.Update)
	defer func() { span.End(m.t.label(m.t.id(g.Step))) }()
	u := m.t.updater
	u.Observe(g.Data)
	if g.Stats.Weight > 0 {
		compute.Divide(g.Data, float32(g.Stats.Weight))
	} else { // a subgraph without training nodes
		clear(g.Data)
	}
	u.Apply(g.Data)
	return nil
}
