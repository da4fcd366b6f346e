package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// Sync is how trainers work together. The zero value is synchronous: all on the same
// parameters, with the same bits for any number of them. SSP returns the other.
type Sync = training.Sync

// SSP is each batch by one trainer on the newest parameters that it can have: see training.BoundedStaleness.
func SSP(bound int) Sync { return training.BoundedStaleness(bound) }

// checkSync reports the problems of Sync, and of what does not go with it.
func (c *Config) checkSync(p *problems) {
	sync, trainers, m := c.Training.Sync, c.Execution.Trainers, &c.Memory
	p.check(sync.Valid(), "sync: %s: a gradient may be late by a number of steps in [0, %d]", sync, training.MaxBound)
	if !sync.Asynchronous() {
		if c.Sampling.Hybrid {
			p.check(trainers >= 0 && trainers <= 1, "trainers: %d is more batches than are in flight with sync = sync, which is 1; set sync to ssp:%d, or leave it out", trainers, min(max(trainers, 2)-1, training.MaxBound))
			return
		}
		micro := max(c.Sampling.MicroBatches, 1)
		p.check(trainers >= 0 && trainers <= micro, "trainers: %d is more than micro-batches = %d; each trainer needs one", trainers, micro)
		return
	}
	p.check(trainers >= 0 && trainers <= sync.Bound()+1, "trainers: %d is more than can compute at once with sync = %s, which is %d", trainers, sync, sync.Bound()+1)
	p.check(c.Execution.Samplers == 0, "samplers: %d; with sync = %s each trainer has one of its own; leave it out", c.Execution.Samplers, sync)
	p.check(c.Sampling.MicroBatches == 1, "micro-batches: %d; with sync = %s a trainer computes whole batches: set it to 1, and a smaller batch-size", c.Sampling.MicroBatches, sync)
	p.check(c.Sampling.Reorder <= 1, "reorder: batches are not reordered with sync = %s; set it to 1", sync)
	p.check(m.Cache == "" || m.Cache == "none", "cache: %s; with sync = %s rows are kept for the newest batches alone; leave it out", m.Cache, sync)
}

// lateTrainers returns how many trainers of this process, whose gradients may be late, compute at once.
func (c *settings) lateTrainers() int {
	switch {
	case !c.Training.Sync.Asynchronous():
		return 0
	case c.Execution.Trainers > 0:
		return c.Execution.Trainers
	case c.Cluster.Peers != nil:
		return 1
	}
	return min(c.Training.Sync.Bound()+1, c.threads())
}

// errRagged says why an interrupted run keeps no checkpoint. While a cluster's store is
// away nobody may decide a step, and so nobody makes those that others are ahead of.
var errRagged = errors.New("runtime: the steps since the last checkpoint are not kept: some that others are ahead of could not be made, as while a cluster's store is away; --resume goes on from that checkpoint")

// bounded makes steps with bounded staleness: trainers of this process, or of all nodes of a
// group, compute each batch on the newest parameters that they can have.
type bounded struct {
	*trainCall
	work  actors.Work
	group training.Group // nil: this process is alone
	next  int            // the epoch after the one that the group's first node gave its state of; 0: none is to be followed before this node asks for it
}

// Begin implements training.Strategy.
func (s *bounded) Begin(context.Context, training.Group, int64) error { return nil }

// Enter implements training.Strategy.
func (s *bounded) Enter(_ context.Context, g training.Group) error {
	s.group, s.updater.team, s.next = g, s.team, 0
	return nil
}

// Epoch implements training.Strategy.
func (s *bounded) Epoch(ctx context.Context, epoch int) error {
	defer func() {
		s.rows, s.mem = s.counted(), nil
		s.publishParams()
	}()
	switch {
	case s.group == nil:
		return s.applyEpoch(ctx, epoch)
	case s.group.First():
		return s.runOwner(ctx, epoch)
	}
	return s.runWorker(ctx, epoch)
}

