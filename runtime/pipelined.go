package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

// InFlight returns how many micro-batches of the training that runs are being
// sampled, loaded or computed here, or wait for that.
func (r *Runtime) InFlight() int { return r.Stats().InFlight }

// pipelined makes steps synchronously, by the actors' pipeline: in this process alone, or with
// a group whose members add their gradients up.
type pipelined struct {
	*trainCall
	work  actors.Work
	begun *trainingPipeline // for a group whose state is on its way; nil: none

	now     *trainingPipeline // nil: Enter was not called
	over    chan struct{}     // closed when what now has made is the runtime's
	next    context.Context   // of waiting for steps: ends with the group, too
	stop    context.CancelFunc
	refiner *refiner
}

// trainingPipeline is a pipeline that trains, or is going to.
type trainingPipeline struct {
	p   *actors.Pipeline
	mem *resident
}

// start starts a pipeline that makes the steps from one on; it samples and loads, and computes
// from its first Proceed on.
func (s *pipelined) start(ctx context.Context, g training.Group, step int64) (*trainingPipeline, error) {
	work := s.work
	work.First, work.Window, work.After = step, s.r.plan.Reorder, s.state.After
	if g != nil {
		work.Mine = g.Mine
	}
	s.trainCall.work = work
	s.updater.share, s.updater.team = g, s.team
	p, mem, err := s.r.trainingPipeline(ctx, work, s.updater, &s.clock)
	if err != nil {
		return nil, err
	}
	return &trainingPipeline{p, mem}, nil
}

func (f *trainingPipeline) stop() error {
	f.p.Stop()
	return f.mem.close()
}

// Begin implements training.Strategy: a node samples and reads rows while the state is on its way
// to it, unless the state says which batch an order goes on from.
func (s *pipelined) Begin(ctx context.Context, g training.Group, step int64) error {
	err := s.drop()
	if err == nil && s.r.plan.Reorder <= 1 && step < int64(s.r.cfg.Training.Epochs)*s.steps {
		s.begun, err = s.start(ctx, g, step)
	}
	return err
}

// drop stops what was begun and is not used.
func (s *pipelined) drop() error {
	f := s.begun
	if s.begun = nil; f == nil {
		return nil
	}
	return f.stop()
}

// Enter implements training.Strategy.
func (s *pipelined) Enter(ctx context.Context, g training.Group) (err error) {
	f := s.begun
	if s.begun = nil; f == nil {
		if f, err = s.start(ctx, g, s.state.Step); err != nil {
			return err
		}
	}
	s.now, s.over, s.mem = f, make(chan struct{}), f.mem
	r := s.r
	r.mu.Lock()
	r.training, r.over = f.p, s.over
	r.mu.Unlock()
	var over <-chan struct{} // nil: never
	if g != nil {            // a step that will not be made may wait for rows of a node that is gone
		over = g.Over()
	}
	s.next, s.stop = training.Until(ctx, over, training.ErrGroup)
	s.refiner = r.newRefiner()
	return nil
}

// Epoch implements training.Strategy.
func (s *pipelined) Epoch(ctx context.Context, epoch int) error {
	p := s.now.p
	p.Proceed(s.state.Step)
	for last := false; !last; {
		x, err := p.Next(s.next)
		if err != nil && s.next.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: the group is over", actors.ErrReduce)
		}
		if err != nil {
			return err
		}
		a := x.(*messages.Applied)
		last = a.Last
		s.applied(a)
		if work := &s.trainCall.work; a.Step == work.First && limitsFirstStep(work) {
			p.Tune(*tune(s.r.plan.Tuning()))
		}
		if err := s.stepped(a); err != nil {
			return err
		}
		if last { // what follows is evaluation
			s.refiner.steps = 0
		} else if err := s.refine(s.refiner, p, epoch); err != nil {
			return err
		}
	}
	return nil
}

// Leave implements training.Strategy.
func (s *pipelined) Leave(ctx context.Context, why error) error {
	closed := s.drop()
	f := s.now
	if s.now = nil; f == nil {
		return errors.Join(why, closed)
	}
	s.stop()
	closed = errors.Join(closed, f.stop())
	rest := f.p.Rest()
	s.rows, s.mem = s.counted(), nil
	for _, a := range rest {
		s.applied(a)
	}
	r := s.r
	params, unread := s.updater.InHost()
	r.mu.Lock()
	if r.training, r.over = nil, nil; unread == nil {
		r.params = params
	}
	r.mu.Unlock()
	if why == nil {
		why = unread
	}
	close(s.over)
	if errors.Is(why, actors.ErrReduce) && ctx.Err() == nil { // the run goes on
		for _, a := range rest {
			if left := s.stepped(a); left != nil {
				why = left
				break
			}
		}
	}
	return errors.Join(why, closed)
}
