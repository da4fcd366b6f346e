package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/netlab"
)

// samplerCluster is a cluster in which some hosts train and others sample for them: n0 has
// the store and the rows, n1 and n2 train, and the others sample.
type samplerCluster struct {
	*netCluster
	run   []string
	steps string // of n1
}

const samplesNow = "this node samples for the trainers"

// place starts what a host does.
func (c *samplerCluster) place(n *netNode, roles string, args ...string) {
	c.t.Helper()
	host := n.host.Addr().String()
	n.log = newOutput(c.t, n.name)
	n.process = c.startThat(n.host, n.log, slices.Concat(args, []string{"--certs", c.certs(), "--node", n.name, "--node-dir", filepath.Join(c.dir, n.name),
		"--listen", host + ":7402", "--control", host + ":7403", "--output", "json", "--roles", roles}), time.Second)
}

// sampler starts one, samples waits until it is one, too.
func (c *samplerCluster) sampler(n *netNode) {
	c.t.Helper()
	c.place(n, "sampler", "cluster", "join", c.endpoints[0])
}

func (c *samplerCluster) samples(n *netNode) {
	c.t.Helper()
	c.sampler(n)
	c.sampling(n, 1)
}

// sampling waits until a node has begun to sample so many times.
func (c *samplerCluster) sampling(n *netNode, times int) {
	c.t.Helper()
	over := false
	err := n.log.await(c.ctx, func(s string) bool {
		over = strings.Contains(s, "the run has come to its end") || strings.Contains(s, "nothing is left to do")
		return over || strings.Count(s, samplesNow) >= times
	})
	if err != nil || over {
		c.t.Fatalf("%s does not sample, the run is over: %v, and more epochs are needed; %v", n.name, over, err)
	}
}

func startSamplers(t *testing.T, hosts, epochs int) *samplerCluster {
	c := &samplerCluster{netCluster: startStores(t, hosts, 1)}
	c.begin(epochs, lightData, lightRun...)
	return c
}

// Data and settings of runs whose samplers have little to do beside compute, and of those that take longer than it.
var (
	lightData = []string{"--features", "64"}
	lightRun  = []string{"--batch-size", "256", "--fanouts", "5,5", "--hidden", "64"}
	heavyData = []string{"--features", "8", "--degree", "60"}
	heavyRun  = []string{"--batch-size", "256", "--sampler", "labor", "--layers", "3", "--fanouts", "10,5,5", "--hidden", "8"}
)

// generate makes the data, and returns where it is.
func (c *samplerCluster) generate(args ...string) (data string) {
	c.t.Helper()
	data = filepath.Join(c.dir, "data")
	mustInvoke(c.t, slices.Concat([]string{"generate", "sbm", data, "--nodes", "20000"}, args)...)
	return data
}

func (c *samplerCluster) begin(epochs int, data []string, settings ...string) {
	t := c.t
	c.run = slices.Concat([]string{"--data", c.generate(data...), "--micro-batches", "4", "--epochs", fmt.Sprint(epochs), "--eval-every", "0",
		"--threads", "1", "--seed", "3", "--baseline=false"}, settings)
	c.steps = filepath.Join(c.dir, "steps")
	for _, n := range c.nodes[3:] { // before trainers: without any a run is refused
		c.sampler(n)
	}
	c.place(c.nodes[1], "trainer", slices.Concat([]string{"train", "--cluster", c.endpoints[0], "--shards", "2", "--wait-for", "2", "--steps", c.steps, "--samplers", "2"}, c.run)...)
	c.place(c.nodes[2], "trainer", "cluster", "join", c.endpoints[0], "--threads", "1", "--samplers", "2")
	c.place(c.nodes[0], "rows", "cluster", "join", c.endpoints[0])
	for _, n := range c.nodes[3:] {
		c.sampling(n, 1)
	}
	for _, n := range c.nodes[1:3] {
		if err := n.log.await(c.ctx, func(s string) bool { return strings.Contains(s, "the group made its first step") }); err != nil {
			t.Fatalf("%s makes no step: %v", n.name, err)
		}
	}
}

