package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/attack"
	"github.com/gnnactor/gnnactor/internal/netlab"
	"github.com/gnnactor/gnnactor/training"
)

// asCommand makes the test binary gnnactor itself, on the hosts of a lab.
const asCommand = "GNNACTOR_TEST_COMMAND"

func init() {
	if os.Getenv(asCommand) == "1" {
		if _, err := os.Stat(placesFile); err == nil {
			moveSampler = wantedPlaces
		}
		main()
	}
}

// output is what a process writes, and can be waited for.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
	file  *os.File // nil: it is kept in memory only
}

// logs is the environment variable that names a directory for what processes
// write.
const logs = "GNNACTOR_NETLAB_LOGS"

func newOutput(t *testing.T, name string) *output {
	t.Helper()
	o := &output{wrote: make(chan struct{})}
	if dir := os.Getenv(logs); dir != "" {
		var err error
		// A node that a test starts again goes on in its file.
		if o.file, err = os.OpenFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.file.Close() })
	}
	return o
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		if _, err := o.file.Write(b); err != nil {
			return 0, err
		}
	}
	o.text.Write(b)
	close(o.wrote)
	o.wrote = make(chan struct{})
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits for what was written to be as f wants it.
func (o *output) await(ctx context.Context, f func(string) bool) error {
	for {
		o.mu.Lock()
		text, wrote := o.text.String(), o.wrote
		o.mu.Unlock()
		if f(text) {
			return nil
		}
		select {
		case <-wrote:
		case <-ctx.Done():
			return fmt.Errorf("%w; it wrote:\n%s", context.Cause(ctx), ending(text))
		}
	}
}

// changed returns a channel that is closed when more is written.
func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote
}

func ending(text string) string { return text[max(0, len(text)-4000):] }

// netCluster is a cluster on the hosts of a lab: a trainer on each, a store on
// the first.
type netCluster struct {
	t         *testing.T
	ctx       context.Context
	lab       *netlab.Lab
	dir, self string
	cores     string // that what is started next runs on; empty: all
	endpoints []string
	stores    []*netlab.Process
	storeLogs []*output
	nodes     []*netNode
	faults    attack.Tally // that there were, and whether the results are those of one process
	met       []string     // since the last finish
}

// fault counts one, for the table at the run's end.
func (c *netCluster) fault(name string) { c.met = append(c.met, name) }

// count adds the faults so far to the table, with how the run ended.
func (c *netCluster) count(o attack.Outcome) {
	for _, f := range c.met {
		c.faults.Add(c.t.Name(), f, o)
	}
	if c.met != nil {
		c.t.Logf("the results after each fault\n%s", &c.faults)
	}
	c.met = nil
}

type netNode struct {
	host    *netlab.Host
	name    string
	process *netlab.Process
	log     *output
}

func startStores(t *testing.T, hosts, stores int, args ...string) *netCluster {
	t.Helper()
	return startStoresThat(t, hosts, stores, restarting, args...)
}

// restarting is how long after its end a process is started again.
const restarting = 3 * time.Second

