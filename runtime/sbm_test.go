package runtime

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/rng"
)

// sbmMargin is by how much of accuracy every model must beat the features
// alone.
const sbmMargin = 0.10

// TestModelsBeatTheFeatures trains every model on a stochastic block model and
// compares with a model that does not see the graph. GNNACTOR_SBM_NODES chooses
// the number of nodes; the table of docs/benchmarks.md is of 100000:
//
//	GNNACTOR_SBM_NODES=100000 go test -run TestModelsBeatTheFeatures -v ./runtime
func TestModelsBeatTheFeatures(t *testing.T) {
	t.Parallel()
	nodes := 2000
	if s := os.Getenv("GNNACTOR_SBM_NODES"); s != "" {
		var err error
		if nodes, err = strconv.Atoi(s); err != nil {
			t.Fatalf("GNNACTOR_SBM_NODES: %v", err)
		}
	}
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: nodes, Classes: 8, AvgDegree: 12, Homophily: 0.6, FeatureDim: 32, Signal: 0.25, TrainFraction: 0.2, ValidFraction: 0.1, Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	base := DefaultConfig()
	base.Data.Dataset, base.Model.Hidden, base.Sampling.BatchSize, base.Training.EvalEvery = ds, 32, 512, 0
	if nodes <= 10000 {
		base.Sampling.BatchSize, base.Training.Epochs = 64, 6
	}
	r := started(t, base)
	features, err := r.BaselineAccuracy(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes, %d edges; features alone: accuracy %.3f", nodes, ds.Graph.NumEdges(), features)
	for _, m := range []struct {
		name   string
		change func(*Config)
	}{
		{"gcn", func(c *Config) { c.Model.Name = "gcn" }},
		{"sage mean", func(c *Config) {}},
		{"sage max", func(c *Config) { c.Model.Aggregation = "max" }},
		{"sage sum", func(c *Config) { c.Model.Aggregation = "sum" }},
		{"gin", func(c *Config) { c.Model.Name = "gin" }},
		{"mixhop", func(c *Config) { c.Model.Name, c.Sampling.Fanouts = "mixhop", []int{5, 5, 5, 5} }},
		{"gat", func(c *Config) { c.Model.Name, c.Model.Heads = "gat", 4 }},
		{"gatv2", func(c *Config) { c.Model.Name, c.Model.Heads = "gatv2", 4 }},
		{"gat-e", func(c *Config) {
			c.Model.Name, c.Model.Heads, c.Model.EdgeFeatures = "gat", 4, true
			c.Data.Dataset = noisyEdges(ds)
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			c := base
			m.change(&c)
			done := trained(t, started(t, c))
			t.Logf("accuracy %.3f, %+.3f over the features alone, in %.1f s", done.TestAccuracy, done.TestAccuracy-features, done.Wall.Seconds())
			if !(done.TestAccuracy >= features+sbmMargin) {
				t.Errorf("accuracy %.3f, features alone %.3f: less than %v above", done.TestAccuracy, features, sbmMargin)
			}
		})
	}
}

// noisyEdges returns ds with one feature per edge: 1 or 0 for ends of one class
// or of two, plus noise that is uniform in [-1, 1).
func noisyEdges(ds *graph.Dataset) *graph.Dataset {
	with := *ds
	with.Fingerprint = ""
	g, class := ds.Graph, ds.Labels.Class
	x := make([]float32, len(g.Indices))
	for v := range uint32(g.NumNodes()) {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			x[e] = float32(2*rng.New(6).Float64(uint64(e)) - 1)
			if class[g.Indices[e]] == class[v] {
				x[e]++
			}
		}
	}
	with.EdgeFeatures = graph.NewFeatures(len(x), 1, x)
	return &with
}