// ends waits for the run's end: the trainers have the bits of one process, and nothing
// of it did they sample.
func (c *samplerCluster) ends() {
	c.t.Helper()
	one := alone(c.t, slices.Concat(c.run, []string{"--threads", "0"}))
	c.t.Logf("in one process sampling takes %.2f of what compute takes", one.Stages.Sample/one.Stages.Compute)
	for _, n := range c.nodes {
		state, err := n.process.Wait(c.ctx)
		if err != nil || !state.Success() {
			c.t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
	}
	for _, n := range c.nodes[1:3] {
		r := resultOf(c.t, n.log.String())
		if r.SHA == "" || r.SHA != one.SHA || r.Chain != one.Chain {
			c.t.Errorf("%s: parameters %s, not those of one process, %s", n.name, r.SHA, one.SHA)
		}
		if r.Cluster.Drawn < r.Cluster.MicroBatches {
			c.t.Errorf("%s computed %d micro-batches, of which others sampled %d", n.name, r.Cluster.MicroBatches, r.Cluster.Drawn)
		}
		c.t.Logf("%s: %d micro-batches of others, %.1f KB each on the wire, %d moves", n.name, r.Cluster.Drawn, float64(r.Cluster.DrawnBytes)/float64(r.Cluster.Drawn)/1e3, r.Cluster.Moves)
	}
}

// What a run's nodes send, by type of message: control messages fit 64 KiB, and a batch's rows take one exchange.
func TestNetMessages(t *testing.T) {
	epochs := 30
	if n, err := strconv.Atoi(os.Getenv(long)); err == nil {
		epochs = n
	}
	c := startSamplers(t, 5, epochs)
	c.ends()
	batches := float64(alone(t, c.run).Batches)
	for _, x := range []struct {
		who   string
		nodes []*netNode
	}{{"rows", c.nodes[:1]}, {"trainers", c.nodes[1:3]}, {"samplers", c.nodes[3:]}} {
		var sent [][]transport.Sent
		for _, n := range x.nodes {
			r := resultOf(t, n.log.String()).Cluster
			sent = append(sent, r.Messages)
			if r.RowRounds > r.MicroBatches+8 { // those of exact inference at the end, and of what was measured before
				t.Errorf("%s asked for rows %d times, for %d micro-batches", n.name, r.RowRounds, r.MicroBatches)
			}
		}
		for _, m := range transport.Sum(sent...) {
			if m.Envelope > 64<<10 {
				t.Errorf("%s sent %s of %d bytes", x.who, m.Type, m.Envelope)
			}
			t.Logf("%s sent of %q a batch: %.2f, headers of %.0f bytes, bulk of %.0f; the largest envelope has %d", x.who, m.Type,
				float64(m.Count)/batches, float64(m.Header)/batches, float64(m.Bulk)/batches, m.Envelope)
		}
	}
}

// moment is when something was done to a sampler.
type moment struct {
	what string
	at   time.Time
}

// pausesAfter returns, by what was done, by how much the longest gap between two steps after
// it, until the next thing was done and for three seconds at most, was longer than the
// median of all; of those gaps that count. Of a gap that it falls into what is after it counts: a host was slow before.
func pausesAfter(lines []stepLine, moments []moment, counts func(before, after stepLine) bool) map[string][]time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(lines); i++ {
		gaps = append(gaps, lines[i].Time.Sub(lines[i-1].Time))
	}
	median := slices.Sorted(slices.Values(gaps))[len(gaps)/2]
	pauses := map[string][]time.Duration{}
	for k, m := range moments {
		end := m.at.Add(3 * time.Second)
		if k+1 < len(moments) && moments[k+1].at.Before(end) {
			end = moments[k+1].at
		}
		longest := time.Duration(0)
		for i := 1; i < len(lines); i++ {
			if lines[i].Time.After(m.at) && lines[i-1].Time.Before(end) && counts(lines[i-1], lines[i]) {
				longest = max(longest, min(gaps[i-1], lines[i].Time.Sub(m.at)))
			}
		}
		pauses[m.what] = append(pauses[m.what], max(longest-median, 0))
	}
	return pauses
}

