package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Batches that four nodes' pieces compute together, at 1 Gbit/s each and with and without latency, take the same way to the same parameters with one in flight and
// with two. It prints how many are made a second.
func TestNetBatchesInFlight(t *testing.T) {
	const epochs, bits = 2, 1_000_000_000
	shas := map[string]string{}                                                             // by how late gradients are
	for _, delay := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} { // a round trip has it twice
		for _, sync := range []string{"--sync sync", "--sync ssp:1 --trainers 1", "--sync ssp:1"} {
			t.Run(fmt.Sprint(delay, " ", sync), func(t *testing.T) {
				c := startStores(t, 4, 1)
				whole, set := filepath.Join(c.dir, "blocks"), filepath.Join(c.dir, "set")
				mustInvoke(t, strings.Fields("generate sbm "+whole+" --nodes 50000 --classes 8 --degree 20 --features 64 --homophily 0.95")...)
				mustInvoke(t, "partition", "--data", whole, "--parts", "4", "--method", "metis", "--out", set)
				c.dealPieces(set, 4)
				args := strings.Fields(fmt.Sprintf("--model gcn --layers 2 --hidden 64 --sampler khop --hybrid --batch-size 500 --epochs %d --threads 1 --output json %s", epochs, sync))
				for _, n := range c.nodes {
					if err := n.host.Bandwidth(bits); err != nil {
						t.Fatal(err)
					}
					if err := n.host.Latency(delay); err != nil {
						t.Fatal(err)
					}
					n.process = c.start(n.host, n.log, slices.Concat([]string{"train", "--data", c.data(n)}, args, c.nodeArgs(n)))
				}
				late := strings.Fields(sync)[1]
				for _, n := range c.nodes {
					state, err := n.process.Wait(c.ctx)
					if err != nil || !state.Success() {
						t.Fatalf("%s: %v, %v:\n%s", n.name, state, err, ending(n.log.String()))
					}
					r := resultOf(t, n.log.String())
					if shas[late] == "" {
						shas[late] = r.SHA
					}
					if r.SHA == "" || r.SHA != shas[late] {
						t.Errorf("%s: parameters %.8s, where they were %.8s", n.name, r.SHA, shas[late])
					}
					t.Logf("%s: %.1f batches a second, test accuracy %.4f", n.name, float64(r.Batches)/r.Seconds, r.TestAccuracy)
				}
			})
		}
	}
	if len(shas) > 0 && shas["sync"] == shas["ssp:1"] { // none: there are no hosts here
		t.Error("late gradients change no parameters")
	}
}
