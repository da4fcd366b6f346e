package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// Four hosts train asynchronously, no gradient more than 3 steps late, while one
// of those that compute is killed, and then the one that has the parameters:
// every step says how late it was, and every batch is in the lineage once.
func TestNetStale(t *testing.T) {
	const bound, epochs = 3, 700
	c := startStores(t, 4, 3)
	steps := func(n *netNode) string { return filepath.Join(c.dir, n.name+"-steps") }
	c.trainEach(func(n *netNode) []string {
		return append(sspArgs(bound, epochs), "--steps", steps(n))
	})
	group := c.settled()
	for _, victim := range []int{3, 0} {
		starts := c.nodes[victim].process.Starts()
		at := c.kill(victim)
		next := c.awaitStep(c.nodes[(victim+1)%4], group)
		t.Logf("n%d killed: the next group's first step after %v", victim, next.at.Sub(at))
		if err := c.nodes[victim].process.Await(c.ctx, starts+1); err != nil {
			t.Fatal(err)
		}
		group = c.settled()
	}
	all := c.finishStale()
	// What a group that its owner did not outlive had applied is trained again: so
	// there are lines of more steps than the run has, and one at least of each.
	late, lines := make([]int64, bound+1), 0
	seen := map[[2]int]bool{}
	for i, n := range c.nodes {
		mine := stepLines(t, steps(n))
		for _, l := range mine {
			if l.Staleness == nil || *l.Staleness < 0 || *l.Staleness > bound {
				t.Fatalf("%s: %+v", n.name, l)
			}
			late[*l.Staleness]++
			seen[[2]int{l.Epoch, l.Batch}] = true
		}
		lines += len(mine)
		t.Logf("n%d computed %d batches, and applied %d", i, all[i].Cluster.MicroBatches, len(mine))
	}
	if int64(len(seen)) != all[0].Batches || slices.Max(late[1:]) == 0 {
		t.Errorf("lines of %d of %d steps, late by 0, 1, …: %v", len(seen), all[0].Batches, late)
	}
	t.Logf("%d lines for %d steps, late by 0, 1, …: %v; test accuracy %v", lines, all[0].Batches, late, all[0].TestAccuracy)
}

func sspArgs(bound, epochs int) []string {
	return []string{"--sync", fmt.Sprintf("ssp:%d", bound), "--batch-size", "64", "--epochs", fmt.Sprint(epochs), "--eval-every", "50",
		"--threads", "1", "--seed", "3", "--baseline=false"}
}

// finishStale waits for an asynchronous run's end and checks that all nodes have the same
// parameters, which are good, by a lineage that holds each step once.
func (c *netCluster) finishStale() (all []netResult) {
	c.t.Helper()
	for _, n := range c.nodes {
		state, err := n.process.Wait(c.ctx)
		if err != nil || !state.Success() {
			c.t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
		}
		r := resultOf(c.t, n.log.String())
		if r.SHA == "" || len(all) > 0 && (r.SHA != all[0].SHA || r.Chain != all[0].Chain) {
			c.t.Errorf("%s has other parameters than %s, or another lineage", n.name, c.nodes[0].name)
		}
		if r.TestAccuracy < 0.9 {
			c.t.Errorf("%s: test accuracy %v", n.name, r.TestAccuracy)
		}
		all = append(all, r)
	}
	c.checkLineages(all, all[0].Batches)
	return all
}