// Leave implements training.Strategy. The node that has the parameters may have begun an epoch by the time its group ends, of which this one,
// between two, did not hear: it takes what was made of it over, as that one waits for it, and may drain.
func (s *bounded) Leave(ctx context.Context, why error) error {
	if next := s.next; next > 0 && errors.Is(why, actors.ErrReduce) && ctx.Err() == nil && s.more() {
		s.next = 0
		if state, err := s.takeOver(ctx, next); err == nil { // else it has not begun, or nobody has its state
			if err := s.restore(state); err != nil {
				return err
			}
		}
	}
	return why
}

// runOwner makes an epoch on the node that has the parameters, and gives the others
// the state that it ends with, in the middle of the epoch if the group does.
func (s *bounded) runOwner(ctx context.Context, epoch int) error {
	made := s.applyEpoch(ctx, epoch)
	if s.incompletePrefix || made != nil && !errors.Is(made, training.ErrGroup) && ctx.Err() == nil {
		return made
	}
	p, err := s.position()
	if err != nil {
		return err
	}
	state, err := p.Save()
	if err != nil {
		return err
	}
	return s.group.HandOver(ctx, state, made)
}

// runWorker computes for the node that has the parameters, and takes over the state
// that it ends the epoch with, or the group.
func (s *bounded) runWorker(ctx context.Context, epoch int) error {
	g := s.group
	within, end := training.Until(ctx, g.Done(), training.ErrGroup)
	defer end()
	inner, fail := context.WithCancelCause(within)
	defer fail(nil)
	var team sync.WaitGroup
	size := len(s.updater.Params())
	s.compute(inner, fail, &team, func(i int) async.Parameters { return g.RemoteParameters(epoch, i, size) })
	team.Wait()
	why := context.Cause(inner)
	if why != nil && (ctx.Err() != nil || !errors.Is(why, training.ErrGroup)) {
		return why
	}
	s.next = 0
	state, err := s.takeOver(ctx, epoch)
	if err == nil {
		if err := s.restore(state); err != nil {
			return err
		}
		if s.state.Step == int64(epoch+1)*s.steps {
			s.next = epoch + 1
			return nil
		}
		err = training.ErrGroup
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", actors.ErrReduce, g.Abort(ctx, errors.Join(why, err)))
}

// takeOver waits for the state that the group's first node ends an epoch, or the group, with.
func (s *bounded) takeOver(ctx context.Context, epoch int) ([]byte, error) {
	return s.group.TakeOver(ctx, epoch, 16*int64(len(s.updater.Params()))+stateSlack)
}

// restore makes the run's state that of another node, which made the steps between.
func (s *bounded) restore(state []byte) error {
	before := s.state.Step
	p, err := s.position()
	if err == nil {
		_, err = p.Restore(state)
	}
	if err == nil {
		s.group.Made(before, s.state.Step, 0)
	}
	return err
}

// stateSlack is how much longer a state may be than its parameters and moments.
const stateSlack = 16 << 20

// compute has the actors of this process sample, load and compute for who has the parameters, in a
// goroutine of team, until every batch is applied or ctx ends; an error is told to fail.
func (s *bounded) compute(ctx context.Context, fail context.CancelCauseFunc, team *sync.WaitGroup, of func(i int) async.Parameters) {
	work := s.work
	work.First = s.state.Step
	r := s.r
	c, mem, err := r.trainingConfig(ctx, work, s.updater, &s.clock)
	if err != nil {
		fail(err)
		return
	}
	for i := range c.Trainers {
		c.Late = append(c.Late, actors.Late{Parameters: of(i), Trainer: async.Name(s.node(), i)})
	}
	r.mu.Lock()
	p, err := actors.Start(c)
	r.late = p
	r.mu.Unlock()
	s.mem = mem
	team.Go(func() {
		if err == nil {
			_, err = p.Next(ctx)
			p.Stop()
			r.mu.Lock()
			r.late = nil
			r.mu.Unlock()
		}
		if errors.Is(err, async.ErrOver) {
			err = nil
		}
		if err := errors.Join(err, mem.close()); err != nil {
			fail(err)
		}
	})
}

// node is this process's name among its peers.
func (s *bounded) node() string {
	if peers := s.r.cfg.Cluster.Peers; peers != nil {
		return peers.Node()
	}
	return ""
}

// publishParams lets the runtime answer with the present parameters.
func (s *bounded) publishParams() {
	s.r.mu.Lock()
	s.r.params = slices.Clone(s.updater.Params())
	s.r.mu.Unlock()
}

// applyEpoch makes an epoch with the parameters in this process, for the group if there is one. When ctx or the group ends, it makes the steps
// that others are ahead of, so that those that were applied are a prefix of the
// epoch, before it returns why. After another error they need not be: incompletePrefix.
func (s *bounded) applyEpoch(ctx context.Context, epoch int) (err error) {
	g := s.group
	model := boundedModel{trainCall: s.trainCall}
	if g != nil {
		model.decides = func() error { return g.Decides(ctx) }
	}
	spawn := func(made actor.Producer) *actor.PID { return actors.Spawn(s.r.system, "run", "/parameters", made) }
	o := async.NewOwner(async.Options{System: s.r.system, Spawn: spawn, Model: model, Bound: s.r.cfg.Training.Sync.Bound(), First: s.state.Step, End: int64(epoch+1) * s.steps})
	guest := func(trainer string) bool { return !async.Trainers(s.node())(trainer) }
	inner, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	var team sync.WaitGroup
	defer team.Wait()
	defer o.Close()
	defer fail(nil)
	wait, stopWaiting := context.WithCancelCause(inner)
	defer stopWaiting(nil)
	defer context.AfterFunc(ctx, func() { stopWaiting(context.Cause(ctx)) })()
	if g != nil {
		var end func()
		wait, end = training.Until(wait, g.Done(), training.ErrGroup)
		defer end()
	}
	var stopped error
	stop := func(why error) {
		if stopped == nil {
			if g != nil {
				o.Gone(guest) // nobody hears of it when they go from now on
			}
			o.Stop()
		}
		stopped, wait = why, inner
	}
	if g != nil {
		if err := g.ServeParameters(ctx, epoch, o, len(s.updater.Params())); err != nil {
			stop(err) // before this node made a step
		}
	}
	s.compute(inner, fail, &team, func(int) async.Parameters { return o })
	for {
		a, err := o.Next(wait)
		switch {
		case errors.Is(err, async.ErrOver):
			return stopped
		case err != nil && inner.Err() == nil && stopped == nil && wait.Err() != nil:
			stop(err)
			continue
		case err != nil:
			s.incompletePrefix = true
			return err
		}
		if err := s.book(&a); err != nil && stopped == nil {
			stop(err)
		}
	}
}

// book books a step, and reports it unless the loop was left.
func (s *bounded) book(a *async.Step) error {
	id := s.id(a.Step)
	s.applied(&messages.Applied{ID: id, Step: a.Version - 1, Stats: a.Stats, Last: a.Version%s.steps == 0})
	if g := s.group; g != nil {
		here := 0
		if async.Trainers(s.node())(a.Trainer) {
			here = 1
		}
		g.Made(a.Version-1, a.Version, here)
	}
	for int64(len(s.lateness)) <= a.Stale {
		s.lateness = append(s.lateness, 0)
	}
	s.lateness[a.Stale]++
	s.r.log.Debug("step", "batch", id, "version", a.Version, "staleness", a.Stale, "trainer", a.Trainer)
	if s.left {
		return nil
	}
	return s.emit(Event{
		Kind: EventStep, Epoch: id.Epoch, Batch: id.Batch, Loss: a.Stats.Loss / a.Stats.Weight, Staleness: int(a.Stale),
		TrainAccuracy: s.r.share(a.Stats), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}

// MaxTrainers returns how many nodes may train together: each needs a
// micro-batch, unless they are asynchronous.
func (c *Config) MaxTrainers() int {
	if c.Training.Sync.Asynchronous() {
		return training.MaxBound
	}
	return c.Sampling.MicroBatches
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

// boundedModel is what an owner of the parameters steps.
type boundedModel struct {
	*trainCall
	// decides waits until this node may make steps for others; nil: it makes them alone.
	decides func() error
}

// Params implements async.Model.
func (m boundedModel) Params() []float32 { return m.updater.Params() }

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
	u.Apply([][]float32{g.Data}, g.Stats.Weight)
	return nil
}
