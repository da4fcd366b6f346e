//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
)

// shortOnDevice is a short run on a device.
func shortOnDevice() Config {
	c := DefaultConfig()
	c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = small(), 1, 0, 50, "cuda"
	c.Model.Hidden, c.Sampling.Fanouts, c.Execution.SampleOn = 8, []int{4, 4}, onProcessor
	return c
}

// With the slab in a device's memory training has the bits that it has where the device keeps
// the whole table, counts rows as with the slab of the processor, and copies over the bus
// exactly those that were not there.
func TestDeviceSlab(t *testing.T) {
	sums := map[string]bool{}
	for _, c := range []struct {
		name string
		set  func(c *Config)
	}{
		{"match", func(c *Config) { c.Memory.Match = "on" }},
		{"all", func(c *Config) { c.Memory.Match = "off" }},
		{"reorder", func(c *Config) { c.Memory.Match, c.Sampling.Reorder = "on", 3 }},
		{"degree", func(c *Config) { c.Memory.Cache = "degree:10%" }},
		{"hot", func(c *Config) { c.Memory.Cache, c.Memory.Match = "hot:10%", "off" }},
		{"dynamic", func(c *Config) { c.Memory.Cache, c.Memory.Pinned = "dynamic:16KiB", "13MiB" }},
		{"gns", func(c *Config) { c.Sampling.Sampler, c.Memory.Cache = "gns", "gns:5%" }},
		{"ssp", func(c *Config) { c.Memory.Match, c.Training.Sync, c.Execution.Trainers = "on", SSP(2), 2 }},
		{"disk", func(c *Config) {
			c.Memory.Features, c.Execution.Trainers, c.Sampling.MicroBatches = "throttled:1GB/s", 2, 2
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := fakecuda.Use(t)
			config := shortOnDevice()
			c.set(&config)
			config.Execution.Spans = 1000
			r := started(t, config)
			if p := r.Plan(); !p.Load || !p.DeviceSlab || p.RowsPinned <= 0 || p.Pinned < p.RowsPinned || p.Copied {
				t.Fatalf("plan %v", p)
			}
			before := d.Count("to device")
			rows := trained(t, r).Rows
			moved, sum := int64(d.Count("to device")-before), sumOf(t, r)
			if want := (rows.Asked - rows.Shared - rows.Pinned - rows.Cached + rows.Pins) * rows.RowBytes; rows.Bus != want || want == 0 {
				t.Errorf("%d bytes of rows went over the bus; those that were not there are %d: %+v", rows.Bus, want, rows)
			}
			if c.name == "match" && rows.Bus > rows.Asked*rows.RowBytes*3/4 {
				t.Errorf("%d of %d rows went over the bus", rows.Loaded, rows.Asked)
			}
			if moved < rows.Bus {
				t.Errorf("the driver copied %d bytes, rows alone were %d", moved, rows.Bus)
			}
			copied := 0
			for _, s := range r.Spans() {
				var n, bytes int
				if s.Stage == "copy" {
					if _, err := fmt.Sscanf(s.Name, "%d rows, %d bytes", &n, &bytes); err != nil || s.Wall <= 0 || int64(bytes) != int64(n)*rows.RowBytes {
						t.Errorf("span %+v", s)
					}
				}
				copied += n
			}
			if int64(copied)*rows.RowBytes != rows.Bus {
				t.Errorf("spans are of %d rows", copied)
			}
			stopped(t, r)

			if c.name == "ssp" { // whose bits, and order of batches, depend on the time
				return
			}
			if c.name != "reorder" && c.name != "gns" && c.name != "disk" { // of the same batches
				sums[sum] = true
			}
			if c.name == "all" || c.name == "gns" { // there is no slab; when a generation is there depends on the time
				return
			}
			config.Execution.Device = "cpu"
			r = started(t, config)
			host := trained(t, r).Rows
			rows.Bus, rows.Mapped, rows.Peak, host.Peak = 0, 0, 0, 0 // the peak depends on when batches are released
			if host != rows {
				t.Errorf("rows %+v on the device, %+v on the processor", rows, host)
			}
			stopped(t, r)
		})
	}
	fakecuda.Use(t)
	r := started(t, shortOnDevice())
	trained(t, r)
	if sums[sumOf(t, r)] = true; r.Plan().Load || len(sums) != 1 {
		t.Errorf("the bits are others than with the table in the device's memory: %v", sums)
	}
	stopped(t, r)
}

// What fails on the way of rows to the device ends a run with what the driver says.
func TestDeviceSlabLost(t *testing.T) {
	for function, c := range map[string]struct {
		after, code int
		want        string
	}{"cuMemcpyHtoDAsync_v2": {3, 719, "unspecified launch failure"}, "cuEventSynchronize": {2, 700, "an illegal memory access"}, "cuMemHostAlloc": {0, 2, "out of memory"}} {
		t.Run(function, func(t *testing.T) {
			d := fakecuda.Use(t)
			config := shortOnDevice()
			config.Memory.Match = "on"
			r := started(t, config)
			d.Fail(function, c.after, c.code)
			var last error
			for _, err := range r.Train(context.Background()) {
				last = err
			}
			if last == nil || !strings.Contains(last.Error(), c.want) {
				t.Error(last)
			}
			stopped(t, r)
		})
	}
}

// A run that does not fit a device's memory, or what may be pinned, is refused before it
// takes any, with by how much; a table that is too large for it gets a slab.
func TestDeviceFits(t *testing.T) {
	d := fakecuda.Use(t)
	refused := func(c Config, want ...string) {
		t.Helper()
		r := started(t, c)
		before := d.Count("allocations")
		for _, err := range r.Train(context.Background()) {
			if !errors.Is(err, ErrMemory) {
				t.Fatalf("%v", err)
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q has no %q", err, w)
				}
			}
		}
		if d.Count("allocations") != before {
			t.Error("it took memory")
		}
		stopped(t, r)
	}
	c := shortOnDevice()
	c.Memory.Match, c.Memory.Pinned = "on", "8MiB"
	refused(c, "pinned memory are the least for 1 trainers", "more than the 8.0 MiB that --pinned-memory allows")
	d.Set("memory", 9<<20)
	c.Memory.Pinned, c.Model.Hidden = "", 4096
	refused(c, "the plan's peak on the device is ", " more than its 9.0 MiB", "--device cpu")
	c = shortOnDevice()
	r := started(t, c)
	if p := r.Plan(); p.Load || !strings.Contains(p.String(), "the device keeps the whole table") || !strings.Contains(p.String(), "sum, of 9.0 MiB") {
		t.Errorf("plan %v", p)
	}
	stopped(t, r)
	d.Set("memory", len(r.data.ds.NodeFeatures.Data))
	r = started(t, c)
	if p := r.Plan(); !p.DeviceSlab || !strings.Contains(p.String(), "keeps one of no more than half of that") {
		t.Errorf("plan %v", p)
	}
	stopped(t, r)
}
