package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// withEdgeFeatures returns small with three features per edge: whether it joins
// nodes of one class, and two of noise.
func withEdgeFeatures() *graph.Dataset {
	ds := *small()
	ds.Fingerprint = ""
	g := ds.Graph
	x := make([]float32, 3*len(g.Indices))
	for v := range uint32(g.NumNodes()) {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if ds.Labels.Class[g.Indices[e]] == ds.Labels.Class[v] {
				x[3*e] = 1
			}
			for j := range int64(2) {
				x[3*e+1+j] = float32(rng.New(5, uint64(j)).Float64(uint64(e)))
			}
		}
	}
	ds.EdgeFeatures = graph.NewFeatures(len(g.Indices), 3, x)
	return &ds
}

// Edges that say which neighbours to listen to bring accuracy, sampled or not;
// the bits do not depend on how batches travel.
func TestEdgeFeatures(t *testing.T) {
	t.Parallel()
	c := config()
	c.Data.Dataset, c.Model.Name, c.Model.Heads, c.Training.Epochs = withEdgeFeatures(), "gat", 2, 20
	without := trained(t, started(t, c)).TestAccuracy
	c.Model.EdgeFeatures = true
	r := started(t, c)
	with := trained(t, r).TestAccuracy
	if !(with > without+0.05) {
		t.Errorf("accuracy %v with edge features, %v without", with, without)
	}
	c.Execution.Samplers = 2
	again := started(t, c)
	trained(t, again)
	if sumOf(t, again) != sumOf(t, r) {
		t.Error("2 samplers: other bits")
	}
	c.Sampling.Sampler, c.Training.Epochs = "full", 60
	if whole := trained(t, started(t, c)).TestAccuracy; !(whole > without+0.05) {
		t.Errorf("accuracy %v on the whole graph, %v without edge features", whole, without)
	}
}

func TestEdgeFeaturesMissing(t *testing.T) {
	c := config()
	c.Model.Name, c.Model.EdgeFeatures = "gat", true
	if err := run(context.Background(), started(t, c), nil); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "no edge features") {
		t.Errorf("data without edge features: %v", err)
	}
	c.Data.Dataset, c.Model.Name = withEdgeFeatures(), "gcn"
	if err := run(context.Background(), started(t, c), nil); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "does not read edge features") {
		t.Errorf("a model that reads none: %v", err)
	}
}

// A model's options are settings, all train, and predictions are those of the
// whole graph.
func TestModelOptions(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"decoder":    func(c *Config) { c.Model.DecoderLayers = 2 },
		"block norm": func(c *Config) { c.Model.Name, c.Model.GCNNorm, c.Model.Dropout = "gcn", "block", 0 },
		"eps": func(c *Config) {
			c.Model.Name, c.Model.TrainEps, c.Model.ScaleSums, c.Model.Norm = "gin", true, true, "batch"
		},
		"weighted":         func(c *Config) { c.Model.Name, c.Model.WeightAttention, c.Sampling.Sampler = "gatv2", true, "labor" },
		"leaky batch norm": func(c *Config) { c.Model.Activation, c.Model.Norm = "leaky-relu", "batch" },
		"elu":              func(c *Config) { c.Model.Name, c.Model.Activation, c.Model.Residual = "gat", "elu", true },
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Training.Epochs = 12
			change(&c)
			r := started(t, c)
			done := trained(t, r)
			if !(done.TestAccuracy > 0.5) { // of 4 classes
				t.Errorf("accuracy %v", done.TestAccuracy)
			}
			p, err := r.Predict(context.Background(), r.Dataset().Test)
			if err != nil {
				t.Fatal(err)
			}
			right := 0
			for i, v := range r.Dataset().Test {
				if p[i].Class == int(r.Dataset().Labels.Class[v]) {
					right++
				}
			}
			if got := float64(right) / float64(len(p)); got != done.TestAccuracy {
				t.Errorf("predicted to %v, evaluated to %v", got, done.TestAccuracy)
			}
		})
	}
}