// startStoresThat is startStores of stores that are back so long after they were killed.
func startStoresThat(t *testing.T, hosts, stores int, back time.Duration, args ...string) *netCluster {
	t.Helper()
	if os.Getenv(netlab.Require) == "" {
		t.Skipf("it takes half a minute and more; set %s=1, or %s=try to skip it where there can be no hosts", netlab.Require, netlab.Require)
	}
	limit := 3 * time.Minute
	if d, ok := t.Deadline(); ok {
		limit = max(limit, time.Until(d)-10*time.Second)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &netCluster{t: t, ctx: ctx, lab: netlab.ForTest(t, hosts), dir: t.TempDir(), self: self}
	makeCerts := []string{"cluster", "certs", c.certs()}
	for i, h := range c.lab.Hosts() {
		n := &netNode{host: h, name: fmt.Sprintf("n%d", i)}
		n.log = newOutput(t, n.name)
		c.nodes = append(c.nodes, n)
		makeCerts = append(makeCerts, n.name+"="+h.Addr().String())
	}
	mustInvoke(t, makeCerts...)
	for i, n := range c.nodes[:stores] {
		addr := n.host.Addr().String()
		start := []string{"cluster", "start", "--node", n.name, "--certs", c.certs(), "--dir", filepath.Join(c.dir, n.name),
			"--listen", addr + ":7400", "--peers", addr + ":7401"}
		if i > 0 {
			start = append(start, "--join", c.endpoints[0])
		}
		log := newOutput(t, "store"+n.name)
		c.stores, c.storeLogs = append(c.stores, c.startThat(n.host, log, append(start, args...), back)), append(c.storeLogs, log)
		if err := log.await(ctx, func(s string) bool { return strings.Contains(s, "serves at") }); err != nil {
			t.Fatalf("store %d: %v", i, err)
		}
		c.endpoints = append(c.endpoints, addr+":7400")
	}
	return c
}

func (c *netCluster) certs() string { return filepath.Join(c.dir, "certs") }

// start runs gnnactor on a host, as systemd would.
func (c *netCluster) start(h *netlab.Host, log *output, args []string) *netlab.Process {
	c.t.Helper()
	return c.startThat(h, log, args, restarting)
}

func (c *netCluster) startThat(h *netlab.Host, log *output, args []string, back time.Duration) *netlab.Process {
	c.t.Helper()
	path := c.self
	if c.cores != "" {
		path, args = "/usr/bin/taskset", slices.Concat([]string{"-c", c.cores, c.self}, args)
	}
	p, err := h.Start(netlab.Command{Path: path, Args: args, Dir: c.dir, Env: []string{asCommand + "=1"}, Log: log, Restart: back})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// train starts a trainer on every host.
func (c *netCluster) train(args ...string) {
	c.t.Helper()
	c.trainEach(func(*netNode) []string { return args })
}

// trainEach is train with arguments of each host's own.
func (c *netCluster) trainEach(args func(*netNode) []string) {
	c.t.Helper()
	for _, n := range c.nodes {
		all := slices.Concat([]string{"train"}, args(n), []string{
			"--output", "json", "--cluster", strings.Join(c.endpoints, ","), "--certs", c.certs(), "--node", n.name,
			"--node-dir", filepath.Join(c.dir, n.name), "--checkpoint", filepath.Join(c.dir, n.name, "checkpoint"), "--resume",
			"--listen", n.host.Addr().String() + ":7402", "--control", n.host.Addr().String() + ":7403", "--wait-for", fmt.Sprint(len(c.nodes)),
		})
		n.process = c.start(n.host, n.log, all)
	}
}

// firstStep is when a group made its first step, by what a node says.
type firstStep struct {
	at    time.Time
	group int64
}

func firstSteps(log string) (all []firstStep) {
	for line := range strings.Lines(log) {
		at, ok := strings.CutPrefix(line, "time=")
		if !ok || !strings.Contains(line, "the group made its first step") {
			continue
		}
		at, _, _ = strings.Cut(at, " ")
		_, group, _ := strings.Cut(line, " group=")
		group, _, _ = strings.Cut(group, " ")
		var f firstStep
		var err error
		if f.at, err = time.Parse(time.RFC3339Nano, at); err != nil {
			continue
		}
		if f.group, err = strconv.ParseInt(group, 10, 64); err == nil {
			all = append(all, f)
		}
	}
	return all
}

// awaitStep waits until a group later than after makes its first step with n in
// it, and returns it.
func (c *netCluster) awaitStep(n *netNode, after int64) (first firstStep) {
	c.t.Helper()
	err := n.log.await(c.ctx, func(log string) bool {
		all := firstSteps(log)
		if i := slices.IndexFunc(all, func(f firstStep) bool { return f.group > after }); i >= 0 {
			first = all[i]
			return true
		}
		return strings.Contains(log, `"parameters_sha256"`)
	})
	if err != nil {
		c.t.Fatalf("%s makes no step: %v", n.name, err)
	}
	if first.group == 0 {
		c.t.Fatalf("%s was done before the disturbance: more epochs are needed", n.name)
	}
	return first
}

// settled waits until all nodes train in one group, and returns its number.
func (c *netCluster) settled() int64 {
	c.t.Helper()
	newest := c.awaitStep(c.nodes[0], 0).group
	for same := 0; same < len(c.nodes); {
		for _, n := range c.nodes {
			c.awaitStep(n, newest-1)
			all := firstSteps(n.log.String())
			if g := all[len(all)-1].group; g > newest {
				newest, same = g, 0
			}
			same++
		}
	}
	return newest
}

// netResult is what a trainer prints at its end.
type netResult struct {
	SHA          string  `json:"parameters_sha256"`
	Chain        string  `json:"lineage_sha256"`
	Batches      int64   `json:"batches"`
	TestAccuracy float64 `json:"test_accuracy"`
	Seconds      float64 `json:"seconds"`
	Stages       struct {
		Compute float64 `json:"compute"`
		Sample  float64 `json:"sample"`
	} `json:"stages"`
	Cluster struct {
		MicroBatches int64            `json:"micro_batches"`
		Drawn        int64            `json:"drawn_elsewhere"`
		DrawnBytes   int64            `json:"drawn_bytes"`
		Moves        int64            `json:"sampler_moves"`
		RowRounds    int64            `json:"row_rounds"`
		Messages     []transport.Sent `json:"messages"`
		Lineage      []training.Run   `json:"lineage"`
	} `json:"cluster"`
}

func resultOf(t *testing.T, text string) (r netResult) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
		}
	}
	return r
}

