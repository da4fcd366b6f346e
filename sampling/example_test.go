package sampling_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling"
)

// Two neighbours of each seed, and one of each of those.
func ExamplePrepare() {
	ds := generate.Builtin()
	p, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: []int{2, 1}}, ds, 1)
	if err != nil {
		log.Fatal(err)
	}
	s, b := p.NewSampler(), new(sampling.Batch)
	b.ID = sampling.ID{Phase: "train", Epoch: 3, Batch: 17}
	if err := s.Sample(b, b.ID.Key(1), ds.Train[:4]); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.ID, "has", len(b.Seeds), "seeds")
	for i := range b.Blocks {
		fmt.Println("layer", i, b.Blocks[i].NumDst, "destinations,", b.Blocks[i].NumEdges(), "entries")
	}
	// Output:
	// train/e3/b17 has 4 seeds
	// layer 0 12 destinations, 12 entries
	// layer 1 4 destinations, 8 entries
}

// An epoch, sampled by two goroutines ahead of the loop.
func ExamplePrepared_Ready() {
	ds := generate.Builtin()
	p, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "labor", Fanouts: []int{5, 5}}, ds, 1)
	if err != nil {
		log.Fatal(err)
	}
	const seed, epoch, size = 1, 0, 128
	order := append([]uint32(nil), ds.Train...)
	plan := func(yield func(sampling.ID, []uint32) bool) {
		for i := range sampling.NumBatches(len(order), size) {
			seeds := order[i*size : min((i+1)*size, len(order))]
			if !yield(sampling.ID{Phase: "train", Epoch: epoch, Batch: i}, seeds) {
				return
			}
		}
	}
	batches, seeds := 0, 0
	for b, err := range p.Ready(context.Background(), seed, 2, 4, plan) {
		if err != nil {
			log.Fatal(err)
		}
		batches, seeds = batches+1, seeds+len(b.Seeds)
	}
	fmt.Println(seeds == len(ds.Train), batches == sampling.NumBatches(len(ds.Train), size))
	// Output: true true
}
