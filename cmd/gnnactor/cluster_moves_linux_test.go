package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// pauses returns the times between the last step of a group and the first of
// the next, by what a node says.
func pauses(log string) (all []time.Duration) {
	for line := range strings.Lines(log) {
		_, after, ok := strings.Cut(strings.TrimSpace(line), " after=")
		if d, err := time.ParseDuration(after); ok && err == nil && d > 0 {
			all = append(all, d)
		}
	}
	return all
}

// moved trains on four hosts, of which the first has the data, while the last
// two join and drain in turn: no command may fail, a drained node has nothing
// left, and the bits are those of one process. The state is 1 MiB.
func moved(t *testing.T, epochs, moves int) {
	c := startStores(t, 4, 1)
	data := filepath.Join(c.dir, "data")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "20000", "--features", "128")
	run := []string{"--data", data, "--micro-batches", "8", "--batch-size", "64", "--epochs", fmt.Sprint(epochs), "--eval-every", "0", "--fanouts", "5,5",
		"--hidden", "320", "--threads", "1", "--seed", "3", "--baseline=false"}
	place := func(n *netNode) []string {
		host := n.host.Addr().String()
		return []string{"--certs", c.certs(), "--node", n.name, "--node-dir", filepath.Join(c.dir, n.name),
			"--listen", host + ":7402", "--control", host + ":7403", "--output", "json"}
	}
	begin := func(n *netNode, args ...string) {
		n.log = newOutput(t, n.name)
		n.process = c.start(n.host, n.log, slices.Concat(args, place(n)))
	}
	stepped := func(n *netNode) {
		t.Helper()
		if err := n.log.await(c.ctx, func(s string) bool { return strings.Contains(s, "the group made its first step") }); err != nil {
			t.Fatalf("%s makes no step: %v", n.name, err)
		}
	}
	end := func(p *netlab.Process, log *output) {
		t.Helper()
		if state, err := p.Wait(c.ctx); err != nil || !state.Success() {
			t.Fatalf("%v, %v:\n%s", state, err, ending(log.String()))
		}
	}
	at := c.endpoints[0]
	begin(c.nodes[0], slices.Concat([]string{"train", "--cluster", at, "--shards", "12", "--replicas", "2", "--wait-for", "2"}, run)...)
	begin(c.nodes[1], "cluster", "join", at, "--threads", "1")
	stepped(c.nodes[0])
	var shards, trainers int64
	in := map[*netNode]bool{}
	for k := range moves {
		n := c.nodes[2+k%2]
		if !in[n] {
			begin(n, "cluster", "join", at, "--threads", "1")
			stepped(n)
		} else {
			log := newOutput(t, "drain")
			ops := c.nodes[k%2]
			end(c.start(ops.host, log, []string{"cluster", "drain", at, n.name, "--node", ops.name, "--certs", c.certs()}), log)
			end(n.process, n.log)
			var r drainResult
			for line := range strings.Lines(n.log.String()) {
				if strings.HasPrefix(line, "{") {
					if err := json.Unmarshal([]byte(line), &r); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !r.Drained || r.ShardsLeft != 0 {
				t.Errorf("%s: %+v", n.name, r)
			}
			shards += r.ShardsTaken + r.ShardsGiven
		}
		in[n] = !in[n]
		trainers++
	}
	one := alone(t, run)
	for _, n := range c.nodes {
		if n.process == nil || n.host != c.nodes[0].host && n.host != c.nodes[1].host && !in[n] {
			continue
		}
		end(n.process, n.log)
		if r := resultOf(t, n.log.String()); r.SHA == "" || r.SHA != one.SHA {
			t.Errorf("%s: parameters %s, not those of one process, %s", n.name, r.SHA, one.SHA)
		}
	}
	all := pauses(c.nodes[0].log.String())
	slices.Sort(all)
	if len(all) < moves {
		t.Fatalf("%d changes of the group of trainers for %d moves", len(all), moves)
	}
	t.Logf("%d moves: %d shards handed over, %d times the trainers' shares (with their samplers) and the parameters; pause %v (median), %v at most",
		moves, shards, trainers, (all[(len(all)-1)/2]+all[len(all)/2])/2, all[len(all)-1])
	if want := 4 * int64(moves); shards+trainers < want {
		t.Errorf("%d hand-overs; %d moves should make %d at least", shards+trainers, moves, want)
	}
}

// Four nodes join and drain.
func TestNetMoves(t *testing.T) { moved(t, 50, 12) }

// Nodes join or drain 100 times.
func TestNetMovesLong(t *testing.T) {
	if os.Getenv(long) == "" {
		t.Skipf("it takes 3 minutes; set %s to any number", long)
	}
	moved(t, 500, 100)
}
