package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The parameters of an asynchronous run move 4 times.
func TestNetParameters(t *testing.T) { parametersMoved(t, 300, 2) }

// They move 100 times.
func TestNetParametersLong(t *testing.T) {
	if os.Getenv(long) == "" {
		t.Skipf("it takes 5 minutes; set %s to any number", long)
	}
	parametersMoved(t, 2500, 50)
}

// parametersMoved trains on three hosts asynchronously. So many times the one that has the parameters is drained, and then
// the next one killed, and each comes back: others have the parameters then, and go on.
func parametersMoved(t *testing.T, epochs, times int) {
	c := &samplerCluster{netCluster: startStores(t, 4, 1)}
	trainers := c.nodes[1:]
	steps := func(n *netNode) string { return filepath.Join(c.dir, n.name+"-steps") }
	run := slices.Concat([]string{"train", "--cluster", c.endpoints[0], "--wait-for", "3", "--steps", steps(trainers[0]), "--data", c.generate(lightData...)},
		sspArgs(3, epochs), []string{"--batch-size", "128", "--eval-every", "0"})
	const roles = "sampler,trainer,rows"
	first := func(n *netNode, before int) { // one more than so many
		t.Helper()
		over := false
		err := n.log.await(c.ctx, func(s string) bool {
			over = strings.Contains(s, "parameters_sha256") || strings.Contains(s, "nothing is left to do")
			return over || len(firstSteps(s)) > before
		})
		if err != nil || over {
			t.Fatalf("%s makes no step: the run is over: %v, and more epochs are needed; %v", n.name, over, err)
		}
	}
	join := func(n *netNode) {
		c.place(n, roles, "cluster", "join", c.endpoints[0], "--threads", "1", "--steps", steps(n))
	}
	c.place(trainers[0], roles, run...)
	for _, n := range trainers[1:] {
		join(n)
	}
	for _, n := range trainers {
		first(n, 0)
	}
	leads := func() (first string) { // the newest group
		newest := int64(0)
		for _, n := range trainers {
			for line := range strings.Lines(n.log.String()) {
				_, rest, ok := strings.Cut(line, `msg="training in a group" group=`)
				var group int64
				if _, err := fmt.Sscanf(rest, `%d trainers="[%s`, &group, new(string)); ok && err == nil && group > newest {
					newest = group
					_, names, _ := strings.Cut(rest, "[")
					first, _, _ = strings.Cut(names, " ")
				}
			}
		}
		return first
	}
	owner := func() *netNode { // the status follows
		t.Helper()
		for {
			s := c.status()
			if s.Parameters != nil && s.Parameters.Node == leads() {
				if i := slices.IndexFunc(trainers, func(n *netNode) bool { return n.name == s.Parameters.Node }); i >= 0 {
					return trainers[i]
				}
			}
			if c.ctx.Err() != nil {
				t.Fatalf("nobody has the parameters: %+v", s)
			}
		}
	}
	var moments []moment
	for range times {
		n := owner()
		log := newOutput(t, "drain")
		moments = append(moments, moment{"drained", time.Now()})
		p := c.start(c.nodes[0].host, log, []string{"cluster", "drain", c.endpoints[0], n.name, "--node", c.nodes[0].name, "--certs", c.certs()})
		if state, err := p.Wait(c.ctx); err != nil || !state.Success() {
			t.Fatalf("drain: %v, %v:\n%s", state, err, log)
		}
		if state, err := n.process.Wait(c.ctx); err != nil || !state.Success() || !strings.Contains(n.log.String(), `"drained":true`) {
			t.Fatalf("%s drains: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		join(n)
		first(n, 0)
		n = owner()
		began := len(firstSteps(n.log.String()))
		moments = append(moments, moment{"killed", time.Now()})
		if err := n.process.Kill(); err != nil {
			t.Fatal(err)
		}
		first(n, began)
	}
	var all []netResult
	var lines []stepLine
	makers := map[time.Time]string{}
	for _, n := range trainers {
		if state, err := n.process.Wait(c.ctx); err != nil || !state.Success() {
			t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		all = append(all, resultOf(t, n.log.String()))
		if r := all[len(all)-1]; r.SHA == "" || r.SHA != all[0].SHA || r.Chain != all[0].Chain {
			t.Errorf("%s has other parameters, or another lineage, than %s", n.name, trainers[0].name)
		}
		for _, l := range stepLines(t, steps(n)) {
			lines, makers[l.Time] = append(lines, l), n.name
		}
	}
	slices.SortFunc(lines, func(a, b stepLine) int { return a.Time.Compare(b.Time) })
	seen := map[string]bool{}
	for _, l := range lines {
		seen[fmt.Sprint(l.Epoch, l.Batch)] = true
	}
	if int64(len(seen)) != all[0].Batches {
		t.Errorf("%d of %d steps were made", len(seen), all[0].Batches)
	}
	// What an owner that is killed has made since its epoch began is made again, and nothing else.
	again, most := len(lines)-len(seen), times*int(all[0].Batches)/epochs
	if again > most {
		t.Errorf("%d steps were made again; %d kills make it %d at most", again, times, most)
	}
	for _, n := range trainers {
		if s := n.log.String(); strings.Contains(s, "not every node took the state over") {
			t.Errorf("%s waited for its state to be taken:\n%s", n.name, ending(s))
		}
	}
	t.Logf("%d moves; %d steps were made again", 2*times, again)
	logPauses(t, lines, moments, makers)
}
