package features_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// The second batch reads only the row that the first did not bring.
func ExampleSlab() {
	store := features.InMemory(graph.NewFeatures(4, 2, []float32{0, 0, 1, 10, 2, 20, 3, 30}))
	defer store.Close()
	slab, err := features.NewSlab(store.Layout(), features.SlabOptions{Slots: 4, Keep: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer slab.Close()
	for _, inputs := range [][]uint32{{1, 2}, {2, 3}} {
		lease, err := slab.Match(inputs)
		if err != nil {
			log.Fatal(err)
		}
		request := lease.Request()
		request.Dst = slab.Table()
		if err := features.Read(context.Background(), store, request); err != nil {
			log.Fatal(err)
		}
		fmt.Print("read ", lease.Load, ", rows")
		for _, slot := range lease.Slots {
			row := make([]float32, 2)
			slab.Table().Row(row, int(slot))
			fmt.Print(" ", row)
		}
		fmt.Println()
		slab.Release(lease)
	}
	// Output:
	// read [1 2], rows [1 10] [2 20]
	// read [3], rows [2 20] [3 30]
}
