package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/async"
	"github.com/gnnactor/gnnactor/messages"
)

// maxBound keeps a slip of the keyboard from meaning no bound at all.
const maxBound = 1 << 10

// staleness returns the bound of the asynchronous mode, and whether that is how
// the run trains.
func (c *Config) staleness() (bound int, asynchronous bool, err error) {
	if c.Training.Sync == "" || c.Training.Sync == "sync" {
		return 0, false, nil
	}
	text, ok := strings.CutPrefix(c.Training.Sync, "ssp:")
	bound, err = strconv.Atoi(text)
	if !ok || err != nil || bound < 0 || bound > maxBound {
		return 0, false, fmt.Errorf("sync: %q is neither sync nor ssp:N, where N, the most steps that a gradient may be late, is in [0, %d]", c.Training.Sync, maxBound)
	}
	return bound, true, nil
}

// compileSync reads Sync, and reports its problems and those of what does not go with it.
func (c *settings) compileSync(check func(ok bool, format string, args ...any)) {
	bound, asynchronous, err := c.staleness()
	c.bound, c.asynchronous = bound, asynchronous
	check(err == nil, "%v", err)
	if !asynchronous {
		check(err != nil || c.Execution.Trainers >= 0 && c.Execution.Trainers <= max(c.Sampling.MicroBatches, 1), "trainers: %d is more than micro-batches = %d; each trainer needs one", c.Execution.Trainers, c.Sampling.MicroBatches)
		return
	}
	check(c.Execution.Trainers >= 0 && c.Execution.Trainers <= bound+1, "trainers: %d is more than can compute at once with sync = %s, which is %d", c.Execution.Trainers, c.Training.Sync, bound+1)
	check(c.Sampling.MicroBatches == 1, "micro-batches: %d; with sync = %s a trainer computes whole batches: set it to 1, and a smaller batch-size", c.Sampling.MicroBatches, c.Training.Sync)
	check(c.Sampling.Reorder <= 1, "reorder: batches are not reordered with sync = %s; set it to 1", c.Training.Sync)
	check(c.Memory.Cache == "" || c.Memory.Cache == "none", "cache: %s; with sync = %s every batch reads its own rows; leave it out", c.Memory.Cache, c.Training.Sync)
	check(c.Memory.Match != "on", "match: with sync = %s every batch reads its own rows; leave it out", c.Training.Sync)
}

// staleTrainers returns how many trainers of this process compute at once.
func (c *settings) staleTrainers() int {
	switch {
	case c.Execution.Trainers > 0:
		return c.Execution.Trainers
	case c.Cluster.Peers != nil:
		return 1
	}
	return min(c.bound+1, c.threads())
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
	o := &orders{work: work}
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
func (t *training) own(ctx context.Context, epoch int, orders *orders, f *fellowship) (err error) {
	r := t.r
	t.updater.setRate(epoch, t.state.scale())
	began := time.Now()
	defer func() { t.piping += time.Since(began) }()
	model := staleModel{t: t}
	if f != nil {
		model.decides = func() error { return f.share.Decides(ctx) }
	}
	o := async.NewOwner(async.Options{System: r.system, Model: model, Bound: r.cfg.bound, First: t.state.Step, End: int64(epoch+1) * t.steps})
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

// Asynchronous reports whether Sync is ssp.
func (c *Config) Asynchronous() bool {
	_, asynchronous, _ := c.staleness()
	return asynchronous
}

// StalenessBound returns the N of Sync's ssp:N, and 0 in the synchronous mode.
func (c *Config) StalenessBound() int {
	bound, _, _ := c.staleness()
	return bound
}

// MostTrainers returns how many nodes may train together: each needs a
// micro-batch, unless they are asynchronous.
func (c *Config) MostTrainers() int {
	if c.Asynchronous() {
		return maxBound
	}
	return c.Sampling.MicroBatches
}
