package runtime

import (
	"slices"
	"testing"
)

// An epoch of the cluster sampler visits every cluster, and so every node,
// exactly once, however many seed nodes there are and however a batch is cut.
func TestClusterEpochIsEveryClusterOnce(t *testing.T) {
	for _, micro := range []int{1, 2} {
		cfg := DefaultConfig()
		cfg.Sampling.Sampler, cfg.Sampling.Options = "cluster", map[string]string{"clusters": "40", "per-batch": "3"}
		cfg.Sampling.BatchSize, cfg.Sampling.MicroBatches, cfg.Execution.Samplers = 64, micro, 2
		rt, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		var seen []uint32
		batches, epochs := 0, 2
		for b, err := range rt.Batches(t.Context(), BatchesOptions{Epochs: epochs}) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, b.Inputs()...)
			if micro == 1 && len(b.Inputs()) == 0 {
				t.Fatalf("%v is empty", b.ID)
			}
			if b.ID.Of != micro {
				t.Fatalf("%v has %d micro-batches, want %d", b.ID, b.ID.Of, micro)
			}
			batches++
		}
		// ⌈40/3⌉, or fewer where clusters have come out without nodes.
		if n := epochs * micro; batches > 14*n || batches < 12*n || batches%n != 0 {
			t.Errorf("%d micro-batches, want up to %d", batches, 14*n)
		}
		slices.Sort(seen)
		n := rt.Dataset().Graph.NumNodes()
		for i, v := range seen {
			if int(v) != i/epochs {
				t.Fatalf("%d micro-batches: node %d is not seen %d times", micro, v, epochs)
			}
		}
		if len(seen) != n*epochs {
			t.Errorf("%d nodes are seen, want %d", len(seen), n*epochs)
		}
		if err := rt.Stop(); err != nil {
			t.Error(err)
		}
	}
}
