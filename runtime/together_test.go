package runtime

import (
	"context"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/overlap"
)

func clusterConfig() Config {
	c := DefaultConfig()
	c.Training.Epochs, c.Sampling.MicroBatches, c.Sampling.BatchSize, c.Execution.Threads, c.Execution.Samplers, c.Execution.Credits = 2, 8, 64, 1, 1, 4
	return c
}

// trainOn runs a training to its end and returns the parameters.
func trainOn(ctx context.Context, c Config, each func(Event)) ([]float32, error) {
	r, err := Start(context.Background(), c)
	if err != nil {
		return nil, err
	}
	defer r.Stop()
	for e, err := range r.Train(ctx) {
		if err != nil {
			return nil, err
		}
		if each != nil {
			each(e)
		}
	}
	return slices.Clone(r.params), nil
}

// A node of a cluster has no more micro-batches under way than it computes of its first
// step, and when that is made as many as its plan has.
func TestFirstStepFirst(t *testing.T) {
	nodes := make([]uint32, 8+7) // two steps, the second of 7 micro-batches
	for _, test := range []struct {
		first                                                     int64
		samplers, resting, credits, ahead, wantCredits, wantAhead int
	}{
		{0, 2, 0, 6, 4, 2, 3}, {0, 3, 1, 6, 2, 2, 2}, {0, 1, 0, 2, 9, 2, 3}, {1, 1, 0, 6, 6, 2, 2},
	} {
		work := actors.Work{Nodes: nodes, BatchSize: 8, Micro: 8, First: test.first, Mine: func(m, of int) bool { return m < of-5 }}
		c := actors.Config{Work: work, Samplers: make([]sampling.Sampler, test.samplers), Resting: test.resting, Credits: test.credits, Loading: &actors.Loading{Ahead: test.ahead}}
		limitFirstStep(&c)
		if c.Credits != test.wantCredits || c.Loading.Ahead != test.wantAhead {
			t.Errorf("%+v: %d credits and %d ahead", test, c.Credits, c.Loading.Ahead)
		}
	}

	c := clusterConfig()
	c.Sampling.MicroBatches, c.Execution.Credits = 2, 5
	r, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	work := actors.Work{Nodes: r.seeds(), BatchSize: c.Sampling.BatchSize, Micro: 2, Epochs: 1, Mine: func(int, int) bool { return true }}
	for _, window := range []int{0, 2} {
		r.cfg.method, r.plan.Reorder = overlap.Exact, window
		config, mem, err := r.trainingConfig(t.Context(), work, newUpdater(r, r.params), new(clock.Recorder))
		if err != nil {
			t.Fatal(err)
		}
		if hurried := config.Credits == 2; hurried != (window == 0) {
			t.Errorf("windows of %d: %d credits", window, config.Credits)
		}
		if err := mem.close(); err != nil {
			t.Error(err)
		}
	}
}
