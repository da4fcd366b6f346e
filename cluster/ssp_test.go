package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
	"github.com/gnnactor/gnnactor/training"
)

// bound is the most nodes of an asynchronous run.
const bound = 1 << 10

func sspConfig() runtime.Config {
	c := runtime.DefaultConfig()
	c.Training.Sync, c.Sampling.BatchSize, c.Execution.Threads, c.Training.Epochs = runtime.SSP(3), 16, 2, 2
	return c
}

// Three nodes train asynchronously: all end with the parameters of the one that
// has them, and each batch was applied once.
func TestStaleTogether(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	s := &runtimetest.Census{Bound: 3}
	var wg sync.WaitGroup
	results := make([]string, 3)
	var all []*node
	for i := range 3 {
		all = append(all, enter(t, store, fmt.Sprint("n", i), bound, 3))
	}
	var batches atomic.Int64
	for i, x := range all {
		wg.Go(func() {
			c := sspConfig()
			c.Cluster.Peers, c.Execution.Threads = x.team, 1
			var err error
			results[i], err = trainOn(t.Context(), c, func(e runtime.Event) {
				switch e.Kind {
				case runtime.EventStep:
					s.Step(t, e.Epoch, e.Batch, e.Staleness)
				case runtime.EventDone:
					batches.Store(int64(e.Batches))
				}
			})
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			for step, l := range lineageOf(x.team) {
				if l.Step != int64(step) {
					t.Errorf("node %d: step %d was made as number %d", i, step, l.Step)
				}
			}
			x.exit(t)
		})
	}
	wg.Wait()
	want := 2 * int(batches.Load())
	s.Check(t, want)
	for i := range results {
		if fmt.Sprint(results[i]) != fmt.Sprint(results[0]) {
			t.Errorf("node %d ended with other parameters", i)
		}
		if n := len(lineageOf(all[i].team)); n != want {
			t.Errorf("node %d: a lineage of %d steps, not %d", i, n, want)
		}
	}
}