// logPauses logs them, and, where makers has who made the step at a time, the pauses before another's first step.
func logPauses(t *testing.T, lines []stepLine, moments []moment, makers map[time.Time]string) {
	t.Helper()
	if last := lines[len(lines)-1].Time; moments[len(moments)-1].at.After(last) {
		t.Errorf("the run was over %v before the last move: more epochs are needed", moments[len(moments)-1].at.Sub(last))
	}
	var all, first []time.Duration // gaps, and those before an epoch's first step
	for i, l := range lines[1:] {
		gap := l.Time.Sub(lines[i].Time)
		if all = append(all, gap); l.Epoch != lines[i].Epoch {
			first = append(first, gap)
		}
	}
	slices.Sort(all)
	slices.Sort(first)
	t.Logf("%d steps in %v: a gap of %v in the median, 99 %% within %v; before an epoch's first step %v", len(lines), lines[len(lines)-1].Time.Sub(lines[0].Time), all[len(all)/2], all[len(all)*99/100], first[len(first)/2])
	took := map[string]time.Duration{}
	for k, m := range moments[1:] {
		took[moments[k].what] += m.at.Sub(moments[k].at)
	}
	logged := func(gap string, counts func(before, after stepLine) bool) {
		for what, p := range pausesAfter(lines, moments, counts) {
			slices.Sort(p)
			t.Logf("%d times %s: %s %v (median), %v at most; %v until the next", len(p), what, gap, (p[(len(p)-1)/2]+p[len(p)/2])/2, p[len(p)-1], took[what]/time.Duration(len(p)))
		}
	}
	logged("pause", func(stepLine, stepLine) bool { return true })
	if makers != nil {
		logged("pause until another makes the steps", func(before, after stepLine) bool { return makers[before.Time] != makers[after.Time] })
	}
}

// said returns how often the trainers wrote something.
func (c *samplerCluster) said(what string) int {
	return strings.Count(c.nodes[1].log.String(), what) + strings.Count(c.nodes[2].log.String(), what)
}

// says waits until the trainers wrote something more often than before.
func (c *samplerCluster) says(what string, before int) {
	c.t.Helper()
	for {
		one, other := c.nodes[1].log.changed(), c.nodes[2].log.changed()
		if c.said(what) > before {
			return
		}
		select {
		case <-one:
		case <-other:
		case <-c.ctx.Done():
			c.t.Fatalf("the trainers did not write %q: %v", what, context.Cause(c.ctx))
		}
	}
}

const better, movedTo = "a sampler is better elsewhere", "a sampler moved"

// scheduled has a host be slow until the leader, which is one of the trainers, has begun to move a sampler from it. Two
// moments: from the first on steps wait for who is slow, as they are to, and the second is the decision.
func (c *samplerCluster) scheduled(slow *netNode) []moment {
	c.t.Helper()
	before, cut := c.said(better), time.Now()
	if err := slow.host.SetCPU(0.0625); err != nil {
		c.t.Fatal(err)
	}
	moves := c.said(movedTo)
	c.says(better, before)
	decided := time.Now()
	if err := slow.host.SetCPU(0); err != nil {
		c.t.Fatal(err)
	}
	c.says(movedTo, moves)
	return []moment{{"slow", cut}, {"moved by the scheduler", decided}}
}

