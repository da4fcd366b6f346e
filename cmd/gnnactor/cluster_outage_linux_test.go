package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// outage trains while the only store is frozen, and killed, for longer than leases last:
// no step waits for it, and no group changes.
func outage(t *testing.T, epochs int, frozen, killed time.Duration, lease string) {
	c := startStoresThat(t, 4, 1, killed)
	args := netArgs(epochs)
	c.train(append(args, "--lease", lease)...)
	group := c.settled()
	store := c.stores[0]
	signal := func(s syscall.Signal) {
		if err := store.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	const lost, found = "the lease may have ended", "this node has a lease again"
	both := func(times int) {
		for _, n := range c.nodes {
			if err := n.log.await(c.ctx, func(s string) bool { return strings.Count(s, lost) >= times && strings.Count(s, found) >= times }); err != nil {
				t.Fatalf("%s was not without its lease, and back, %d times: %v", n.name, times, err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	<-time.After(frozen)
	signal(syscall.SIGCONT)
	both(1)
	starts := store.Starts()
	if err := store.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := store.Await(c.ctx, starts+1); err != nil {
		t.Fatal(err)
	}
	both(2)
	for i, n := range c.nodes {
		if strings.Contains(n.log.String(), `"parameters_sha256"`) {
			t.Errorf("%s was done before the store was back: more epochs are needed", n.name)
		}
		if n := n.process.Starts(); n != 1 {
			t.Errorf("n%d was started %d times", i, n)
		}
	}
	for i, r := range c.finish(alone(t, args)) {
		if l := r.Cluster.Lineage; l[len(l)-1].Group != group {
			t.Errorf("n%d: after group %d, in which the store went away, the lineage is %v", i, group, l)
		}
	}
}

// The store stands still for 6 s, and is away for 5.
func TestNetOutage(t *testing.T) { outage(t, 500, 6*time.Second, 5*time.Second, "2s") }

// The store stands still for 30 s, and is away for a minute.
func TestNetOutageLong(t *testing.T) {
	outage(t, 2*longEpochs(t), 30*time.Second, time.Minute, "3s")
}
