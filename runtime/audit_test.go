package runtime

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// Every sampler's batch has the digest that another sampler of the same settings makes of
// it, whatever it sampled before, with links as well.
func TestSampledAgain(t *testing.T) {
	t.Parallel()
	for _, name := range Samplers() {
		c := clusterConfig()
		c.Sampling.Sampler, c.Sampling.Options, c.Sampling.MicroBatches = name, samplerOptions[name], 2
		t.Run(name, func(t *testing.T) { sampledAgain(t, c) })
	}
	c := clusterConfig()
	c.Model.Task, c.Sampling.MicroBatches = "link", 2
	t.Run("link", func(t *testing.T) { sampledAgain(t, c) })
}

func sampledAgain(t *testing.T, c Config) {
	r := started(t, c)
	work := r.work()
	ask, drawn := r.NewDraw(), new(sampling.Batch)
	draw := func(b *sampling.Batch, id sampling.ID) error {
		_, err := ask(b, &messages.Seeds{ID: id})
		return err
	}
	for _, s := range r.samplers() {
		for _, epoch := range []int{1, 0} {
			for batch := range min(2, int(work.Steps())) {
				id := sampling.ID{Phase: "train", Epoch: epoch, Batch: batch, Micro: 1, Of: 2}
				b := &sampling.Batch{ID: id}
				var seeds []uint32
				if work.Batches == 0 {
					seeds = sampling.Cut(sampling.Order(work.Nodes, work.Seed, epoch), work.BatchSize, 2, batch, 1)
				}
				if err := s.Sample(b, id.Key(work.Seed), seeds); err != nil {
					t.Fatal(err)
				}
				want := textOf(b)
				if err := draw(drawn, id); err != nil || textOf(drawn) != want {
					t.Errorf("%v is another batch when it is sampled again; %v", id, err)
				}
			}
		}
	}
	for _, id := range []sampling.ID{{Epoch: work.Epochs, Of: 2}, {Batch: int(work.Steps()), Of: 2}, {Of: 3}, {Of: 1 << 30}, {Epoch: -1, Batch: -1, Micro: -1, Of: 2}} {
		if err := draw(drawn, id); err == nil {
			t.Errorf("%+v, which is no batch of the run, is sampled", id)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := draw(drawn, sampling.ID{Phase: "train", Of: 2}); !errors.Is(err, ErrStopped) { // its data is closed
		t.Errorf("after Stop: %v", err)
	}
}

// textOf returns all that a batch is: what is absent has no length.
func textOf(b *sampling.Batch) string {
	text := fmt.Sprint(b.ID, b.Seeds, b.Targets, b.LossWeights)
	for i := range b.Blocks {
		k := &b.Blocks[i]
		text += fmt.Sprint(k.NumDst, k.NumSrc, k.Indptr, k.Indices, k.Weights, k.EdgeIDs, k.SrcIDs)
	}
	return text
}
