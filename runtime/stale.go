package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

// checkSync reports the problems of Sync, and of what does not go with it.
func (c *Config) checkSync(p *problems) {
	sync, trainers, m := c.Training.Sync, c.Execution.Trainers, &c.Memory
	p.check(sync.valid(), "sync: %s: a gradient may be late by a number of steps in [0, %d]", sync, maxBound)
	if !sync.Asynchronous() {
		micro := max(c.Sampling.MicroBatches, 1)
		p.check(trainers >= 0 && trainers <= micro, "trainers: %d is more than micro-batches = %d; each trainer needs one", trainers, micro)
		return
	}
	p.check(trainers >= 0 && trainers <= sync.Bound()+1, "trainers: %d is more than can compute at once with sync = %s, which is %d", trainers, sync, sync.Bound()+1)
	p.check(c.Sampling.MicroBatches == 1, "micro-batches: %d; with sync = %s a trainer computes whole batches: set it to 1, and a smaller batch-size", c.Sampling.MicroBatches, sync)
	p.check(c.Sampling.Reorder <= 1, "reorder: batches are not reordered with sync = %s; set it to 1", sync)
	p.check(m.Cache == "" || m.Cache == "none", "cache: %s; with sync = %s every batch reads its own rows; leave it out", m.Cache, sync)
	p.check(m.Match != "on", "match: with sync = %s every batch reads its own rows; leave it out", sync)
}

// staleTrainers returns how many trainers of this process compute at once.
func (c *settings) staleTrainers() int {
	switch {
	case c.Execution.Trainers > 0:
		return c.Execution.Trainers
	case c.Cluster.Peers != nil:
		return 1
	}
	return min(c.Training.Sync.Bound()+1, c.threads())
}

// stale is epochs for the asynchronous mode; nil: in one process.
func (t *trainCall) stale(ctx context.Context, work actors.Work, group training.Group) (err error) {
	r := t.r
	defer func() {
		t.publishParams()
		if err != nil && !t.ragged && r.cfg.Checkpoint.Dir != "" && (ctx.Err() != nil || t.left) {
			t.unsaved = t.saveLast(false)
		}
	}()
	o := &epochOrders{work: work}
	for epoch := int(t.state.Step / t.steps); epoch < r.cfg.Training.Epochs; epoch++ {
		switch {
		case group == nil:
			err = t.own(ctx, epoch, o, nil)
		case group.First():
			err = t.lead(ctx, epoch, o, group)
		default:
			err = t.follow(ctx, epoch, o, group)
		}
		if err != nil {
			return err
		}
		if stop, err := t.staleEnd(ctx, epoch); err != nil || stop {
			return err
		}
	}
	return nil
}

// lead makes an epoch on the node that has the parameters, and gives the others
// the state that it ends with, in the middle of the epoch if the group does.
func (t *trainCall) lead(ctx context.Context, epoch int, o *epochOrders, g training.Group) error {
	made := t.own(ctx, epoch, o, g)
	if t.ragged || made != nil && !errors.Is(made, training.ErrGroup) && ctx.Err() == nil {
		return made
	}
	p, err := t.position()
	if err != nil {
		return err
	}
	state, err := p.Save()
	if err != nil {
		return err
	}
	return g.HandOver(ctx, state, made)
}

