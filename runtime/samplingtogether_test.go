package runtime

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
)

// A large batch that one sampler draws with all threads has the bits that one
// thread draws.
func TestSamplingTogetherChangesNoBits(t *testing.T) {
	t.Parallel()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 34_000, Classes: 3, AvgDegree: 6, Homophily: 0.7, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.99, ValidFraction: 0.001, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, sampler := range []string{"neighbor", "gns"} {
		c := config()
		c.Data.Dataset, c.Sampling.Sampler, c.Sampling.BatchSize, c.Training.Epochs, c.Execution.Samplers, c.Training.EvalEvery = ds, sampler, 1<<14, 1, 1, 0
		c.Execution.Threads = 1
		want := parametersOf(t, c)
		c.Execution.Threads = 3
		r := started(t, c)
		if !r.plan.Together {
			t.Fatalf("%s: the plan has one thread sample a batch of %d", sampler, c.Sampling.BatchSize)
		}
		trained(t, r)
		if got := sumOf(t, r); got != want {
			t.Errorf("%s: other bits", sampler)
		}
	}
}