// The node with the parameters drains in the middle of an epoch: the others go on from the steps that it made,
// and it need not wait for them.
func TestStaleDrained(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	s := &runtimetest.Census{Bound: 3}
	var all []*node
	for i := range 3 {
		all = append(all, enter(t, store, fmt.Sprint("n", i), bound, 3))
	}
	var wg sync.WaitGroup
	var drains sync.Once
	var batches, drained atomic.Int64
	for i, x := range all {
		wg.Go(func() {
			defer x.exit(t)
			c := sspConfig()
			c.Cluster.Peers, c.Execution.Threads = x.team, 1
			_, err := trainOn(t.Context(), c, func(e runtime.Event) {
				switch e.Kind {
				case runtime.EventStep:
					s.Step(t, e.Epoch, e.Batch, e.Staleness)
					if e.Applied < 9 {
						break
					}
					drains.Do(func() {
						if err := x.member.Announce(t.Context(), func(i *membership.Info) { i.Drain = true }); err != nil {
							t.Error(err)
						}
					})
				case runtime.EventDone:
					batches.Store(int64(e.Batches))
				}
			})
			switch {
			case errors.Is(err, training.ErrDrained):
				drained.Add(1)
			case err != nil:
				t.Errorf("node %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := drained.Load(); n != 1 {
		t.Errorf("%d nodes drained", n)
	}
	s.Check(t, 2*int(batches.Load()))
}

// between ends a group when the node with the parameters has begun the second epoch and the other, this one, is still at the end of the first.
type between struct {
	training.Session
	t     *testing.T
	began chan func() // what ends the group for who has the parameters, once it has begun the second epoch
	first *sync.Once

	ended bool  // by this node
	taken int64 // the newest epoch whose state it took over
}

func (b *between) Begin(a training.Audit, lineage []training.Run) training.Team {
	return betweenTeam{b.Session.Begin(a, lineage), b}
}

type betweenTeam struct {
	training.Team
	of *between
}

func (b betweenTeam) Rendezvous(ctx context.Context, p training.Position) (training.Group, error) {
	if b.of.ended && b.of.taken != 1 {
		b.of.t.Errorf("it meets again with the state of epoch %d, when the next had begun", b.of.taken)
	}
	g, err := b.Team.Rendezvous(ctx, p)
	return betweenGroup{g, b.of}, err
}

type betweenGroup struct {
	training.Group
	of *between
}

func (b betweenGroup) ServeParameters(ctx context.Context, epoch int, p async.Parameters, size int) error {
	err := b.Group.ServeParameters(ctx, epoch, p, size)
	if epoch == 1 {
		b.of.first.Do(func() { b.of.began <- b.Leave })
	}
	return err
}

func (b betweenGroup) Settle(ctx context.Context, step int64) error {
	if !b.First() && !b.of.ended {
		(<-b.of.began)()
		b.Leave()
		b.of.ended = true
	}
	return b.Group.Settle(ctx, step)
}

func (b betweenGroup) TakeOver(ctx context.Context, epoch int, most int64) ([]byte, error) {
	state, err := b.Group.TakeOver(ctx, epoch, most)
	if err == nil {
		b.of.taken = int64(epoch)
	}
	return state, err
}

// A group is over when the node with the parameters has begun an epoch of which the other, which still ends the one before, did not hear: the other
// takes over what was made of it all the same, as it is waited for.
func TestStaleBetweenEpochs(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	s := &runtimetest.Census{Bound: 3}
	began, first := make(chan func(), 1), new(sync.Once)
	var wg sync.WaitGroup
	var batches, ended atomic.Int64
	for _, x := range []*node{enter(t, store, "n0", bound, 2), enter(t, store, "n1", bound, 2)} {
		wg.Go(func() {
			defer x.exit(t)
			c, b := sspConfig(), &between{Session: x.team, t: t, began: began, first: first}
			c.Execution.Threads, c.Checkpoint.Dir, c.Cluster.Peers = 1, t.TempDir(), b
			if _, err := trainOn(t.Context(), c, func(e runtime.Event) {
				switch e.Kind {
				case runtime.EventStep:
					s.Step(t, e.Epoch, e.Batch, e.Staleness)
				case runtime.EventDone:
					batches.Store(int64(e.Batches))
				}
			}); err != nil {
				t.Error(err)
			}
			if b.ended {
				ended.Add(1)
			}
		})
	}
	wg.Wait()
	if n := ended.Load(); n != 1 {
		t.Errorf("%d nodes ended a group", n)
	}
	s.Check(t, 2*int(batches.Load()))
}

// A node dies in the middle, be it the one with the parameters; another joins.
// What the survivors end with was applied once.
func TestStaleThroughDeath(t *testing.T) {
	for _, dies := range []string{"the one with the parameters", "another"} {
		store := membership.NewMemStore()
		var wg sync.WaitGroup
		var all []*node
		for i := range 3 {
			all = append(all, enter(t, store, fmt.Sprint("n", i), bound, 3))
		}
		left := make(chan struct{})
		var once sync.Once
		for i, x := range all {
			dying := i == 1
			if dies != "another" {
				dying = i == 0
			}
			wg.Go(func() {
				c := sspConfig()
				c.Cluster.Peers, c.Execution.Threads, c.Training.Epochs = x.team, 1, 6
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got, err := trainOn(ctx, c, func(e runtime.Event) {
					if e.Kind == runtime.EventStep && dying && e.Applied == 9 || dying && e.Kind == runtime.EventEpoch && e.Epoch == 1 {
						x.plane.Close() // as a process that is killed: nothing in order
						cancel()
					}
				})
				if dying {
					if err == nil {
						t.Error("the dead one trained to the end")
					}
					x.team.Close()
					if err := x.member.Leave(context.Background()); err != nil {
						t.Error(err)
					}
					once.Do(func() { close(left) })
					return
				}
				defer x.exit(t)
				if err != nil || got == "" {
					t.Errorf("%s dies: a survivor: %v", dies, err)
				}
				for step, l := range lineageOf(x.team) {
					if l.Step != int64(step) {
						t.Errorf("%s dies: step %d was made as number %d", dies, step, l.Step)
					}
				}
			})
		}
		wg.Go(func() {
			<-left
			y := enter(t, store, "n9", bound, 1)
			defer y.exit(t)
			c := sspConfig()
			c.Cluster.Peers, c.Execution.Threads, c.Training.Epochs = y.team, 1, 6
			if _, err := trainOn(t.Context(), c, nil); err != nil {
				t.Errorf("%s dies: the node that joined late: %v", dies, err)
			}
		})
		wg.Wait()
		store.Close()
	}
}
