package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/membership/membertest"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
	"github.com/gnnactor/gnnactor/training"
)

// withoutStore is a cluster whose store a test takes away.
type withoutStore struct {
	*membertest.Outage
	nodes   []*node
	members []*membership.Member
	kill    []context.CancelFunc // of train
	back    atomic.Bool          // since backAfter
}

// startWithoutStore makes a cluster of n nodes, under leases that end soon without a store.
func startWithoutStore(t *testing.T, n, micros int) *withoutStore {
	t.Helper()
	memory := membership.NewMemStore()
	t.Cleanup(memory.Close)
	s := &withoutStore{Outage: membertest.NewOutage(memory)}
	for i := range n {
		x := enterFor(t, s, fmt.Sprint("n", i), micros, n, 2*time.Second)
		s.nodes, s.members = append(s.nodes, x), append(s.members, x.member)
	}
	return s
}

// train trains on all nodes, to the end; each is called with the events of each, by its index.
func (s *withoutStore) train(ctx context.Context, c runtime.Config, each func(i int, e runtime.Event)) (params []string, errs []error) {
	params, errs, s.kill = make([]string, len(s.nodes)), make([]error, len(s.nodes)), make([]context.CancelFunc, len(s.nodes))
	var wg sync.WaitGroup
	for i, x := range s.nodes {
		ctx, cancel := context.WithCancel(ctx)
		s.kill[i] = func() { // as a process that is killed: nothing in order
			x.plane.Close()
			cancel()
		}
		wg.Go(func() {
			defer cancel()
			c := c
			c.Cluster.Peers = x.team
			params[i], errs[i] = trainOn(ctx, c, func(e runtime.Event) { each(i, e) })
		})
	}
	wg.Wait()
	return params, errs
}

// backAfter brings the store back when members have asked for it so many times.
func (s *withoutStore) backAfter(t *testing.T, ctx context.Context, n int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Refused(t, ctx, n)
		s.back.Store(true)
		s.Back()
	}()
	t.Cleanup(func() { <-done })
}

// Nobody makes a step of the asynchronous mode while the store is away, for no node may decide
// that by itself then. When it is back the same nodes go on, and every batch was applied once.
func TestStaleOutage(t *testing.T) {
	t.Parallel()
	s := startWithoutStore(t, 3, bound)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := sspConfig()
	c.Execution.Threads, c.Training.Epochs = 1, 3
	seen := &runtimetest.Census{Bound: 3}
	var applied atomic.Int64
	params, errs := s.train(ctx, c, func(_ int, e runtime.Event) {
		if e.Kind == runtime.EventStep {
			seen.Step(t, e.Epoch, e.Batch, e.Staleness)
		}
		switch {
		case e.Kind == runtime.EventDone:
			applied.Store(e.Applied)
		case e.Kind != runtime.EventStep:
		case e.Applied == 9:
			// The steps of this epoch are made beside this, as long as they may be; those of the
			// next are not, before it returns.
			s.Away()
			s.Undecided(t, ctx, s.members...)
			s.backAfter(t, ctx, 100)
		case e.Epoch > 0 && !s.back.Load():
			t.Errorf("epoch %d, batch %d was applied while the store was away", e.Epoch, e.Batch)
		}
	})
	batches := 0
	for i, x := range s.nodes {
		if errs[i] != nil {
			t.Errorf("node %d: %v", i, errs[i])
		}
		batches = max(batches, len(lineageOf(x.team)))
		for step, l := range lineageOf(x.team) {
			if l.Step != int64(step) {
				t.Errorf("node %d: step %d was made as number %d", i, step, l.Step)
			}
		}
		if params[i] != params[0] {
			t.Errorf("node %d ended with other parameters", i)
		}
		x.exit(t)
	}
	seen.Check(t, batches)
	if !s.back.Load() || applied.Load() != int64(batches) {
		t.Errorf("the lineage has %d steps, and %d were applied", batches, applied.Load())
	}
}

