package graph_test

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// What reads or copies all of the data ends soon when its context does; least is how often
// its loops ask.
func TestDatasetCallsAreInterrupted(t *testing.T) {
	const rows = 4
	n := rows * interrupt.Every
	ds := &graph.Dataset{Graph: &graph.Graph{Indptr: make([]int64, n+1), Indices: make([]uint32, n), Weights: make([]float32, n)}}
	for v := range n {
		ds.Graph.Indptr[v+1] = int64(v + 1)
	}
	ds.NodeFeatures, ds.EdgeFeatures = graph.NewFeatures(n, 1, make([]float32, n)), graph.NewFeatures(n, 1, make([]float32, n))
	ds.Partitions = []graph.Partition{{Method: "hash", Parts: 1, Cluster: make([]uint32, n)}}
	interrupttest.Check(t, 5*rows+3, func(ctx context.Context) error { return ds.Validate(ctx) })
	interrupttest.Check(t, 2*rows+1, func(ctx context.Context) error { return ds.Graph.Validate(ctx) })
	large := &graph.Dataset{Graph: &graph.Graph{Indptr: make([]int64, 2)}, NodeFeatures: graph.NewFeatures(1, 1<<20, make([]float32, 1<<20))}
	interrupttest.Check(t, 4+1+1, func(ctx context.Context) error {
		hash, err := large.ContentHash(ctx)
		if (hash == "") != (err != nil) {
			t.Errorf("%q and %v", hash, err)
		}
		return err
	})
	interrupttest.Check(t, rows+1, func(ctx context.Context) error {
		_, err := ds.NodeFeatures.Normalized(ctx)
		return err
	})
	for e, least := range map[graph.Encoding]int{{DType: graph.Float16}: rows + 1, {DType: graph.Int8, PerColumn: true}: 2*rows + 1} {
		interrupttest.Check(t, least, func(ctx context.Context) error {
			_, err := ds.NodeFeatures.Encode(ctx, e)
			return err
		})
	}
}
