package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
	"github.com/gnnactor/gnnactor/scheduler"
)

// placesFile, where a process of a lab starts, says how many samplers each host is to have; none: the scheduler
// decides.
const placesFile = "places"

var ownBalancer scheduler.Balancer

// wantedPlaces is ownBalancer's Move for who leads, to where placesFile says.
func wantedPlaces(nodes []scheduler.SamplerNode, places []scheduler.SamplerPlace) (to scheduler.SamplerPlace, why string, ok bool) {
	var want map[string]int
	b, err := os.ReadFile(placesFile)
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil || want == nil {
		return ownBalancer.Move(nodes, places)
	}
	on := map[string]int{}
	for _, p := range places {
		on[p.Node]++
	}
	for _, p := range places {
		for node, n := range want {
			if on[p.Node] > want[p.Node] && on[node] < n {
				return scheduler.SamplerPlace{Sampler: p.Sampler, Node: node}, "a test tries it", true
			}
		}
	}
	return to, "", false
}

// want says how many samplers the hosts that sample are to have; none: as the scheduler decides.
func (c *samplerCluster) want(on ...int) {
	c.t.Helper()
	var want map[string]int
	for i, n := range on {
		if want == nil {
			want = map[string]int{}
		}
		want[c.nodes[3+i].name] = n
	}
	b, err := json.Marshal(want)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, placesFile+".new"), b, 0o644)
	}
	if err == nil {
		err = os.Rename(filepath.Join(c.dir, placesFile+".new"), filepath.Join(c.dir, placesFile))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// status returns what the cluster's status says.
func (c *samplerCluster) status() (s clusterStatus) {
	c.t.Helper()
	ops := c.nodes[0]
	log := newOutput(c.t, "status")
	p := c.start(ops.host, log, []string{"cluster", "status", c.endpoints[0], "--node", ops.name, "--certs", c.certs(), "--output", "json"})
	state, err := p.Wait(c.ctx)
	if err != nil || !state.Success() {
		c.t.Fatalf("status: %v, %v:\n%s", state, err, log)
	}
	if err := json.Unmarshal([]byte(log.String()), &s); err != nil {
		c.t.Fatalf("%v:\n%s", err, log)
	}
	return s
}

// places returns how many samplers each host has that samples.
func (c *samplerCluster) places() []int {
	c.t.Helper()
	on := make([]int, len(c.nodes)-3)
	for _, trainer := range c.status().Nodes {
		for _, at := range trainer.Samplers {
			if i := slices.IndexFunc(c.nodes[3:], func(n *netNode) bool { return n.name == at }); i >= 0 {
				on[i]++
			}
		}
	}
	return on
}

// fastest tries placements, one after another, and returns the steps a second of the best, measured for so long, and which it is.
func (c *samplerCluster) fastest(what string, each time.Duration, all ...[]int) (best float64, which []int) {
	c.t.Helper()
	for _, on := range all {
		c.want(on...)
		for before := c.said(movedTo); !slices.Equal(c.places(), on); before++ {
			c.says(movedTo, before)
		}
		from := time.Now()
		<-time.After(each)
		rate := c.rate(from, time.Now())
		c.t.Logf("%s, samplers placed as %v: %.1f steps/s", what, on, rate)
		if rate > best {
			best, which = rate, on
		}
	}
	return best, which
}

// settles has the scheduler place samplers, for half a minute and so long, and returns since when, and the moves in the time after
// that half minute.
func (c *samplerCluster) settles(each time.Duration) (began time.Time, moves int) {
	c.t.Helper()
	c.want()
	began = time.Now()
	<-time.After(30 * time.Second)
	before := c.said(movedTo)
	<-time.After(each)
	return began, c.said(movedTo) - before
}

// rate returns how many steps were made a second between two moments.
func (c *samplerCluster) rate(from, to time.Time) float64 {
	c.t.Helper()
	return stepsPerSecond(stepLines(c.t, c.steps), from, to)
}

// reaches returns how long after a moment so many steps a second were made, for 3 s; half a minute: not before.
func (c *samplerCluster) reaches(rate float64, from time.Time) (after time.Duration) {
	c.t.Helper()
	const window = 3 * time.Second
	lines := stepLines(c.t, c.steps)
	for after < 30*time.Second && stepsPerSecond(lines, from.Add(after), from.Add(after+window)) < rate {
		after += window / 10
	}
	return after
}

// Every host has half a core; one that samples is cut to an eighth, and is as fast as before again later. The
// scheduler comes to what the best of all placements makes, and stays there.
func TestNetPlaces(t *testing.T) {
	seconds, err := strconv.Atoi(os.Getenv(long))
	if err != nil {
		t.Skipf("it takes 4 minutes of a machine that does nothing else; set %s=1, or 600 to have the scheduler watched for 10 minutes each time", long)
	}
	netlab.NeedLimits(t)
	const each = 6 * time.Second
	c := &samplerCluster{netCluster: startStores(t, 6, 1)}
	c.want(2, 1, 1)
	c.begin(1e6, heavyData, "--batch-size", "256", "--sampler", "pinsage", "--sampler-options", "walks=20", "--hidden", "8")
	cpu := func(n *netNode, cores float64) {
		t.Helper()
		if err := n.host.SetCPU(cores); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		cpu(n, 0.5)
	}
	slow := c.nodes[3]
	const same, cut = "hosts alike", "the first cut to an eighth"
	_, sameOn := c.fastest(same, each, []int{2, 1, 1}, []int{2, 2, 0}, []int{3, 1, 0}, []int{4, 0, 0})
	cpu(slow, 0.125)
	_, cutOn := c.fastest(cut, each, []int{4, 0, 0}, []int{3, 1, 0}, []int{2, 2, 0}, []int{2, 1, 1}, []int{1, 2, 1}, []int{1, 3, 0}, []int{0, 4, 0}, []int{0, 3, 1}, []int{0, 2, 2})
	cpu(slow, 0.5)
	c.fastest(same, each, sameOn)
	for _, x := range []struct {
		what  string
		cores float64
		on    []int
	}{{cut, 0.125, cutOn}, {same, 0.5, sameOn}} {
		cpu(slow, x.cores)
		began, moves := c.settles(max(each, time.Duration(min(seconds, 600))*time.Second))
		settled, placed := time.Now(), c.places()
		then := c.rate(settled.Add(-each), settled)
		best, _ := c.fastest(x.what+", again", each, x.on) // the machine is not as fast in every minute
		after := c.reaches(0.9*best, began)
		t.Logf("%s, as the scheduler places, %v: %.1f steps/s, %.2f of the best; nine tenths %v after the change; %d moves from half a minute on", x.what, placed, then, then/best, after, moves)
		if then < 0.9*best || moves > 2 || after >= 30*time.Second {
			t.Errorf("%s: %.1f steps/s of %.1f, after %v; %d moves", x.what, then, best, after, moves)
		}
		c.want()
	}
}

// A trainer on one core with its sampler on another, 1 Gbit/s between them, beside both together on the two: batches a
// second, and the share of the time for which blocks are on the wire.
func TestNetApart(t *testing.T) {
	if os.Getenv(long) == "" {
		t.Skipf("it takes 2 minutes of a machine that does nothing else; set %s=1", long)
	}
	sha := map[string]string{}
	for turn := range 12 {
		apart, size := turn%2 == 0, []string{"256", "2048"}[turn%4/2]
		t.Run(fmt.Sprint(turn), func(t *testing.T) {
			c := &samplerCluster{netCluster: startStores(t, 3, 1)}
			c.steps = filepath.Join(c.dir, "steps")
			train := slices.Concat([]string{"train", "--cluster", c.endpoints[0], "--steps", c.steps, "--data", c.generate(heavyData...), "--micro-batches", "4",
				"--epochs", "60", "--eval-every", "0", "--seed", "3", "--baseline=false"}, heavyRun, []string{"--batch-size", size})
			nodes := c.nodes[1:2]
			if apart {
				nodes = c.nodes[1:]
				for _, n := range nodes {
					if err := n.host.Bandwidth(1e9); err != nil {
						t.Fatal(err)
					}
				}
				c.cores = "1"
				c.sampler(nodes[1])
				c.cores = "0"
				c.place(nodes[0], "trainer,rows", train...)
				c.sampling(nodes[1], 1)
			} else {
				c.cores = "0,1"
				c.place(nodes[0], "sampler,trainer,rows", train...)
			}
			for _, n := range nodes {
				if state, err := n.process.Wait(c.ctx); err != nil || !state.Success() {
					t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
				}
			}
			r, lines := resultOf(t, nodes[0].log.String()), stepLines(t, c.steps)
			if sha[size] == "" {
				sha[size] = r.SHA
			}
			if r.SHA == "" || r.SHA != sha[size] {
				t.Errorf("parameters %s, not %s", r.SHA, sha[size])
			}
			from, to := lines[len(lines)/10].Time, lines[len(lines)-1].Time
			t.Logf("batches of %s, apart %v: %.1f batches/s; blocks of %.0f KB a batch, on the wire for %.1f %% of the time", size, apart, stepsPerSecond(lines, from, to),
				float64(r.Cluster.DrawnBytes)/float64(r.Batches)/1e3, 100*float64(r.Cluster.DrawnBytes)*8/1e9/lines[len(lines)-1].Time.Sub(lines[0].Time).Seconds())
		})
	}
}
