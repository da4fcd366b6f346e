package runtime

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
)

// What LazyGCN gains, rows that are not loaded again, and its price, accuracy at small
// mini-batches (Dong et al., Figure 4), against neighbour sampling of as many steps.
func TestLazyGainAndPrice(t *testing.T) {
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 4000, Classes: 4, AvgDegree: 8, Homophily: 0.7, FeatureDim: 12, Signal: 0.3, TrainFraction: 0.2, ValidFraction: 0.2, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	run := func(sampler string, batch, epochs int) (loaded int64, accuracy float64) {
		c := config()
		c.Data.Dataset, c.Sampling.Sampler, c.Sampling.BatchSize, c.Memory.Match, c.Memory.Loaders, c.Training.Epochs, c.Model.Dropout = ds, sampler, batch, "on", 1, epochs, 0
		r := started(t, c)
		accuracy = trained(t, r).TestAccuracy
		return r.Stats().Rows.Loaded, accuracy
	}
	for _, c := range []struct {
		batch, epochs int
		fails         bool
	}{{4, 2, true}, {100, 10, false}} {
		rows, accuracy := run("neighbor", c.batch, c.epochs)
		lazyRows, lazy := run("lazy", c.batch, c.epochs)
		t.Logf("mini-batches of %d: neighbor loads %d rows and reaches %.3f, lazy %d and %.3f", c.batch, rows, accuracy, lazyRows, lazy)
		if 3*lazyRows > 2*rows {
			t.Errorf("mini-batches of %d: lazy loads %d rows, neighbor %d", c.batch, lazyRows, rows)
		}
		if fails := lazy < accuracy-0.04; fails != c.fails {
			t.Errorf("mini-batches of %d: lazy reaches %.3f, neighbor %.3f", c.batch, lazy, accuracy)
		}
	}
}
