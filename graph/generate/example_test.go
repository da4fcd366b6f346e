package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gnnactor/gnnactor/graph/generate"
)

// Nodes of four classes, most of whose edges stay within a class.
func ExampleSBM() {
	ds, err := generate.SBM(context.Background(), generate.SBMOptions{
		Nodes: 1000, Classes: 4, AvgDegree: 8, Homophily: 0.8, FeatureDim: 16, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	within := 0
	for v := range ds.Graph.NumNodes() {
		for _, u := range ds.Graph.InNeighbors(uint32(v)) {
			if ds.Labels.Class[u] == ds.Labels.Class[v] {
				within++
			}
		}
	}
	fmt.Printf("%.1f of the edges; %d nodes to train on\n", float64(within)/float64(ds.Graph.NumEdges()), len(ds.Train))
	// Output: 0.8 of the edges; 500 nodes to train on
}
