package overlap_test

import (
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/sampling/overlap"
)

// Of three batches that of the same nodes comes next.
func ExampleOrderer_Order() {
	inputs := [][]uint32{{0, 1, 2}, {7, 8, 9}, {2, 1, 5}}
	o, err := overlap.NewOrderer(10, overlap.Exact)
	if err != nil {
		log.Fatal(err)
	}
	var batches [][]overlap.Part
	for _, in := range inputs {
		batches = append(batches, []overlap.Part{{Size: len(in), Nodes: in}})
	}
	order, err := o.Order(nil, batches)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order)
	fmt.Printf("%.2f of their nodes are the same\n", overlap.Degree(inputs[0], inputs[2]))
	// Output:
	// [0 2 1]
	// 0.67 of their nodes are the same
}
