package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/sampling/links"
)

func linkConfig() Config {
	c := config()
	c.Model.Task, c.Sampling.Negatives, c.Sampling.MicroBatches, c.Sampling.BatchSize = "link", 2, 3, 200
	return c
}

// Metamorphic: the same bits for any number of samplers, trainers and credits,
// rows through a slab, an interrupted run, and a saved model.
func TestLinkBits(t *testing.T) {
	t.Parallel()
	for _, name := range links.Samplers() {
		c := linkConfig()
		c.Sampling.Sampler, c.Training.Epochs = name, 2
		if name == "labor" {
			c.Model.LinkDecoder = "mlp"
		}
		first := started(t, c)
		done := trained(t, first)
		want := sumOf(t, first)
		same := func(what string, r *Runtime) {
			t.Helper()
			if got := sumOf(t, r); got != want {
				t.Errorf("%s: %s: other bits", name, what)
			}
		}
		v := c
		v.Execution.Trainers, v.Execution.Samplers, v.Execution.Threads, v.Execution.Credits = 3, 3, 2, 4
		r := started(t, v)
		trained(t, r)
		same("3 trainers and samplers", r)
		v.Memory.Match, v.Execution.Trainers = "on", 2
		r = started(t, v)
		trained(t, r)
		same("through a slab", r)
		v.Checkpoint.Dir, v.Checkpoint.Resume = t.TempDir(), true
		for e, err := range started(t, v).Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStep && e.Applied == 3 {
				break
			}
		}
		r = started(t, v)
		trained(t, r)
		same("interrupted and resumed", r)

		file := filepath.Join(t.TempDir(), "m.safetensors")
		if err := first.Save(context.Background(), file); err != nil {
			t.Fatal(err)
		}
		if saved, err := OpenModel(context.Background(), file); err != nil || saved.about.Task != "link" || !saved.Checked() {
			t.Errorf("the file says %+v, %v", saved, err)
		}
		c.Model.Params, c.Sampling.Sampler, c.Sampling.Fanouts = file, "khop", nil
		m, err := started(t, c).EvaluateLinks(context.Background(), TestLinks)
		if err != nil {
			t.Fatal(err)
		}
		if m.AUC != done.TestAccuracy || m.Count != first.NumLinks(TestLinks) {
			t.Errorf("%s: evaluated to %v, trained to %v", name, m.AUC, done.TestAccuracy)
		}
		other := linkConfig()
		other.Sampling.Sampler, other.Training.Epochs, other.Sampling.Negatives, other.Model.LinkDecoder = name, 2, 3, c.Model.LinkDecoder
		r = started(t, other)
		trained(t, r)
		if sumOf(t, r) == want {
			t.Errorf("%s: the number of negatives changed nothing", name)
		}
	}
}

// On the built-in graph, a block model, the model tells links by what neighbours
// say better than chance and than a model of the same width without edges.
func TestLinksAreLearnt(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Model.Task, c.Training.Epochs, c.Model.Dropout, c.Training.WeightDecay, c.Training.EvalEvery = "link", 4, 0, 0, 0
	test := func(c Config) LinkMetrics {
		r := started(t, c)
		untrained, err := r.EvaluateLinks(context.Background(), TestLinks)
		if err != nil {
			t.Fatal(err)
		}
		trained(t, r)
		m, err := r.EvaluateLinks(context.Background(), TestLinks)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("untrained %+v, trained %+v", untrained, m)
		return m
	}
	with := test(c)
	decoded := c
	decoded.Model.LinkDecoder = "mlp"
	if m := test(decoded); m.AUC < 0.7 || m.Hits10 < 0.3 {
		t.Errorf("test links with a decoder: %+v", m)
	}
	c.Data.Dataset = generate.Builtin()
	c.Model.Layer = func(_, in, out int) compute.Layer[float32] { return ownFeatures{in, out} }
	c.Model.Name = "own features"
	alone := test(c)
	if with.AUC < 0.75 || with.AUC < alone.AUC+0.08 || with.MRR < alone.MRR+0.02 || with.Hits10 < alone.Hits10+0.1 {
		t.Errorf("test links: %+v, by the features alone %+v", with, alone)
	}
}

// ownFeatures is a linear layer, which hears nothing from neighbours.
type ownFeatures struct{ in, out int }

func (l ownFeatures) Params() []compute.Param {
	return []compute.Param{
		{Name: "bias", Shape: []int{l.out}},
		{Name: "weight", Shape: []int{l.out, l.in}, Init: compute.Glorot},
	}
}

func (l ownFeatures) Transform(_ *compute.Context[float32], x *compute.Value[float32]) []*compute.Value[float32] {
	return []*compute.Value[float32]{x}
}

func (l ownFeatures) Gather(_ *compute.Context[float32], _ *compute.Value[float32], h []*compute.Value[float32]) compute.Message[float32] {
	return compute.Message[float32]{Value: h[0], Reduce: cpu.Mean}
}

func (l ownFeatures) Apply(c *compute.Context[float32], x, _ *compute.Value[float32], act cpu.Activation) *compute.Value[float32] {
	return c.Linear(x, c.Param(1), c.Param(0), act)
}

// What link prediction does not do, it says.
func TestLinksRefuse(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"sampler: frontier does not start":   func(c *Config) { c.Sampling.Sampler = "frontier" },
		"edge-features: are not read":        func(c *Config) { c.Model.EdgeFeatures = true },
		"temporal does not go with":          func(c *Config) { c.Sampling.Options = map[string]string{"temporal": "true"} },
		"negatives: -1":                      func(c *Config) { c.Sampling.Negatives = -1 },
		`task: "edge" is not one of`:         func(c *Config) { c.Model.Task = "edge" },
		"negatives: are drawn for task link": func(c *Config) { c.Model.Task = "node" },
	} {
		c := linkConfig()
		change(&c)
		if _, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	empty := linkConfig()
	ds := *small()
	ds.Graph = &graph.Graph{Indptr: make([]int64, ds.Graph.NumNodes()+1), Indices: []uint32{}}
	empty.Data.Dataset = &ds
	if _, err := Start(context.Background(), empty); !errors.Is(err, ErrConfig) {
		t.Errorf("no edges: %v", err)
	}
	ctx := context.Background()
	r := started(t, linkConfig())
	_, predicted := r.Predict(ctx, []uint32{1})
	_, evaluated := r.Evaluate(ctx, []uint32{1})
	_, based := r.BaselineAccuracy(ctx)
	_, other := started(t, config()).EvaluateLinks(ctx, TestLinks)
	for i, err := range []error{predicted, evaluated, based, other} {
		if !errors.Is(err, ErrTask) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for _, err := range r.Batches(ctx, BatchesOptions{}) {
		if !errors.Is(err, ErrTask) {
			t.Errorf("batches: %v", err)
		}
	}
	if e, err := r.Embed(ctx, []uint32{3, 1}); err != nil || e.Rows != 2 || e.Cols != 8 {
		t.Errorf("embeddings: %+v, %v", e, err)
	}
}
