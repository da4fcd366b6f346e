package partition

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// A partition ends soon when its context does; least is how often its loops ask.
func TestComputeIsInterrupted(t *testing.T) {
	g, _ := planted(8, 1200, 4, 0.8, 1)
	for method, least := range map[string]int{"metis": 38, "louvain": 47, "labels": 16, "hash": 1, "contiguous": 1} {
		t.Run(method, func(t *testing.T) {
			interrupttest.Check(t, least, func(ctx context.Context) error {
				part, err := Compute(ctx, g, method, 10, 1)
				if (part == nil) != (err != nil) {
					t.Errorf("%d nodes, and %v", len(part), err)
				}
				return err
			})
		})
	}
	t.Run("metis of many parts", func(t *testing.T) { // nothing is made coarser before they grow
		const n = 4 * interrupt.Every
		interrupttest.Check(t, 11, func(ctx context.Context) error {
			_, err := Compute(ctx, &graph.Graph{Indptr: make([]int64, n+1)}, "metis", n/coarsePerPart+1, 1)
			return err
		})
	})
	t.Run("measure", func(t *testing.T) {
		interrupttest.Check(t, 3, func(ctx context.Context) error {
			_, err := Measure(ctx, g, make([]uint32, g.NumNodes()))
			return err
		})
	})
}
