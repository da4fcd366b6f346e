package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// NewDraw returns what makes a batch the training's micro-batch of an ID, for whoever
// trains: it is the same in every process of one identity. One goroutine at a time
// may call it. After Stop, which waits for it, it returns ErrStopped.
func (r *Runtime) NewDraw() func(b *sampling.Batch, id sampling.ID) error {
	draw := r.newDraw(&epochOrders{work: r.work()})
	return func(b *sampling.Batch, id sampling.ID) error {
		return r.call(context.Background(), nil, func(context.Context) error { return draw(b, id) })
	}
}

// FirstBatch returns the ID of the training's first micro-batch.
func (r *Runtime) FirstBatch() sampling.ID {
	w := r.work()
	id := sampling.ID{Phase: w.Phase, Of: max(w.Micro, 1)}
	if w.Batches == 0 {
		id.Of = sampling.NumMicro(len(w.Nodes), w.BatchSize, w.Micro, 0)
	}
	return id
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

// SamplingID returns a hash of what the micro-batches depend on (Identity.Sampling).
func (r *Runtime) SamplingID() string { return r.identity.Sampling() }

// newDraw samples from the graph on, with the sampler's tables of its own.
func (r *Runtime) newDraw(orders *epochOrders) func(*sampling.Batch, sampling.ID) error {
	work := &orders.work
	var s sampling.Sampler
	sample := func(b *sampling.Batch, id sampling.ID) error {
		var seeds []uint32
		if min(id.Epoch, id.Batch, id.Micro) < 0 || id.Epoch >= work.Epochs || int64(id.Batch) >= work.Steps() || id.Of > max(work.Micro, 1) {
			return fmt.Errorf("runtime: %v is no batch of the run", id)
		}
		if work.Batches == 0 {
			order := orders.of(id.Epoch)
			if of := sampling.NumMicro(len(order), work.BatchSize, max(id.Of, 1), id.Batch); of != max(id.Of, 1) {
				return fmt.Errorf("runtime: %v has %d micro-batches, not %d", id, of, id.Of)
			}
			seeds = sampling.Cut(order, work.BatchSize, max(id.Of, 1), id.Batch, id.Micro)
		}
		if s == nil {
			s = r.newSampler()
		}
		b.Reset()
		b.ID = id
		return s.Sample(b, id.Key(r.cfg.Training.Seed), seeds)
	}
	return func(b *sampling.Batch, id sampling.ID) error {
		err := pool.Recovered(func() error { return sample(b, id) })
		if err != nil {
			s = nil // a panic may have left anything in it
		}
		return err
	}
}
