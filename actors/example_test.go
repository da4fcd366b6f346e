package actors_test

import (
	"context"
	"fmt"
	"log"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// Two sampler actors that work ahead of the loop; batches come in order.
func ExampleStart() {
	ds := generate.Builtin()
	prepared, err := sampling.Prepare(context.Background(), sampling.Spec{Name: "neighbor", Fanouts: []int{4, 4}}, ds, 1)
	if err != nil {
		log.Fatal(err)
	}
	system, workers := actor.NewActorSystem(), pool.New(2)
	defer workers.Close()
	defer system.Shutdown()
	p, err := actors.Start(actors.Config{
		System: system, Pool: workers, Clock: new(clock.Recorder),
		Samplers: []sampling.Sampler{prepared.NewSampler(), prepared.NewSampler()}, Credits: 2,
		Work: actors.Work{Phase: "train", Seed: 1, Nodes: ds.Train[:100], BatchSize: 40, Micro: 1, Epochs: 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Stop()
	for range 3 {
		x, err := p.Next(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		d := x.(*actors.Delivery)
		fmt.Println(d.Batch.ID, len(d.Batch.Seeds))
		p.Release(d)
	}
	// Output:
	// train/e0/b0 40
	// train/e0/b1 40
	// train/e0/b2 20
}
