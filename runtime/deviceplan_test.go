//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
)

// What a run takes of a device's memory, and pins of the host's, is no more than its plan says beforehand, whatever trains: with
// evaluations, which infer while parameters and gradients are there, and with embeddings of all nodes.
func TestDevicePlanHolds(t *testing.T) {
	all := map[string]func(c *Config){
		"sage":          func(*Config) {},
		"gin":           func(c *Config) { c.Model.Name = "gin" },
		"links":         func(c *Config) { c.Model.Task, c.Sampling.BatchSize = "link", 128 },
		"whole graph":   func(c *Config) { c.Sampling.Sampler, c.Sampling.Fanouts = "full", nil },
		"match":         func(c *Config) { c.Memory.Match, c.Sampling.Reorder = "on", 3 },
		"limited":       func(c *Config) { c.Memory.Match, c.Memory.Pinned = "on", "18MiB" },
		"gns":           func(c *Config) { c.Sampling.Sampler, c.Memory.Cache, c.Execution.SampleOn = "gns", "gns:5%", onDevice },
		"sampled there": func(c *Config) { c.Execution.SampleOn = onDevice },
		"two trainers":  func(c *Config) { c.Sampling.MicroBatches, c.Execution.Trainers = 2, 2 },
		"late":          func(c *Config) { c.Training.Sync, c.Execution.Trainers = SSP(2), 2 },
		"cublas":        func(c *Config) { c.Execution.BLAS = "cublas" },
		"wide heads":    func(c *Config) { c.Model.Name, c.Model.Heads, c.Model.Hidden, c.Sampling.BatchSize = "gat", 8, 64, 300 },
		"wide":          func(c *Config) { c.Model.Hidden, c.Sampling.BatchSize = 256, 300 },
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			d := fakecuda.Use(t)
			c := shortOnDevice()
			c.Training.EvalEvery, c.Training.Epochs = 1, 2
			all[name](&c)
			r := started(t, c)
			p := r.Plan()
			trained(t, r)
			if c.Model.Task != "link" {
				if _, err := r.Embed(context.Background(), nil); err != nil {
					t.Error(err)
				}
			}
			if peak := r.Stats().DevicePeak; peak > p.DevicePeak || peak == 0 {
				t.Errorf("the device's memory: %d bytes were taken, and the plan has %d: %+v", peak, p.DevicePeak, p.DeviceMemory)
			}
			if pinned := int64(d.Count("pinned at most")); pinned > p.Pinned || pinned == 0 {
				t.Errorf("pinned: %d bytes, and the plan has %d", pinned, p.Pinned)
			}
			stopped(t, r)
		})
	}
}
