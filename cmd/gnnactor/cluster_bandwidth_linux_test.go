package main

import (
	"fmt"
	"path/filepath"
	"testing"
)

// One, two and four nodes at 1 Gbit/s each: what an epoch takes, how much of it
// each node computes, and how long its bytes take at that rate. A GraphSAGE of
// 128 features and width 256 in 3 layers has 1.4 MiB of gradients.
func TestNetBandwidth(t *testing.T) {
	for _, hosts := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d nodes", hosts), func(t *testing.T) {
			const epochs, bits = 3, 1_000_000_000
			c := startStores(t, hosts, 1)
			data := filepath.Join(c.dir, "data")
			mustInvoke(t, "generate", "sbm", data, "--nodes", "20000", "--classes", "47", "--features", "128", "--train", "0.4", "--valid", "0.1")
			for _, n := range c.nodes {
				if err := n.host.Bandwidth(bits); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"--data", data, "--layers", "3", "--hidden", "256", "--fanouts", "10,5,5", "--batch-size", "512", "--micro-batches", "8",
				"--epochs", fmt.Sprint(epochs), "--eval-every", "0", "--threads", "1", "--seed", "3", "--baseline=false"}
			one := alone(t, args)
			c.train(args...)
			for i, r := range c.finish(one) {
				sent, err := c.nodes[i].host.Traffic()
				if err != nil {
					t.Fatal(err)
				}
				link := float64(max(sent.Sent, sent.Received)) * 8 / bits
				t.Logf("n%d of %d: an epoch %.2f s, computing %.2f s of it, %d micro-batches; its busier direction %.1f MB = %.2f s of link",
					i, hosts, r.Seconds/epochs, r.Stages.Compute/epochs, r.Cluster.MicroBatches, float64(max(sent.Sent, sent.Received))/1e6/epochs, link/epochs)
			}
		})
	}
}