// follow computes for the node that has the parameters, and takes over the state
// that it ends the epoch with, or the group.
func (t *trainCall) follow(ctx context.Context, epoch int, o *epochOrders, g training.Group) error {
	began := time.Now()
	defer func() { t.piping += time.Since(began) }()
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	var team, watch sync.WaitGroup
	watch.Go(func() { over(inner, g, end) })
	defer watch.Wait()
	defer end(nil)
	size := len(t.updater.params)
	t.compute(inner, end, &team, o, func(i int) async.Parameters { return g.Follow(epoch, i, size) })
	team.Wait()
	why := context.Cause(inner)
	if why != nil && (ctx.Err() != nil || !errors.Is(why, training.ErrGroup)) {
		return why
	}
	b, err := g.TakeOver(ctx, epoch, 16*int64(size)+stateSlack, why)
	if err == nil {
		before := t.state.Step
		var p training.Position
		if p, err = t.position(); err == nil {
			_, err = p.Restore(b)
		}
		if err != nil {
			return err
		}
		g.Made(before, t.state.Step, 0)
		if t.state.Step == int64(epoch+1)*t.steps {
			return nil
		}
		err = training.ErrGroup
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", actors.ErrReduce, g.Abort(ctx, errors.Join(why, err)))
}

// stateSlack is how much longer a state may be than its parameters and moments.
const stateSlack = 16 << 20

// over has end called when the group is over before ctx is.
func over(ctx context.Context, g training.Group, end context.CancelCauseFunc) {
	select {
	case <-g.Done():
		end(training.ErrGroup)
	case <-ctx.Done():
	}
}

// compute has this process's trainers compute for who has the parameters; an error is told to fail.
func (t *trainCall) compute(ctx context.Context, fail context.CancelCauseFunc, team *sync.WaitGroup, o *epochOrders, of func(i int) async.Parameters) {
	for i := range t.r.cfg.staleTrainers() {
		team.Go(func() {
			if err := async.Train(ctx, of(i), async.Name(t.node(), i), t.newStaleWorker(o), len(t.updater.params)); err != nil {
				fail(err)
			}
		})
	}
}

// node is this process's name among its peers.
func (t *trainCall) node() string {
	if peers := t.r.cfg.Cluster.Peers; peers != nil {
		return peers.Node()
	}
	return ""
}

// staleEnd ends an epoch; stop: it was the last one.
func (t *trainCall) staleEnd(ctx context.Context, epoch int) (stop bool, err error) {
	t.publishParams()
	if err := t.endEpoch(ctx, epoch); err != nil {
		return false, err
	}
	if t.state.Best.Stop(t.r.cfg.Training.Patience) {
		t.r.log.Info("stopping early", "epoch", epoch, "patience", t.r.cfg.Training.Patience, "best", t.state.Best.Figure)
		return true, nil
	}
	return false, nil
}

// publishParams lets the runtime answer with the present parameters.
func (t *trainCall) publishParams() {
	t.r.mu.Lock()
	t.r.params = slices.Clone(t.updater.params)
	t.r.mu.Unlock()
}

// own makes an epoch with the parameters in this process, for a group of several if g is not nil. When ctx or the group ends, it makes the steps
// that others are ahead of, so that those that were applied are a prefix of the
// epoch, before it returns why. After another error they need not be: ragged.
func (t *trainCall) own(ctx context.Context, epoch int, orders *epochOrders, g training.Group) (err error) {
	r := t.r
	t.updater.setRate(epoch, t.state.scale())
	began := time.Now()
	defer func() { t.piping += time.Since(began) }()
	model := staleModel{t: t}
	if g != nil {
		model.decides = func() error { return g.Decides(ctx) }
	}
	o := async.NewOwner(async.Options{System: r.system, Model: model, Bound: r.cfg.Training.Sync.Bound(), First: t.state.Step, End: int64(epoch+1) * t.steps})
	if g != nil {
		g.Lead(epoch, o, len(t.updater.params))
	}
	guest := func(trainer string) bool { return !async.Trainers(t.node())(trainer) }
	inner, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	var team sync.WaitGroup
	defer team.Wait()
	defer o.Close()
	defer fail(nil)
	t.compute(inner, fail, &team, orders, func(int) async.Parameters { return o })
	wait, stopWaiting := context.WithCancelCause(inner)
	defer stopWaiting(nil)
	defer context.AfterFunc(ctx, func() { stopWaiting(context.Cause(ctx)) })()
	if g != nil {
		team.Go(func() { over(inner, g, stopWaiting) })
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
	for {
		a, err := o.Next(wait)
		switch {
		case errors.Is(err, async.ErrOver):
			return stopped
		case err != nil && inner.Err() == nil && stopped == nil && wait.Err() != nil:
			stop(err)
			continue
		case err != nil:
			t.ragged = true
			return err
		}
		if err := t.staleApplied(&a, g); err != nil && stopped == nil {
			stop(err)
		}
	}
}

// staleApplied books a step, and reports it unless the loop was left.
func (t *trainCall) staleApplied(a *async.Step, g training.Group) error {
	id := t.id(a.Step)
	t.applied(&messages.Applied{ID: id, Step: a.Version - 1, Stats: a.Stats, Last: a.Version%t.steps == 0})
	if g != nil {
		here := 0
		if async.Trainers(t.node())(a.Trainer) {
			here = 1
		}
		g.Made(a.Version-1, a.Version, here)
	}
	for int64(len(t.lateness)) <= a.Stale {
		t.lateness = append(t.lateness, 0)
	}
	t.lateness[a.Stale]++
	t.r.log.Debug("step", "batch", id, "version", a.Version, "staleness", a.Stale, "trainer", a.Trainer)
	if t.left {
		return nil
	}
	return t.emit(Event{
		Kind: EventStep, Epoch: id.Epoch, Batch: id.Batch, Loss: a.Stats.Loss / a.Stats.Weight, Staleness: int(a.Stale),
		TrainAccuracy: ratio(a.Stats.Correct, a.Stats.Count), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}

// MaxTrainers returns how many nodes may train together: each needs a
// micro-batch, unless they are asynchronous.
func (c *Config) MaxTrainers() int {
	if c.Training.Sync.Asynchronous() {
		return maxBound
	}
	return c.Sampling.MicroBatches
}
