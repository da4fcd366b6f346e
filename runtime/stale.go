package runtime

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/async"
	"github.com/gnnactor/gnnactor/messages"
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

// stale is epochs for the asynchronous mode, in one process.
func (t *training) stale(ctx context.Context, work actors.Work, _ actors.Reducer) (err error) {
	r := t.r
	defer func() {
		t.publishParams()
		if err != nil && !t.ragged && r.cfg.Checkpoint.Dir != "" && (ctx.Err() != nil || t.left) {
			t.unsaved = t.saveLast(false)
		}
	}()
	o := &epochOrders{work: work}
	for epoch := int(t.state.Step / t.steps); epoch < r.cfg.Training.Epochs; epoch++ {
		if err := t.own(ctx, epoch, o, nil); err != nil {
			return err
		}
		if stop, err := t.staleEnd(ctx, epoch); err != nil || stop {
			return err
		}
	}
	return nil
}

// staleEnd ends an epoch; stop: it was the last one.
func (t *training) staleEnd(ctx context.Context, epoch int) (stop bool, err error) {
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
func (t *training) publishParams() {
	t.r.mu.Lock()
	t.r.params = slices.Clone(t.updater.params)
	t.r.mu.Unlock()
}

// errGroup ends what the trainers of a group do.
var errGroup = errors.New("runtime: the group of trainers is over")

// own makes an epoch with the parameters in this process; f is this node's part
// in a group of several, or nil. When ctx or the group ends, it makes the steps
// that others are ahead of, so that those that were applied are a prefix of the
// epoch, before it returns why. After another error they need not be: ragged.
func (t *training) own(ctx context.Context, epoch int, orders *epochOrders, f *fellowship) (err error) {
	r := t.r
	t.updater.setRate(epoch, t.state.scale())
	began := time.Now()
	defer func() { t.piping += time.Since(began) }()
	model := staleModel{t: t}
	if f != nil {
		model.decides = func() error { return f.share.Decides(ctx) }
	}
	o := async.NewOwner(async.Options{System: r.system, Model: model, Bound: r.cfg.Training.Sync.Bound(), First: t.state.Step, End: int64(epoch+1) * t.steps})
	me := ""
	if f != nil {
		me = f.me
		f.open(epoch, o)
	}
	inner, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	var team sync.WaitGroup
	defer team.Wait()
	defer o.Close()
	defer fail(nil)
	for i := range r.cfg.staleTrainers() {
		team.Go(func() {
			if err := async.Train(inner, o, async.Name(me, i), t.newStaleWorker(orders), len(t.updater.params)); err != nil {
				fail(err)
			}
		})
	}
	wait, stopWaiting := context.WithCancelCause(inner)
	defer stopWaiting(nil)
	defer context.AfterFunc(ctx, func() { stopWaiting(context.Cause(ctx)) })()
	if f != nil {
		team.Go(func() {
			select {
			case <-f.share.Done():
				stopWaiting(errGroup)
			case <-inner.Done():
			}
		})
	}
	var stopped error
	stop := func(why error) {
		if stopped == nil {
			if f != nil {
				o.Gone(f.guest) // nobody hears of it when they go from now on
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
		if err := t.staleApplied(&a, f); err != nil && stopped == nil {
			stop(err)
		}
	}
}

// staleApplied books a step, and reports it unless the loop was left.
func (t *training) staleApplied(a *async.Step, f *fellowship) error {
	id := t.id(a.Step)
	t.applied(&messages.Applied{ID: id, Step: a.Version - 1, Stats: a.Stats, Last: a.Version%t.steps == 0})
	if f != nil {
		f.applied(a)
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
