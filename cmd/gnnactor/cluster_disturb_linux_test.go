package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// long is the environment variable that makes the tests of disturbed clusters
// as long as they are meant to be, minutes each: by its value in epochs.
const long = "GNNACTOR_NETLAB_EPOCHS"

// longEpochs skips a test that is only worth its time when it is long.
func longEpochs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(long))
	if err != nil || n < 1 {
		t.Skipf("it takes minutes; set %s to a number of epochs that take 3 minutes, such as 1600", long)
	}
	return n
}

// kill kills everything of a node, as a power failure would.
func (c *netCluster) kill(i int) time.Time {
	c.t.Helper()
	c.fault("kill")
	at := time.Now()
	if err := c.nodes[i].process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	if i < len(c.stores) {
		if err := c.stores[i].Kill(); err != nil {
			c.t.Fatal(err)
		}
	}
	return at
}

// killed kills nodes in turn; each is back in the group before the next goes.
func killed(t *testing.T, epochs int, victims []int, every time.Duration) {
	c := startStores(t, 4, 3)
	args := netArgs(epochs)
	c.train(args...)
	began := time.Now()
	var pauses []time.Duration
	for k, v := range victims {
		if wait := time.Until(began.Add(time.Duration(k) * every)); wait > 0 {
			<-time.After(wait)
		}
		group := c.settled()
		starts := c.nodes[v].process.Starts()
		at := c.kill(v)
		pause := c.awaitStep(c.nodes[(v+1)%4], group).at.Sub(at)
		t.Logf("n%d killed: the next step after %v", v, pause)
		pauses = append(pauses, pause)
		if err := c.nodes[v].process.Await(c.ctx, starts+1); err != nil {
			t.Fatal(err)
		}
	}
	c.settled()
	c.finish(alone(t, args))
	slices.Sort(pauses)
	t.Logf("%d kills: the next step after %v (median), %v at most", len(pauses), pauses[len(pauses)/2], pauses[len(pauses)-1])
}

// A trainer, and the leader with its store, are killed and come back.
func TestNetKill(t *testing.T) { killed(t, 400, []int{3, 0}, 0) }

// Any node is killed every 10 s for 2 minutes.
func TestNetKillLong(t *testing.T) {
	epochs := longEpochs(t)
	killed(t, epochs, []int{3, 0, 1, 2, 0, 3, 1, 0, 2, 3, 1, 0}, 10*time.Second)
}

// disturbance is something that is wrong for a while.
type disturbance struct {
	name         string
	epochs       int
	store, train []string // further arguments
	begin, end   func(*netCluster) error
	during       time.Duration
}

// disturbed trains meanwhile.
func disturbed(t *testing.T, d disturbance) {
	c := startStores(t, 4, 3, d.store...)
	args := netArgs(d.epochs)
	c.train(append(slices.Clone(args), d.train...)...)
	c.settled()
	c.fault(d.name)
	if err := d.begin(c); err != nil {
		t.Fatal(err)
	}
	<-time.After(d.during)
	if d.end != nil {
		if err := d.end(c); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range c.nodes {
		if strings.Contains(n.log.String(), `"parameters_sha256"`) {
			t.Logf("n%d was done before the disturbance ended", i)
		}
	}
	one := alone(t, args)
	for i, r := range c.finish(one) {
		t.Logf("n%d: %d groups, %d micro-batches, %.1f s, started %d times", i, len(r.Cluster.Lineage), r.Cluster.MicroBatches, r.Seconds, c.nodes[i].process.Starts())
	}
}

func stop(i int, s syscall.Signal) func(*netCluster) error {
	return func(c *netCluster) error {
		if err := c.nodes[i].process.Signal(s); err != nil {
			return err
		}
		if i < len(c.stores) {
			return c.stores[i].Signal(s)
		}
		return nil
	}
}

// A trainer stands still for longer than its lease lasts, and comes back to the place
// that it had.
func TestNetFreeze(t *testing.T) {
	disturbed(t, disturbance{name: "freeze", epochs: 400, begin: stop(3, syscall.SIGSTOP), during: 6 * time.Second, end: stop(3, syscall.SIGCONT)})
}

// A node with its store stands still for 20 s.
func TestNetFreezeLong(t *testing.T) {
	disturbed(t, disturbance{name: "freeze", epochs: longEpochs(t), begin: stop(0, syscall.SIGSTOP), during: 20 * time.Second, end: stop(0, syscall.SIGCONT)})
}

// A node is cut off for 20 s.
func TestNetCut(t *testing.T) {
	disturbed(t, disturbance{name: "cut", epochs: longEpochs(t), during: 20 * time.Second,
		begin: func(c *netCluster) error { return c.nodes[0].host.Cut() }, end: func(c *netCluster) error { return c.nodes[0].host.Mend() }})
}

// A node loses 5 % of its packets.
func TestNetLoss(t *testing.T) {
	disturbed(t, disturbance{name: "loss", epochs: longEpochs(t) / 8, begin: func(c *netCluster) error { return c.nodes[1].host.Loss(5) }})
}

// A node is 200 ms away.
func TestNetLatency(t *testing.T) {
	longEpochs(t)
	disturbed(t, disturbance{name: "latency", epochs: 4, store: []string{"--heartbeat", "200ms"}, train: []string{"--lease", "6s"},
		begin: func(c *netCluster) error { return c.nodes[1].host.Latency(200 * time.Millisecond) }})
}
