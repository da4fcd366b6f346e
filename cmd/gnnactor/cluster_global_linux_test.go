package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Four nodes compute global batches without a limit and at 1 Gbit/s each, to the same parameters: of a model that sums its features first, which cross the borders in
// its first step alone, and of one whose products come first, so that rows cross both ways. It prints what an epoch takes, and for how long its bytes would occupy a link.
func TestNetGlobalBandwidth(t *testing.T) {
	for _, m := range []struct{ features, hidden int }{{64, 64}, {128, 32}} {
		t.Run(fmt.Sprintf("%d features, hidden %d", m.features, m.hidden), func(t *testing.T) { globalBandwidth(t, m.features, m.hidden) })
	}
}

func globalBandwidth(t *testing.T, features, hidden int) {
	const bits, few, many = 1_000_000_000, 5, 45
	c := startStores(t, 4, 1)
	whole, set := filepath.Join(c.dir, "blocks"), filepath.Join(c.dir, "set")
	mustInvoke(t, strings.Fields(fmt.Sprintf("generate sbm %s --nodes 200000 --classes 8 --degree 20 --features %d --homophily 0.95", whole, features))...)
	mustInvoke(t, "partition", "--data", whole, "--parts", "4", "--method", "metis", "--out", set)
	c.dealPieces(set, 4)
	train := func(epochs int) (sha string, seconds, bytes float64) {
		before := make([]uint64, len(c.nodes))
		traffic := func(n *netNode) uint64 {
			now, err := n.host.Traffic()
			if err != nil {
				t.Fatal(err)
			}
			return max(now.Sent, now.Received)
		}
		for i, n := range c.nodes {
			before[i] = traffic(n)
			args := strings.Fields(fmt.Sprintf("--model gcn --layers 2 --hidden %d --sampler full --epochs %d --threads 1 --output json", hidden, epochs))
			n.process = c.start(n.host, n.log, slices.Concat([]string{"train", "--data", c.data(n)}, args, c.nodeArgs(n)))
		}
		for i, n := range c.nodes {
			state, err := n.process.Wait(c.ctx)
			if err != nil || !state.Success() {
				t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
			}
			r := resultOf(t, n.log.String())
			if sha == "" {
				sha = r.SHA
			}
			if r.SHA == "" || r.SHA != sha {
				t.Errorf("%s: parameters %.8s, where they were %.8s", n.name, r.SHA, sha)
			}
			seconds, bytes = max(seconds, r.Seconds), max(bytes, float64(traffic(n)-before[i]))
		}
		return sha, seconds, bytes
	}
	shas := map[string]bool{}
	for range 2 {
		for _, limit := range []int64{0, bits} {
			for _, n := range c.nodes {
				if err := n.host.Bandwidth(limit); err != nil {
					t.Fatal(err)
				}
			}
			_, short, little := train(few)
			sha, long, much := train(many)
			shas[sha] = true
			bytes := (much - little) / (many - few)
			t.Logf("%d bit/s: an epoch %.0f ms; the busiest direction of a link %.2f MB, %.0f ms at 1 Gbit/s", limit, 1e3*(long-short)/(many-few), bytes/1e6, 1e3*8*bytes/bits)
		}
	}
	if len(shas) != 1 {
		t.Errorf("parameters depend on the bandwidth: %v", shas)
	}
}