// An asynchronous run that is interrupted while the store is away keeps its last state, or
// says why it does not: the node that has the parameters may not make the steps that others
// are ahead of.
func TestStaleOutageInterrupted(t *testing.T) {
	t.Parallel()
	s := startWithoutStore(t, 3, bound)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var away atomic.Bool
	undecided := make(chan struct{})
	c := sspConfig()
	c.Execution.Threads, c.Sampling.BatchSize = 1, 4 // 300 steps an epoch: none ends, and is kept, before the ninth is heard of
	// No gradient that is begun while the store is away is there before nobody may decide.
	c.Stages = []runtime.Stage{stageOf("wait", runtime.AfterSample, func(ctx context.Context, _ *runtime.StageBatch) error {
		if away.Load() {
			select {
			case <-undecided:
			case <-ctx.Done():
			}
		}
		return nil
	})}
	dirs, errs := make([]string, len(s.nodes)), make([]error, len(s.nodes))
	var wg sync.WaitGroup
	for i, x := range s.nodes {
		dirs[i] = t.TempDir()
		c := c
		c.Cluster.Peers, c.Checkpoint.Dir = x.team, dirs[i]
		wg.Go(func() {
			_, errs[i] = trainOn(ctx, c, func(e runtime.Event) {
				if e.Kind == runtime.EventStep && e.Applied == 9 {
					away.Store(true)
					s.Away()
					s.Undecided(t, ctx, s.members...)
					close(undecided)
					go func() {
						s.Refused(t, ctx, 50)
						cancel()
					}()
				}
			})
		})
	}
	wg.Wait()
	s.Back()
	for i, x := range s.nodes {
		files, err := os.ReadDir(dirs[i])
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(errs[i], context.Canceled) || strings.Contains(errs[i].Error(), "are not kept") != (len(files) == 0) {
			t.Errorf("node %d: %v, and its directory has %v", i, errs[i], files)
		}
		x.exit(t)
	}
}

// newest waits until the node has heard that the checkpoint after a step is published, and
// returns it.
func (x *node) newest(ctx context.Context, t *testing.T, step int64) (p training.Published) {
	t.Helper()
	if _, err := x.member.Until(ctx, func(*membership.View) bool {
		p, _ = x.team.Published()
		return p.Step >= step
	}); err != nil || p.Step != step {
		t.Errorf("the newest checkpoint is of step %d, not %d; %v", p.Step, step, err)
	}
	return p
}

// While the store is away training goes on, and nothing is published in a shared directory: not in
// the epoch in which it went, nor after that. When it is back the next epoch is published, and the
// bits are those of one process.
func TestSharedOutage(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	c.Training.Epochs = 5
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Checkpoint.Shared = t.TempDir(), true, true
	s := startWithoutStore(t, 2, 8)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var first training.Published
	params, errs := s.train(ctx, c, func(i int, e runtime.Event) {
		if i != 0 || e.Kind != runtime.EventEpoch { // the others make no step while this is in here
			return
		}
		switch x := s.nodes[0]; e.Epoch {
		case 0:
			first = x.newest(ctx, t, e.Applied)
			s.Away()
		case 1, 2:
			if all := runtimetest.Files(t, c.Checkpoint.Dir); !slices.Equal(all, []string{first.File}) {
				t.Errorf("after epoch %d, without the store, there are %v", e.Epoch, all)
			}
			s.Undecided(t, ctx, s.members...)
			if e.Epoch == 2 {
				s.Back()
				if err := x.member.Decides(ctx); err != nil {
					t.Error(err)
				}
			}
		default:
			if p, all := x.newest(ctx, t, e.Applied), runtimetest.Files(t, c.Checkpoint.Dir); !slices.Contains(all, p.File) {
				t.Errorf("%s was published, and there are %v", p.File, all)
			}
		}
	})
	for i, x := range s.nodes {
		if errs[i] != nil || params[i] != want {
			t.Errorf("node %d: the parameters differ, or %v", i, errs[i])
		}
		x.exit(t)
	}
}

// A run whose last step is made while the store is away ends when that is back, with its last
// checkpoint published: be it that the store goes before the last epoch, or in it, and by another
// node where the one that was to publish it dies meanwhile.
func TestSharedOutageAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		away int // in this epoch
		dies bool
	}{"before": {0, false}, "in the last epoch": {1, false}, "and a node dies": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clusterConfig()
			c.Training.Epochs, c.Checkpoint.Dir, c.Checkpoint.Resume, c.Checkpoint.Shared = 2, t.TempDir(), true, true
			s := startWithoutStore(t, 2, 8)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var last int64
			_, errs := s.train(ctx, c, func(i int, e runtime.Event) {
				switch {
				case e.Kind == runtime.EventDone && !s.back.Load():
					t.Errorf("node %d ended while the store was away", i)
				case i != 0:
				case e.Kind == runtime.EventStep && e.Epoch == test.away && e.Batch == 0:
					s.Away()
					if test.away == 0 {
						s.Undecided(t, ctx, s.members...)
					}
				case e.Kind == runtime.EventEpoch && e.Epoch == 1:
					last = e.Applied
					s.backAfter(t, ctx, 100)
					if test.dies {
						s.kill[0]()
					}
				}
			})
			for i, x := range s.nodes {
				if dead := i == 0 && test.dies; (errs[i] != nil) != dead {
					t.Errorf("node %d: %v", i, errs[i])
				}
				if i == 1 && !t.Failed() {
					if p, all := x.newest(ctx, t, last), runtimetest.Files(t, c.Checkpoint.Dir); !slices.Contains(all, p.File) {
						t.Errorf("%s was published, and there are %v", p.File, all)
					}
				}
				x.exit(t)
			}
		})
	}
}
