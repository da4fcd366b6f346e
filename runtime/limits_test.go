package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// A run that is made to fit its memory has the bits of one that is not; one that
// cannot be made to fit is refused, with both figures, before it trains, and can
// still be asked for predictions.
func TestMemoryLimit(t *testing.T) {
	c := config()
	c.Execution.Threads, c.Memory.Limit = 4, "none"
	free := started(t, c)
	trained(t, free)
	if p := free.Plan(); p.Limit != 0 || p.Fitted != "" {
		t.Errorf("a limit of %d where there is none", p.Limit)
	}
	c.Memory.Limit = fmt.Sprint(free.Plan().PeakBytes - 1)
	fits := started(t, c)
	var said string
	for e, err := range fits.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStart {
			said = e.Message
		}
	}
	if p := fits.Plan(); p.PeakBytes >= free.Plan().PeakBytes || !strings.Contains(said, "to fit ") || p.LimitFrom != "memory-limit" {
		t.Errorf("a peak of %d, and %q", p.PeakBytes, said)
	}
	if sumOf(t, fits) != sumOf(t, free) {
		t.Error("other bits")
	}
	c.Memory.Limit = "150KiB"
	small := started(t, c)
	for _, err := range small.Train(context.Background()) {
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "memory-limit allows 0.1 MiB") {
			t.Errorf("a limit that nothing fits: %v", err)
		}
	}
	if _, err := small.Predict(context.Background(), []uint32{0}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"parameters take":          func(c *Config) { c.Model.Hidden = 5000 },
		"the copy of the features": func(c *Config) { c.Data.NormalizeFeatures = true; c.Memory.Limit = "100" },
	} {
		c := c
		change(&c)
		r, err := Start(context.Background(), c)
		if err == nil {
			r.Stop()
		}
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Counts have upper bounds, and each that is beyond is named.
func TestCountsAreBounded(t *testing.T) {
	for name, set := range map[string]func(*Config, int){
		"threads": func(c *Config, n int) { c.Execution.Threads = n }, "samplers": func(c *Config, n int) { c.Execution.Samplers = n },
		"trainers": func(c *Config, n int) { c.Execution.Trainers = n }, "credits": func(c *Config, n int) { c.Execution.Credits = n },
		"loaders": func(c *Config, n int) { c.Memory.Loaders = n }, "eval-chunk": func(c *Config, n int) { c.Memory.EvalChunk = n },
		"epochs": func(c *Config, n int) { c.Training.Epochs = n }, "batch-size": func(c *Config, n int) { c.Sampling.BatchSize = n },
		"micro-batches": func(c *Config, n int) { c.Sampling.BatchSize, c.Sampling.MicroBatches = math.MaxUint32, n }, "reorder": func(c *Config, n int) { c.Sampling.Reorder = n },
		"layers": func(c *Config, n int) { c.Model.Layers = n }, "hidden": func(c *Config, n int) { c.Model.Hidden = n }, "hops": func(c *Config, n int) { c.Model.Hops = n },
		"heads": func(c *Config, n int) { c.Model.Heads = n }, "decoder-layers": func(c *Config, n int) { c.Model.DecoderLayers = n },
		"negatives": func(c *Config, n int) { c.Model.Task, c.Sampling.Negatives = "link", n },
	} {
		for _, n := range []int{math.MaxInt, 1 << 33, -1} {
			c := config()
			set(&c, n)
			if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name+": "+fmt.Sprint(n)) {
				t.Errorf("%s %d: %v", name, n, err)
			}
		}
	}
	for _, limit := range []string{"x", "-1", "0", "NaN", "1e300", "8 GiB of it"} {
		c := config()
		c.Memory.Limit = limit
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "memory-limit") {
			t.Errorf("memory-limit %q: %v", limit, err)
		}
	}
}
