package partition_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/partition"
)

// Two rings of four nodes, joined by one edge.
func ExampleCompute() {
	var src, dst []uint32
	join := func(u, v uint32) { src, dst = append(src, u, v), append(dst, v, u) }
	for v := range uint32(4) {
		join(v, (v+1)%4)
		join(4+v, 4+(v+1)%4)
	}
	join(0, 4)
	g, err := graph.FromEdges(8, src, dst, nil)
	if err != nil {
		log.Fatal(err)
	}
	part, err := partition.Compute(context.Background(), g, "metis", 2, 1)
	if err != nil {
		log.Fatal(err)
	}
	q, err := partition.Measure(context.Background(), g, part)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Clusters, "clusters,", q.CutEdges, "edges between them; 0 and 3 in one:", part[0] == part[3])
	// Output: 2 clusters, 2 edges between them; 0 and 3 in one: true
}
