package trainers_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/training"
)

// Two nodes, in one process, make a step together: each has two of four micro-batches, and both
// get the sum of all. Package cluster does the same for runtime's training.
func ExampleJoin() {
	ctx := context.Background()
	store := membership.NewMemStore()
	defer store.Close()
	const micros = 4
	step := func(node string) (sum [1]float32, err error) {
		plane, err := dataplane.Listen(dataplane.Options{Cluster: "c", Node: node, Listen: "127.0.0.1:0"})
		if err != nil {
			return sum, err
		}
		defer plane.Close()
		info := membership.Info{Node: node, Home: node, Data: plane.Address()}
		m, err := membership.Join(ctx, store, membership.Config{Cluster: "c", Info: info, TTL: time.Minute})
		if err != nil {
			return sum, err
		}
		defer m.Leave(ctx)
		t, err := trainers.Join(ctx, trainers.Options{Member: m, Plane: plane, MaxTrainers: micros, MinTrainers: 2})
		if err != nil {
			return sum, err
		}
		defer t.Close()
		share, err := t.Rendezvous(ctx, training.Position{
			Identity: "what all must agree on",
			Save:     func() ([]byte, error) { return nil, nil }, Restore: func([]byte) (int64, error) { return 0, nil },
		})
		if err != nil {
			return sum, err
		}
		gradients := make([][]float32, micros) // of this node's micro-batches
		for i := range gradients {
			if share.Mine(i, micros) {
				gradients[i] = []float32{float32(i) + 1}
			}
		}
		if _, err = share.AllReduce(ctx, 0, sum[:], gradients, make([][]byte, micros)); err != nil {
			return sum, err
		}
		return sum, share.Finish(ctx, 1)
	}
	var nodes sync.WaitGroup
	var sums [2][1]float32
	for i, node := range []string{"a", "b"} {
		nodes.Go(func() {
			var err error
			if sums[i], err = step(node); err != nil {
				log.Print(node, ": ", err)
			}
		})
	}
	nodes.Wait()
	fmt.Println(sums)
	// Output: [[10] [10]]
}
