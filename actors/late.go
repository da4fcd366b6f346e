package actors

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Late is where a trainer whose gradients may be late has its steps and its parameters from.
type Late struct {
	Parameters async.Parameters
	Trainer    string // its name there
}

// late is a trainer that computes each batch on the newest parameters that it can have. Which
// batches those are its sampler is told by the source, which has them dealt.
type late struct {
	base
	index  int
	seed   uint64
	worker Gradienter
	of     Late
	grad   []float32
	queue  []*messages.Loaded // bounded by the sampler's credits
}

func (t *late) receive(m any) {
	switch m := m.(type) {
	case *messages.Sampled:
		t.queue = append(t.queue, &messages.Loaded{Step: m.Step, From: m.From, Batch: m.Batch})
	case *messages.Loaded:
		t.queue = append(t.queue, m)
	case *done:
		t.released(m.res.(*messages.Loaded), t.index)
	}
	if t.busy() || len(t.queue) == 0 || t.ending.Load() {
		return
	}
	in := t.queue[0]
	t.queue = t.queue[1:]
	t.jobElsewhere(in.Batch.ID, func() (any, error) { return in, t.compute(in) })
}

// compute has the gradient of a batch applied, if its step is still wanted.
func (t *late) compute(in *messages.Loaded) error {
	id := in.Batch.ID
	v, err := t.of.Parameters.Read(t.context, t.of.Trainer, in.Step)
	if errors.Is(err, async.ErrOver) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Release()
	if len(v.Params) != len(t.grad) {
		return fmt.Errorf("there are %d parameters, and here %d; all nodes must run one configuration", len(v.Params), len(t.grad))
	}
	span := t.clock.Begin(clock.Compute)
	stats, err := t.worker.Gradient(t.grad, v.Params, in.Batch, Rows{in.Slots, in.X}, Key(t.seed, id))
	span.End(t.label(id))
	if err != nil {
		return err
	}
	number := v.Number
	v.Release()
	return t.of.Parameters.Push(t.context, t.of.Trainer, async.Push{Step: in.Step, Version: number, Stats: stats, Data: t.grad})
}

// dealt is a step that a trainer was dealt.
type dealt struct {
	trainer int
	step    int64
}

// deal has a trainer dealt a step, for its sampler.
func (s *source) deal(i int) {
	s.jobElsewhere(sampling.ID{}, func() (any, error) {
		step, err := s.late[i].Parameters.Deal(s.context, s.late[i].Trainer)
		if epoch := s.work.First / s.work.Steps(); err == nil && step/s.work.Steps() != epoch {
			err = fmt.Errorf("step %d is not of epoch %d", step, epoch)
		}
		return dealt{i, step}, err
	})
}

// hand sends a sampler the seeds of the step that its trainer was dealt, if they are known.
func (s *source) hand(d dealt) bool {
	w := &s.work
	epoch, batch := int(d.step/w.Steps()), int(d.step%w.Steps())
	order, ok := s.epochOrders[epoch]
	if ok {
		s.seeds(d.trainer, order, epoch, batch, 0, d.step)
	}
	return ok
}