// Samplers are on hosts of their own, of which one is drained, killed or slow in turn, and comes back:
// the trainers go on, and come to the bits of one process.
func TestNetSamplers(t *testing.T) {
	epochs, times := 300, 2
	if n, err := strconv.Atoi(os.Getenv(long)); err == nil {
		epochs, times = n, max(2, n/60)
	}
	c := &samplerCluster{netCluster: startStores(t, 5, 1)}
	c.begin(epochs, heavyData, heavyRun...)
	var moments []moment
	for k := range times {
		n := c.nodes[3+k%2]
		ops := c.nodes[0]
		log := newOutput(t, "drain")
		moments = append(moments, moment{"drained", time.Now()})
		p := c.start(ops.host, log, []string{"cluster", "drain", c.endpoints[0], n.name, "--node", ops.name, "--certs", c.certs()})
		if state, err := p.Wait(c.ctx); err != nil || !state.Success() {
			t.Fatalf("drain: %v, %v:\n%s", state, err, log)
		}
		if state, err := n.process.Wait(c.ctx); err != nil || !state.Success() || !strings.Contains(n.log.String(), `"drained":true`) {
			t.Fatalf("%s drains: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		moments = append(moments, moment{"started again", time.Now()}) // a process that begins takes the others' cores
		c.samples(n)
		<-time.After(time.Second) // until samplers are there again: who is killed next is not to be the only one that is warm
		n = c.nodes[3+(k+1)%2]
		began := strings.Count(n.log.String(), samplesNow)
		moments = append(moments, moment{"killed", time.Now()})
		if err := n.process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.sampling(n, began+1)
		if netlab.Limits() == nil {
			moments = append(moments, c.scheduled(n)...)
			<-time.After(time.Second) // so that what it leaves behind counts as its own
		}
	}
	for range times / 2 { // what the others are to be compared with
		moments = append(moments, moment{"let be", time.Now()})
		<-time.After(time.Second) // about as long as a drain
	}
	c.ends()
	logPauses(t, stepLines(t, c.steps), moments, nil)
}

// stepsPerSecond returns how many steps were made a second between two moments.
func stepsPerSecond(lines []stepLine, from, to time.Time) float64 {
	n := 0
	for _, l := range lines {
		if l.Time.After(from) && l.Time.Before(to) {
			n++
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}

// Every host has half a core; one that samples is cut to a sixteenth. The leader moves samplers
// away from it; the bits are those of one process.
func TestNetSlowSampler(t *testing.T) {
	epochs, each := 120, 4*time.Second
	if n, err := strconv.Atoi(os.Getenv(long)); err == nil {
		epochs, each = n, 30*time.Second
	}
	if os.Getenv(netlab.Require) != "" {
		netlab.NeedLimits(t)
	}
	c := startSamplers(t, 6, epochs)
	for _, n := range c.nodes {
		if err := n.host.SetCPU(0.5); err != nil {
			t.Fatal(err)
		}
	}
	slow := c.nodes[3]
	moves := func() (from []string) {
		for _, n := range c.nodes[1:3] {
			for line := range strings.Lines(n.log.String()) {
				if _, rest, ok := strings.Cut(line, "a sampler moved"); ok && strings.Contains(rest, "from="+slow.name) {
					from = append(from, rest)
				}
			}
		}
		return from
	}
	<-time.After(each)
	before := len(moves())
	cut := time.Now()
	if err := slow.host.SetCPU(0.0625); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes[1:3] { // of each trainer's samplers one is there at least
		if err := n.log.await(c.ctx, func(string) bool { return len(moves()) > before }); err != nil {
			t.Fatalf("no sampler was moved from %s: %v", slow.name, err)
		}
	}
	moved := time.Now()
	<-time.After(each)
	mended := time.Now()
	if err := slow.host.SetCPU(0.5); err != nil {
		t.Fatal(err)
	}
	<-time.After(each)
	end := time.Now()
	for _, n := range c.nodes {
		if err := n.host.SetCPU(0); err != nil {
			t.Fatal(err)
		}
	}
	c.ends()
	lines := stepLines(t, c.steps)
	if last := lines[len(lines)-1].Time; last.Before(end) {
		t.Errorf("the run was over %v before the test: more epochs are needed", end.Sub(last))
	}
	t.Logf("steps/s: %.1f; %.1f in the %v until a sampler was moved, then %.1f; %.1f when the host was fast again; %d moves from there",
		stepsPerSecond(lines, cut.Add(-each/2), cut), stepsPerSecond(lines, cut, moved), moved.Sub(cut).Round(time.Millisecond),
		stepsPerSecond(lines, moved.Add(each/2), mended), stepsPerSecond(lines, mended.Add(each/2), end), len(moves()))
}
