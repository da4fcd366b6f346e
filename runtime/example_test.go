package runtime_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/runtime"
)

// Training on the built-in graph, and two nodes' classes.
func ExampleStart() {
	ctx := context.Background()
	cfg := runtime.DefaultConfig()
	cfg.Training.Epochs = 5
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Stop()
	for event, err := range rt.Train(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if event.Kind == runtime.EventDone {
			fmt.Println("test accuracy above a half:", event.TestAccuracy > 0.5)
		}
	}
	predictions, err := rt.Predict(ctx, []uint32{0, 17})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(predictions), "nodes have a class")
	// Output:
	// test accuracy above a half: true
	// 2 nodes have a class
}

// Sampled batches with their features, for a model of one's own.
func ExampleRuntime_Batches() {
	ctx := context.Background()
	cfg := runtime.DefaultConfig()
	cfg.Sampling.BatchSize = 256
	rt, err := runtime.Start(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Stop()
	for b, err := range rt.Batches(ctx, runtime.BatchesOptions{Phase: "mine"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(b.ID, len(b.Labels), len(b.X) == b.NumInputs()*b.NumFeatures)
		break
	}
	// Output: mine/e0/b0 256 true
}
