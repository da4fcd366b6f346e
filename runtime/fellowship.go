package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/async"
	"github.com/gnnactor/gnnactor/cluster/trainers"
)

// fellowship is this node's part in a group that trains asynchronously. The
// group's first node has the parameters; at the end of an epoch, and of the
// group, the others get its state.
type fellowship struct {
	share   *trainers.Share
	service *async.Service
	me      string
	size    int // of the parameters
}

// open lets the other nodes' trainers ask o.
func (f *fellowship) open(epoch int, o *async.Owner) {
	f.service.Open(uint64(f.share.Group()), int64(epoch), f.share.Members(), o, f.size)
}

// guest reports whether a trainer is another node's.
func (f *fellowship) guest(trainer string) bool { return !async.Trainers(f.me)(trainer) }

// applied books a step.
func (f *fellowship) applied(a *async.Step) {
	f.share.Steps(a.Version-1, a.Version)
	if !f.guest(a.Trainer) {
		f.share.Computed()
	}
}

// suspect looks from time to time whether those that are waited for have died.
func (f *fellowship) suspect(ctx context.Context) {
	tick := time.NewTicker(handing / 20)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.share.Suspect(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// handing is how long a node waits for the state of one that may not be there any
// more, and that one for it to be taken.
const handing = 5 * time.Second

// staleTogether is stale for one of several nodes, in one group of them. An error
// that wraps actors.ErrReduce: the group is over.
func (t *training) staleTogether(ctx context.Context, work actors.Work, share *trainers.Share, service *async.Service) (err error) {
	r := t.r
	plane := r.cfg.Cluster.Peers.Plane()
	f := &fellowship{share: share, service: service, me: plane.Node(), size: len(t.updater.params)}
	defer func() {
		t.publishParams()
		if err != nil && !t.ragged && r.cfg.Checkpoint.Dir != "" && (ctx.Err() != nil || t.left) {
			t.unsaved = t.saveLast(false)
		}
	}()
	o := &epochOrders{work: work}
	first := int(t.state.Step / t.steps)
	for epoch := first; epoch < r.cfg.Training.Epochs; epoch++ {
		if epoch == first+2 { // the second was not begun before all had ended the first
			share.Settled()
		}
		if share.First() {
			err = t.lead(ctx, epoch, o, f)
		} else {
			err = t.follow(ctx, epoch, o, f)
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
func (t *training) lead(ctx context.Context, epoch int, o *epochOrders, f *fellowship) error {
	r := t.r
	made := t.own(ctx, epoch, o, f)
	if t.ragged || made != nil && !errors.Is(made, errGroup) && ctx.Err() == nil {
		return made
	}
	state, err := t.meeting()
	if err != nil {
		return err
	}
	b, err := state.Save()
	if err != nil {
		return err
	}
	if err := f.service.Finish(b); err != nil {
		return err
	}
	if made == nil {
		wait, cancel := context.WithCancelCause(ctx)
		var watch sync.WaitGroup
		watch.Go(func() {
			select {
			case <-f.share.Done():
				cancel(errGroup)
			case <-wait.Done():
			}
		})
		watch.Go(func() { f.suspect(wait) })
		made = f.service.Taken(wait, f.share.Members())
		cancel(nil)
		if watch.Wait(); made == nil {
			return nil
		}
	}
	f.service.End(uint64(f.share.Group()))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), handing)
	defer cancel()
	connected := r.cfg.Cluster.Peers.Plane().Peers()
	others := slices.DeleteFunc(f.share.Others(), func(node string) bool { return !slices.Contains(connected, node) })
	if err := f.service.Taken(last, others); err != nil {
		r.log.Warn("not every node took the state over; what was trained in this epoch may be trained again", "error", err)
	}
	if !errors.Is(made, errGroup) {
		return made
	}
	return fmt.Errorf("%w: %w", actors.ErrReduce, f.share.Abort(ctx, made))
}

// follow computes for the node that has the parameters, and takes over the state
// that it ends the epoch with, or the group.
func (t *training) follow(ctx context.Context, epoch int, o *epochOrders, f *fellowship) error {
	r := t.r
	began := time.Now()
	defer func() { t.piping += time.Since(began) }()
	remote := func(i int) *async.Remote {
		return async.NewRemote(r.cfg.Cluster.Peers.Plane(), f.share.Members()[0], uint64(f.share.Group()), int64(epoch), i, f.size)
	}
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	var team, watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-f.share.Done():
			end(errGroup)
		case <-inner.Done():
		}
	})
	defer watch.Wait()
	defer end(nil)
	for i := range r.cfg.staleTrainers() {
		team.Go(func() {
			if err := async.Train(inner, counting{remote(i), f.share}, async.Name(f.me, i), t.newStaleWorker(o), f.size); err != nil {
				end(err)
			}
		})
	}
	team.Wait()
	why := context.Cause(inner)
	if why != nil && (ctx.Err() != nil || !errors.Is(why, errGroup) && !errors.Is(why, async.ErrAway)) {
		return why
	}
	// Although the group is over the node with the parameters may be there.
	fetch, cancel := inner, context.CancelFunc(func() {})
	if why != nil {
		fetch, cancel = context.WithTimeout(ctx, handing)
	}
	b, err := remote(0).State(fetch, 16*int64(f.size)+stateSlack)
	cancel()
	if err == nil {
		before := t.state.Step
		var state trainers.State
		if state, err = t.meeting(); err == nil {
			_, err = state.Restore(b)
		}
		if err != nil {
			return err
		}
		f.share.Steps(before, t.state.Step)
		if t.state.Step == int64(epoch+1)*t.steps {
			return nil
		}
		err = errGroup
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", actors.ErrReduce, f.share.Abort(ctx, errors.Join(why, err)))
}

// stateSlack is how much longer a state may be than its parameters and moments.
const stateSlack = 16 << 20

// counting counts what a node computes for another.
type counting struct {
	*async.Remote
	share *trainers.Share
}

// Push implements async.Parameters.
func (c counting) Push(ctx context.Context, trainer string, g async.Push) error {
	err := c.Remote.Push(ctx, trainer, g)
	if err == nil {
		c.share.Computed()
	}
	return err
}