// finish waits for the run's end and checks that every node has the parameters
// of one process, by a lineage that holds each of its steps once.
func (c *netCluster) finish(one netResult) (all []netResult) {
	c.t.Helper()
	for _, n := range c.nodes {
		state, err := n.process.Wait(c.ctx)
		if err != nil || !state.Success() {
			c.t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		r := resultOf(c.t, n.log.String())
		if r.SHA == "" || r.SHA != one.SHA {
			c.t.Errorf("%s: parameters %s, not those of one process, %s", n.name, r.SHA, one.SHA)
		}
		if r.Chain == "" || r.Chain != one.Chain {
			c.t.Errorf("%s: the hash of its lineage is %s, not that of one process, %s", n.name, r.Chain, one.Chain)
		}
		all = append(all, r)
	}
	c.checkLineages(all, one.Batches)
	c.count(map[bool]attack.Outcome{false: attack.Same, true: attack.Other}[c.t.Failed()])
	return all
}

func (c *netCluster) checkLineages(all []netResult, steps int64) {
	c.t.Helper()
	for i, r := range all {
		l := r.Cluster.Lineage
		for j := 1; j < len(l); j++ {
			if l[j].First != l[j-1].Next || l[j].Group <= l[j-1].Group {
				c.t.Errorf("n%d: the lineage %v has a gap, or a step twice", i, l)
			}
		}
		if len(l) == 0 || l[0].First != 0 || l[len(l)-1].Next != steps {
			c.t.Errorf("n%d: the lineage %v is not of steps 0 to %d", i, l, steps)
		}
	}
}

func netArgs(epochs int) []string {
	return []string{"--micro-batches", "8", "--batch-size", "64", "--epochs", fmt.Sprint(epochs), "--eval-every", "10",
		"--threads", "1", "--seed", "3", "--baseline=false"}
}

// alone trains in this process.
func alone(t *testing.T, args []string) netResult {
	t.Helper()
	out, _ := mustInvoke(t, append(slices.Concat([]string{"train"}, args), "--output", "json")...)
	return resultOf(t, out)
}

// Four hosts under mutual TLS train to the bits of one process, and each
// computes its part. Every port that listens is one that is known of, and
// refuses whoever has no certificate of the cluster.
func TestNetTrain(t *testing.T) {
	c := startStores(t, 4, 1)
	args := netArgs(300)
	c.train(args...)
	c.settled()
	c.checkPorts()
	one := alone(t, args)
	for i, r := range c.finish(one) {
		if n, all := r.Cluster.MicroBatches, 8*one.Batches; n < all/8 || n > all/2 {
			t.Errorf("n%d computed %d of %d micro-batches", i, n, all)
		}
	}
}

func portNumbers(ports []netlab.Port) (all []uint16) {
	for _, p := range ports {
		all = append(all, p.Addr.Port())
	}
	return all
}
