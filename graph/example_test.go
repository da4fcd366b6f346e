package graph_test

import (
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph"
)

func ExampleFromEdges() {
	// Edges 0→1, 2→1 and 1→0 of a graph of three nodes.
	g, err := graph.FromEdges(3, []uint32{2, 0, 1}, []uint32{1, 1, 0}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(g.NumNodes(), g.NumEdges(), g.InNeighbors(1))
	// Output: 3 3 [0 2]
}
