package cluster_test

import (
	"context"
	"fmt"
	stdruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// node is a member of a cluster in this process.
type node struct {
	plane  *dataplane.Plane
	member *membership.Member
	team   *trainers.Trainers
}

// enter makes a node and its part in the run.
func enter(t *testing.T, store membership.Store, name string, micros, least int) *node {
	t.Helper()
	return enterFor(t, store, name, micros, least, time.Minute)
}

// enterFor is enter under a lease.
func enterFor(t *testing.T, store membership.Store, name string, micros, least int, lease time.Duration) *node {
	t.Helper()
	if testing.Short() {
		t.Skip("trains in a cluster: not with -short")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	m, err := membership.Join(ctx, store, membership.Config{Cluster: "test", Info: membership.Info{Node: name, Home: name, Data: p.Address()}, TTL: lease})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{plane: p, member: m}
	n.team, err = trainers.Join(ctx, trainers.Options{Member: m, Plane: p, MaxTrainers: micros, MinTrainers: least})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// exit leaves in order.
func (n *node) exit(t *testing.T) {
	t.Helper()
	n.team.Close()
	if err := n.member.Leave(context.Background()); err != nil {
		t.Error(err)
	}
	n.plane.Close()
}

func clusterConfig() runtime.Config {
	c := runtime.DefaultConfig()
	c.Training.Epochs, c.Sampling.MicroBatches, c.Sampling.BatchSize, c.Execution.Threads, c.Execution.Samplers, c.Execution.Credits = 2, 8, 64, 1, 1, 4
	return c
}

// trainOn runs a training to its end and returns the hash of the parameters.
func trainOn(ctx context.Context, c runtime.Config, each func(runtime.Event)) (string, error) {
	r, err := runtime.Start(context.Background(), c)
	if err != nil {
		return "", err
	}
	defer r.Stop()
	for e, err := range r.Train(ctx) {
		if err != nil {
			return "", err
		}
		if each != nil {
			each(e)
		}
	}
	return r.ParametersSHA256(ctx)
}

// One, two, four and five nodes train to the same bits as one process.
func TestTogether(t *testing.T) {
	t.Parallel()
	want, err := trainOn(t.Context(), clusterConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, 5} {
		store := membership.NewMemStore()
		var wg sync.WaitGroup
		for i := range n {
			x := enter(t, store, fmt.Sprint("n", i), 8, n)
			wg.Go(func() {
				c := clusterConfig()
				c.Cluster.Peers = x.team
				got, err := trainOn(t.Context(), c, nil)
				if err != nil || got != want {
					t.Errorf("%d nodes: the parameters differ, or %v", n, err)
				}
				for step, l := range lineageOf(x.team) {
					if l.Step != int64(step) {
						t.Errorf("%d nodes: step %d was made as number %d", n, l.Step, step)
					}
				}
				x.exit(t)
			})
		}
		wg.Wait()
		store.Close()
	}
}

// sameTogether trains on so many nodes, each of which must come to the parameters of one process.
func sameTogether(t *testing.T, c runtime.Config, nodes int) {
	t.Helper()
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := membership.NewMemStore()
	defer store.Close()
	var wg sync.WaitGroup
	for i := range nodes {
		x := enter(t, store, fmt.Sprint("n", i), 8, nodes)
		wg.Go(func() {
			defer x.exit(t)
			c := c
			c.Cluster.Peers = x.team
			if got, err := trainOn(t.Context(), c, nil); err != nil || got != want {
				t.Errorf("the parameters differ, or %v", err)
			}
		})
	}
	wg.Wait()
}

// Four nodes keep batch norm's running statistics as one process does.
func TestTogetherBatchNorm(t *testing.T) {
	c := clusterConfig()
	c.Model.Name, c.Model.Norm = "gin", "batch"
	sameTogether(t, c, 4)
}

// Nodes to which another one comes hear of every step once.
func TestTogetherJoined(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	come := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 3 {
		x := (*node)(nil)
		if i < 2 {
			x = enter(t, store, fmt.Sprint("n", i), 8, 2)
		}
		wg.Go(func() {
			if i == 2 {
				<-come
				x = enter(t, store, "n2", 8, 2)
			}
			defer x.exit(t)
			c := clusterConfig()
			c.Cluster.Peers = x.team
			next := int64(-1)
			_, err := trainOn(t.Context(), c, func(e runtime.Event) {
				if e.Kind != runtime.EventStep {
					return
				}
				if next >= 0 && e.Applied != next || next < 0 && i < 2 && e.Applied != 1 {
					t.Errorf("node %d hears of step %d, and not of %d", i, e.Applied, next)
				}
				next = e.Applied + 1
				if i == 0 && e.Applied == 3 { // no epoch begins without this node
					close(come)
					if _, err := x.member.Until(t.Context(), func(v *membership.View) bool {
						m, _ := v.Member("n2")
						return slices.Contains(m.Kinds, trainers.Kind)
					}); err != nil {
						t.Error(err)
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A node dies in the middle, another one joins: the bits stay the same, and
// every step is made once.
func TestTogetherThroughDeath(t *testing.T) { throughDeath(t, clusterConfig()) }

// The same with batches that are reordered, of which the last one of an epoch has
// fewer micro-batches than there are trainers.
func TestTogetherReordered(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	c.Sampling.Reorder, c.Memory.Match, c.Memory.Features = 4, "on", "throttled:10GB/s"
	n := len(generate.Builtin().Train)
	for c.Sampling.BatchSize = 50; n%c.Sampling.BatchSize != 2; c.Sampling.BatchSize++ {
		if c.Sampling.BatchSize == n {
			t.Fatalf("no size of a batch leaves 2 of %d", n)
		}
	}
	inOrder := c
	inOrder.Sampling.Reorder = 0
	var params [2]string
	for i, c := range []runtime.Config{c, inOrder} {
		var err error
		if params[i], err = trainOn(t.Context(), c, nil); err != nil {
			t.Fatal(err)
		}
	}
	if params[0] == params[1] {
		t.Fatal("reordering changes nothing")
	}
	throughDeath(t, c)
	c.Sampling.ReorderMethod = "sketch"
	sameTogether(t, c, 3)
}

// Trainers that reorder batches sample each micro-batch once among them.
func TestReorderedSampledOnce(t *testing.T) {
	t.Parallel()
	var drawn atomic.Int64
	c := clusterConfig()
	c.Sampling.Reorder, c.Memory.Match, c.Memory.Features, c.Cluster.Audit = 3, "on", "throttled:10GB/s", 0
	c.Sampling.Sampler, c.Sampling.Own = "counted", ownSampler(func(b *sampling.Batch) {
		if b.ID.Phase == "train" { // else it is to plan by
			drawn.Add(1)
		}
	})
	if _, err := trainOn(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	alone := drawn.Swap(0)
	sameTogether(t, c, 3)
	if all := drawn.Load() - alone; all != alone { // sameTogether begins with one process alone
		t.Errorf("three nodes sampled %d times, one process %d times", all, alone)
	}
}

func throughDeath(t *testing.T, config runtime.Config) {
	want, err := trainOn(t.Context(), config, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := membership.NewMemStore()
	defer store.Close()
	var wg sync.WaitGroup
	run := func(x *node, dies int64) {
		c := config
		c.Cluster.Peers = x.team
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		here := map[int64]bool{} // steps that it made itself
		got, err := trainOn(ctx, c, func(e runtime.Event) {
			here[e.Applied-1] = here[e.Applied-1] || e.Kind == runtime.EventStep
			if dies > 0 && e.Applied == dies { // as a process that is killed: nothing in order
				x.plane.Close()
				cancel()
			}
		})
		if dies > 0 {
			x.team.Close()
			if err := x.member.Leave(context.Background()); err != nil {
				t.Error(err)
			}
			y := enter(t, store, "n9", 8, 1)
			defer y.exit(t)
			c.Cluster.Peers = y.team
			if got, err = trainOn(t.Context(), c, nil); err != nil || got != want {
				t.Errorf("the node that joined late: %v", err)
			}
			return
		}
		defer x.exit(t)
		if err != nil || got != want {
			t.Errorf("a survivor: the parameters differ, or %v", err)
		}
		seen, groups := map[int64]bool{}, map[int64]bool{}
		for _, l := range lineageOf(x.team) {
			if seen[l.Step] {
				t.Errorf("step %d was made twice", l.Step)
			}
			seen[l.Step] = true
			if here[l.Step] {
				groups[l.Group] = true
			}
		}
		// The last step may have been made before the node died, or by others, from whom it has the state.
		if p := x.team.Pauses(); len(groups) > 1 && (p.Count < 1 || p.Newest <= 0 || p.Most < p.Newest) {
			t.Errorf("the group changed, and of pauses there are %+v", p)
		}
	}
	var all []*node
	for i := range 3 {
		all = append(all, enter(t, store, fmt.Sprint("n", i), 8, 3))
	}
	for i, x := range all {
		wg.Go(func() { run(x, int64(5*max(0, i-1))) })
	}
	wg.Wait()
}

// When a group's first step is made, as many micro-batches are under way as the plan has.
func TestSampledAhead(t *testing.T) {
	store := membership.NewMemStore()
	defer store.Close()
	x := enter(t, store, "n0", 2, 1)
	defer x.exit(t)
	c := clusterConfig()
	c.Cluster.Peers, c.Sampling.MicroBatches, c.Execution.Credits = x.team, 2, 5
	r, err := runtime.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	for e, err := range r.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for e.Kind == runtime.EventEpoch && e.Epoch == 0 && r.InFlight() < c.Execution.Credits && t.Context().Err() == nil { // the next epoch is sampled ahead
			stdruntime.Gosched()
		}
	}
}

// Nodes of a cluster all end with the parameters that are best by validation.
func TestTogetherKeepsBest(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	c.Training.Epochs, c.Training.LR, c.Training.Keep = 4, 0.3, "best"
	best := 0
	held, err := trainOn(t.Context(), c, func(e runtime.Event) { best = e.Best })
	if err != nil || best == c.Training.Epochs {
		t.Fatalf("epoch %d is the best; the test needs one before the last; %v", best, err)
	}
	sameTogether(t, c, 3)
	c.Training.Epochs, c.Training.Keep = best, "last"
	if last, err := trainOn(t.Context(), c, nil); err != nil || last != held {
		t.Errorf("what is held is not what epoch %d ended with; %v", best, err)
	}
}

// link is one of a lineage, and the group that made it.
type link struct{ Step, Group int64 }

// lineageOf returns the steps that led to a node's parameters, oldest first.
func lineageOf(t *trainers.Trainers) (all []link) {
	for _, r := range t.Runs() {
		for s := r.First; s < r.Next; s++ {
			all = append(all, link{s, r.Group})
		}
	}
	return all
}
