package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/internal/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Delivery is a batch handed to the owner of a pipeline without trainers. It is
// the owner's until Pipeline.Release.
type Delivery struct {
	Batch *sampling.Batch
	// X holds what Config.Load made of it; its memory is kept between uses.
	X []float32

	step int64
	from int
}

// deliverer loads the features of sampled batches and hands them out in the
// order of the batches. It takes the trainers' place.
type deliverer struct {
	*post
	work  Work
	load  func(*Delivery) error
	out   *outbox
	self  *actor.PID
	ready map[position]*Delivery // bounded by the samplers' credits
	next  position
	busy  int
	free  freeList[*Delivery]
}

// position orders micro-batches.
type position struct {
	step  int64
	micro int
}

// released gives a delivery back.
type released struct{ d *Delivery }

func (d *deliverer) name() string { return "load" }
func (d *deliverer) idle() bool   { return d.busy == 0 }

func (d *deliverer) start(self *actor.PID) {
	d.self, d.ready, d.next = self, map[position]*Delivery{}, position{step: d.work.First}
}

func (d *deliverer) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		d.busy++
		d.job(d.self, clock.Load, m.Batch.ID, func() (any, error) {
			x, ok := d.free.get()
			if !ok {
				x = new(Delivery)
			}
			x.Batch, x.step, x.from = m.Batch, m.Step, m.From
			if d.load == nil {
				return x, nil
			}
			return x, d.load(x)
		})
	case *done:
		d.busy--
		if m.err != nil {
			d.fail(m.id, d.name(), m.err)
			return
		}
		x := m.res.(*Delivery)
		d.ready[position{x.step, x.Batch.ID.Micro}] = x
		d.hand()
	case *released:
		x := m.d
		d.releaseBatch(x.Batch)
		x.Batch = nil
		from := x.from
		d.free.put(x)
		d.send(d.dir.Sampler(from), &messages.Credit{N: 1})
	}
}

// hand passes on what is due.
func (d *deliverer) hand() {
	for {
		x, ok := d.ready[d.next]
		if !ok {
			return
		}
		delete(d.ready, d.next)
		if d.next.micro+1 < x.Batch.ID.Of {
			d.next.micro++
		} else {
			d.next = position{step: d.next.step + 1}
		}
		d.out.put(x)
	}
}
