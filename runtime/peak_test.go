package runtime

import (
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/footprint"
	"github.com/gnnactor/gnnactor/sampling"
)

// term returns a term of the plan's peak.
func term(t *testing.T, r *Runtime, what string) int64 {
	t.Helper()
	for _, m := range r.plan.Memory {
		if strings.HasPrefix(m.What, what) {
			return m.Bytes
		}
	}
	t.Fatalf("the plan has no term %q", what)
	return 0
}

// What a trainer holds for its batches is no more than the plan's peak says, but for a sixteenth by which batches may be larger than those
// that were sampled and 128 KiB of small things, and at least half of it, for every model.
func TestPeakCountsActivations(t *testing.T) {
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 17, Edges: 1 << 21, FeatureDim: 64, Classes: 17, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(*Config){
		"sage": func(*Config) {}, "sage-max": func(c *Config) { c.Model.Aggregation = "max" },
		"gcn": func(c *Config) { c.Model.Name = "gcn" }, "gin": func(c *Config) { c.Model.Name = "gin" },
		"gat": func(c *Config) { c.Model.Name, c.Model.Heads = "gat", 4 }, "gatv2": func(c *Config) { c.Model.Name, c.Model.Heads = "gatv2", 4 },
		"mixhop": func(c *Config) { c.Model.Name, c.Model.Hops = "mixhop", 2 },
		"narrow": func(c *Config) { c.Model.Hidden, c.Sampling.Fanouts = 4, []int{15, 15} },
		"jk":     func(c *Config) { c.Model.JumpingKnowledge = "cat" }, "batchnorm": func(c *Config) { c.Model.Norm = "batch" },
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			c.Data.Dataset, c.Model.Layers, c.Sampling.Fanouts, c.Sampling.BatchSize, c.Model.Hidden, c.Execution.Threads = ds, 2, []int{5, 5}, 256, 32, 2
			set(&c)
			if n := c.Blocks(); n > len(c.Sampling.Fanouts) {
				c.Sampling.Fanouts = []int{3, 3, 3, 3}[:n]
			}
			r, err := Start(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Stop()
			seen := footprint.Seen{}
			exec := cpu.NewExec(r.pool, r.set)
			for _, x := range []any{r.model, r.pool, exec, ds} {
				seen.Bytes(x)
			}
			e := r.model.NewEngine(exec)
			e.Reserve(r.reserve)
			w := &worker{engine: e, ds: ds}
			u := newUpdater(r, r.params)
			grad := make([]float32, len(u.Params()))
			s, x := r.newSampler(), new(sampling.Batch)
			order := sampling.Order(ds.Train, c.Training.Seed, 0)
			for i := range 4 {
				x.Reset()
				x.ID = sampling.ID{Phase: "train", Batch: i, Of: 1}
				if err := s.Sample(x, x.ID.Key(c.Training.Seed), sampling.Cut(order, c.Sampling.BatchSize, 1, i, 0)); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Gradient(grad, u.Params(), x, actors.Rows{}, actors.Key(c.Training.Seed, x.ID)); err != nil {
					t.Fatal(err)
				}
			}
			got, planned := seen.Bytes(e), term(t, r, "activations")
			if got == 0 || got > planned+planned/16+1<<17 || planned > 2*got {
				t.Errorf("an engine holds %d bytes, and the peak counts %d", got, planned)
			}
		})
	}
}

// The copy that the model makes of sparse features is part of the peak.
func TestPeakCountsSparseFeatures(t *testing.T) {
	ds := *generate.Builtin()
	const cols = 1024
	n := ds.Graph.NumNodes()
	x := make([]float32, n*cols)
	nonzero := int64(0)
	for i := 0; i < len(x); i += 97 {
		x[i] = 1
		nonzero++
	}
	ds.NodeFeatures = graph.NewFeatures(n, cols, x)
	c := DefaultConfig()
	c.Data.Dataset = &ds
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	if !r.model.SparseInput() {
		t.Fatal("one value of 97 is not zero, and the model does not hold them")
	}
	if got := term(t, r, "node features: the values that are not zero"); got < 8*nonzero {
		t.Errorf("%d bytes for %d values and their columns", got, nonzero)
	}
}
