package actors

import (
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Delivery is a batch handed to the owner of a pipeline without trainers. It is
// the owner's until Pipeline.Release.
type Delivery struct {
	Batch *sampling.Batch
	Slots []uint32 // the slab's rows that are the inputs; nil: there is no slab
	// X holds the rows that the program's own stages after load made, or else what
	// Config.Load made of the batch; its memory is kept between uses.
	X []float32

	m *messages.Loaded
}

// deliverer loads the features of sampled batches and hands them out in the
// order of the batches. It takes the trainers' place.
type deliverer struct {
	base
	work Work
	load func(*Delivery) error
	out  *outbox
	due  sequence[*Delivery] // bounded by the samplers' credits
	free freeList[*Delivery]
}

// handedBack gives a delivery back.
type handedBack struct{ d *Delivery }

func (d *deliverer) start() { d.due = newSequence[*Delivery](&d.work) }

func (d *deliverer) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		d.fill(&messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch})
	case *messages.Loaded:
		d.fill(m)
	case *done:
		x := m.res.(*Delivery)
		d.due.put(x.m.Step, x.Batch.ID, x)
		for x, ok := d.due.peek(); ok; x, ok = d.due.peek() {
			d.due.take(x.Batch.ID.Of)
			d.out.put(x)
		}
	case *handedBack:
		x := m.d
		given := x.m
		x.Batch, x.Slots, x.m = nil, nil, nil
		d.free.put(x)
		d.released(given, 0)
	}
}

// fill copies the features of a batch.
func (d *deliverer) fill(m *messages.Loaded) {
	d.job(clock.Load, m.Batch.ID, func() (any, error) {
		x, ok := d.free.get()
		if !ok {
			x = new(Delivery)
		}
		x.Batch, x.Slots, x.m = m.Batch, m.Slots, m
		if m.X != nil {
			x.X, m.X = m.X, x.X[:0:cap(x.X)]
			return x, nil
		}
		if d.load == nil {
			return x, nil
		}
		return x, d.load(x)
	})
}
