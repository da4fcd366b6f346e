package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// outage trains while the only store is frozen, and killed, for longer than leases last,
// and returns the group that went through it.
func outage(t *testing.T, args []string, frozen, killed time.Duration, lease string) (*netCluster, int64) {
	c := startStoresThat(t, 4, 1, killed)
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
	return c, group
}

// sameGroup checks that a group was a run's last.
func sameGroup(t *testing.T, group int64, all []netResult) {
	t.Helper()
	for i, r := range all {
		if l := r.Cluster.Lineage; l[len(l)-1].Group != group {
			t.Errorf("n%d: after group %d, in which the store went away, the lineage is %v", i, group, l)
		}
	}
}

// The store stands still for 6 s, and is away for 5: no step waits for it, and no group
// changes.
func TestNetOutage(t *testing.T) {
	args := netArgs(500)
	c, group := outage(t, args, 6*time.Second, 5*time.Second, "2s")
	sameGroup(t, group, c.finish(alone(t, args)))
}

// The store stands still for 30 s, and is away for a minute.
func TestNetOutageLong(t *testing.T) {
	args := netArgs(2 * longEpochs(t))
	c, group := outage(t, args, 30*time.Second, time.Minute, "3s")
	sameGroup(t, group, c.finish(alone(t, args)))
}

// An asynchronous run waits for a store that stands still for 6 s, and is away for 5, as
// nobody may decide a step meanwhile; then the same group goes on.
func TestNetOutageStale(t *testing.T) {
	c, group := outage(t, sspArgs(3, 700), 6*time.Second, 5*time.Second, "2s")
	sameGroup(t, group, c.finishStale())
}
