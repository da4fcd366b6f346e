package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// sparse returns the small graph with features that are almost all zero.
func sparse() *graph.Dataset {
	ds := *small()
	n := ds.Graph.NumNodes()
	x := make([]float32, n*64)
	for v := range n {
		x[v*64+v%64] = 1
	}
	ds.NodeFeatures, ds.Fingerprint = graph.NewFeatures(n, 64, x), ""
	return &ds
}

// What is asked for is done or refused, with the setting's name.
func TestRequestsAreNotDropped(t *testing.T) {
	bare := *small()
	bare.NodeFeatures, bare.Fingerprint = nil, ""
	for name, x := range map[string]struct {
		change func(*Config)
		want   string // of the error
	}{
		"sparse, throttled": {func(c *Config) { c.Data.Dataset, c.Memory.Features = sparse(), "throttled:1GB/s" }, "features: throttled:1GB/s"},
		"sparse, match":     {func(c *Config) { c.Data.Dataset, c.Memory.Match = sparse(), "on" }, "match: on"},
		"sparse, cache":     {func(c *Config) { c.Data.Dataset, c.Memory.Cache = sparse(), "degree:5%" }, "cache: degree:5%"},
		"sparse, loaders":   {func(c *Config) { c.Data.Dataset, c.Memory.Loaders = sparse(), 2 }, "loaders: 2"},
		"full, match":       {func(c *Config) { c.Sampling.Sampler, c.Memory.Match = "full", "on" }, "choose another sampler"},
		"full, throttled":   {func(c *Config) { c.Sampling.Sampler, c.Memory.Features = "full", "throttled:1GB/s" }, "features: throttled"},
		"bare, match":       {func(c *Config) { c.Data.Dataset, c.Memory.Match = &bare, "on" }, "no node features"},
		"bare, cache":       {func(c *Config) { c.Data.Dataset, c.Memory.Cache = &bare, "hot:5%" }, "no node features"},
		"method alone":      {func(c *Config) { c.Sampling.ReorderMethod = "exact" }, "reorder-method: exact"},
		"method, window 1":  {func(c *Config) { c.Sampling.Reorder, c.Sampling.ReorderMethod = 1, "sketch" }, "set reorder"},
		"gns cache":         {func(c *Config) { c.Memory.Cache = "gns:1%" }, "choose --sampler gns"},
	} {
		c := config()
		x.change(&c)
		r, err := Start(context.Background(), c)
		if err == nil {
			r.Stop()
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	for name, change := range map[string]func(*Config){
		"sparse": func(c *Config) {
			c.Data.Dataset, c.Memory.Features, c.Memory.Match, c.Memory.Cache = sparse(), "ram", "off", "none"
		},
		"full":        func(c *Config) { c.Sampling.Sampler = "full" },
		"bare":        func(c *Config) { c.Data.Dataset = &bare },
		"with method": func(c *Config) { c.Sampling.Reorder, c.Sampling.ReorderMethod = 2, "exact" },
	} {
		c := config()
		change(&c)
		r, err := Start(context.Background(), c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r.Stop()
	}
}

// The cache's size is the sampler's, unless sampler-options have one, and counts
// in the identity.
func TestCacheSaysWhatGNSDraws(t *testing.T) {
	c := config()
	c.Sampling.Sampler = "gns"
	n := c.Data.Dataset.Graph.NumNodes()
	for cache, want := range map[string]int{"gns:10%": (n + 9) / 10, "gns:1kB": 1000 / (4 * c.Data.Dataset.NodeFeatures.Cols)} {
		c.Memory.Cache = cache
		r := started(t, c)
		if got := len(r.sampler.Caches().At(0).Nodes); got < want || got > want+1 {
			t.Errorf("%s: %d of %d nodes are drawn, want %d", cache, got, n, want)
		}
		if r.identity.Sampler.CacheFraction != r.sampler.Spec().CacheFraction {
			t.Errorf("%s: the identity has %v", cache, r.identity.Sampler.CacheFraction)
		}
	}
	c.Memory.Cache, c.Sampling.Options = "gns:10%", map[string]string{"cache-fraction": "0.5"}
	if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) {
		if err == nil {
			r.Stop()
		}
		t.Errorf("two sizes: %v", err)
	}
}

// Credit that a window raises is reported when training begins.
func TestRaisedCreditsAreAnEvent(t *testing.T) {
	c := config()
	c.Execution.Samplers, c.Execution.Credits, c.Sampling.Reorder, c.Training.Epochs = 1, 1, 3, 1
	r := started(t, c)
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStart {
			if !strings.Contains(e.Message, "credits in place of 1") {
				t.Errorf("it says %q", e.Message)
			}
			return
		}
	}
}

// A model with several blocks a layer has batches that fit the slab.
func TestMixHopFitsTheSlab(t *testing.T) {
	c := config()
	c.Model.Name, c.Model.Hops, c.Sampling.Fanouts, c.Memory.Match = "mixhop", 2, []int{5, 5, 5, 5}, ""
	c.Sampling.BatchSize, c.Execution.Samplers, c.Execution.Threads, c.Training.Epochs = 8, 1, 1, 1
	want := parametersOf(t, c)
	c.Memory.Match = "on"
	r := started(t, c)
	trained(t, r)
	if sumOf(t, r) != want {
		t.Error("other bits with a slab")
	}
	if s := r.Stats().Rows; s.Batches == 0 || s.Peak > r.plan.SlabLimit {
		t.Errorf("%+v: the plan has %d slots at most", s, r.plan.SlabLimit)
	}
	c.Memory.Match, c.Model.Name, c.Sampling.Fanouts = "on", "sage", []int{5, 5}
	if two := started(t, c); two.plan.PeakBytes >= r.plan.PeakBytes {
		t.Errorf("four blocks take %d bytes, two %d", r.plan.PeakBytes, two.plan.PeakBytes)
	}
}

// The hottest nodes are looked for once, and the search ends with its context.
func TestHottestIsFoundOnce(t *testing.T) {
	c := config()
	c.Memory.Cache = "hot:5%"
	r := started(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.hottest(ctx, r.seeds(), 5); !errors.Is(err, context.Canceled) {
		t.Fatalf("a search that was cancelled: %v", err)
	}
	first, err := r.hottest(context.Background(), r.seeds(), 5)
	if err != nil || len(first) != 5 {
		t.Fatal(first, err)
	}
	again, err := r.hottest(ctx, r.seeds(), 5) // a search would fail
	if err != nil || &again[0] != &first[0] {
		t.Error("it looked again", err)
	}
	if _, err := r.hottest(ctx, r.seeds(), 6); err == nil {
		t.Error("the nodes of another number were taken")
	}
	if _, err := r.hottest(ctx, r.seeds()[1:], 5); err == nil {
		t.Error("the nodes of other seeds were taken")
	}
}

// The plan has as many batches as an epoch of a sampler that chooses their seeds.
func TestPlanCountsClusterBatches(t *testing.T) {
	c := config()
	c.Sampling.Sampler, c.Sampling.Options, c.Training.Epochs = "cluster", map[string]string{"clusters": "7"}, 1
	r := started(t, c)
	steps := 0
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep {
			steps++
		}
	}
	if steps != 7 || r.Plan().Batches != steps {
		t.Errorf("the plan has %d batches, the epoch %d", r.Plan().Batches, steps)
	}
}

// The plan has all threads sample one batch where the sampler can, and says so nowhere else.
func TestPlanSamplesTogether(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"neighbor": func(*Config) {}, "labor": func(c *Config) { c.Sampling.Sampler = "labor" }, "gns": func(c *Config) { c.Sampling.Sampler = "gns" },
		"khop":  func(c *Config) { c.Sampling.Sampler, c.Sampling.Fanouts = "khop", nil },
		"-lazy": func(c *Config) { c.Sampling.Sampler = "lazy" }, "-pinsage": func(c *Config) { c.Sampling.Sampler = "pinsage" },
		"-ladies": func(c *Config) { c.Sampling.Sampler = "ladies" }, "-links": func(c *Config) { c.Model.Task = "link" },
	} {
		c := config()
		c.Sampling.BatchSize, c.Sampling.MicroBatches, c.Execution.Threads, c.Execution.Samplers = 1<<14, 1, 2, 1
		change(&c)
		p := started(t, c).Plan()
		want := !strings.HasPrefix(name, "-")
		if said := strings.Contains(fmt.Sprint(p.Stages), "all threads on one batch"); p.Together != want || said != want {
			t.Errorf("%s: together %v, said %v", name, p.Together, said)
		}
	}
}
