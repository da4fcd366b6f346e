//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
)

// losses trains and returns the loss of every epoch.
func lossesOf(t *testing.T, r *Runtime) (all []float64) {
	t.Helper()
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventEpoch {
			all = append(all, e.Loss)
		}
	}
	return all
}

// stopped stops a run, so that what it had of a device is given back.
func stopped(t *testing.T, r *Runtime) {
	t.Helper()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// On Cora the first 20 epochs of a model on a device have the processor's losses, but for rounding.
func TestCoraOnDevice(t *testing.T) {
	data := filepath.Join("..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("Cora is not beside this repository")
	}
	fakecuda.Use(t)
	const epochs = 20
	for _, model := range []string{"gcn", "sage", "gat"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Data.Path, c.Model.Name, c.Model.Hidden, c.Training.Epochs, c.Training.EvalEvery = data, model, 16, epochs, 0
			c.Sampling.Fanouts, c.Sampling.BatchSize, c.Training.Seed = []int{3, 3}, 140, 7
			var runs [2][]float64
			for i, device := range []string{"cpu", "cuda:0"} {
				c.Execution.Device = device
				r := started(t, c)
				runs[i] = lossesOf(t, r)
				stopped(t, r)
			}
			if len(runs[0]) != epochs || len(runs[1]) != epochs || runs[0][epochs-1] > runs[0][0]*0.9 {
				t.Fatalf("losses %v and %v", runs[0], runs[1])
			}
			for e, want := range runs[0] {
				if !(math.Abs(runs[1][e]-want) <= 1e-3*want) {
					t.Errorf("epoch %d: loss %v on the device, %v on the processor", e, runs[1][e], want)
				}
			}
		})
	}
}

// A run on a device has bits of its own, which its identity names: two are the same, a
// checkpoint of it goes on elsewhere only if that is allowed.
func TestDeviceRuns(t *testing.T) {
	d := fakecuda.Use(t)
	c := DefaultConfig()
	c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = small(), 2, 0, 64, "cuda:0"
	if !fakecuda.Real() {
		d.Set("devices", 2)
		c.Execution.Device = "cuda:1"
	}
	c.Checkpoint.Dir = t.TempDir()
	r := started(t, c)
	if k := r.identity.Kernels; !strings.HasPrefix(k, "cuda:sm_") || !fakecuda.Real() && k != "cuda:sm_80" || !strings.Contains(r.plan.String(), k+" kernels") {
		t.Errorf("identity %+v, plan %v", r.identity, r.plan)
	}
	trained(t, r)
	want := sumOf(t, r)
	stopped(t, r)

	again := c
	again.Checkpoint.Dir, again.Execution.Device, again.Sampling.MicroBatches = "", "cuda", 1
	r = started(t, again)
	trained(t, r)
	if sumOf(t, r) != want {
		t.Error("a second run has other bits")
	}
	stopped(t, r)

	c.Training.Epochs, c.Checkpoint.Resume, c.Execution.Device = 3, true, "cpu"
	r = started(t, c)
	for _, err := range r.Train(context.Background()) {
		if err != nil && !errors.Is(err, ErrIdentity) {
			t.Fatal(err)
		} else if err == nil {
			t.Fatal("the processor went on with a device's checkpoint")
		}
	}
	stopped(t, r)
	c.Checkpoint.AllowOtherKernels = true
	r = started(t, c)
	trained(t, r)
	stopped(t, r)
	c.Training.Epochs, c.Execution.Device = 4, "auto"
	r = started(t, c)
	trained(t, r)
	if n, err := r.Predict(context.Background(), []uint32{1, 2}); err != nil || len(n) != 2 {
		t.Error(n, err)
	}
	stopped(t, r)
}

// Every model is learnt on a device as on the processor, but for rounding.
func TestDeviceTrainsAllModels(t *testing.T) {
	fakecuda.Use(t)
	for _, model := range Models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			c := shortOnDevice()
			c.Model.Name, c.Training.Epochs = model, 2
			c.Sampling.Fanouts = slices.Repeat([]int{4}, c.Blocks())
			var runs [2][]float64
			for i, device := range []string{"cpu", "cuda"} {
				c.Execution.Device = device
				r := started(t, c)
				runs[i] = lossesOf(t, r)
				stopped(t, r)
			}
			for e, want := range runs[0] {
				if got := runs[1][e]; !(math.Abs(got-want) <= 1e-3*want) {
					t.Errorf("epoch %d: loss %v on the device, %v on the processor", e, got, want)
				}
			}
		})
	}
}

// With --sync ssp, links, and GNS with its slab a device trains, too.
func TestDeviceTrainsAll(t *testing.T) {
	fakecuda.Use(t)
	for name, set := range map[string]func(c *Config){
		"ssp": func(c *Config) { c.Training.Sync, c.Execution.Threads = SSP(2), 2 },
		"links": func(c *Config) {
			c.Model.Task, c.Model.LinkDecoder, c.Sampling.BatchSize = "link", "mlp", 256
		},
		"gns":   func(c *Config) { c.Sampling.Sampler, c.Memory.Cache, c.Memory.Match = "gns", "gns:5%", "on" },
		"micro": func(c *Config) { c.Sampling.MicroBatches, c.Execution.Trainers = 2, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = small(), 1, 0, 64, "cuda"
			c.Model.Hidden, c.Sampling.Fanouts = 16, []int{4, 4}
			set(&c)
			r := started(t, c)
			trained(t, r)
			stopped(t, r)
		})
	}
}

// Two devices' worth of trainers add up to the bits of one that computes both
// micro-batches.
func TestTrainersOnDevice(t *testing.T) {
	fakecuda.Use(t)
	var sums []string
	for trainers := 1; trainers <= 2; trainers++ {
		c := DefaultConfig()
		c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = small(), 1, 0, 128, "cuda"
		c.Sampling.MicroBatches, c.Execution.Trainers = 2, trainers
		r := started(t, c)
		trained(t, r)
		sums = append(sums, sumOf(t, r))
		stopped(t, r)
	}
	if len(slices.Compact(sums)) != 1 {
		t.Errorf("parameters %v", sums)
	}
}

// What crosses the bus in a step is the batch and, back, its loss: neither parameters nor
// gradients nor the optimiser's state, whatever the optimiser. Evaluations and checkpoints read the
// parameters: a run that goes on on the processor from there has what the device had.
func TestStepStaysOnDevice(t *testing.T) {
	for name, set := range map[string]func(c *Config){
		"adam":            func(*Config) {},
		"momentum":        func(c *Config) { c.Training.Optimizer, c.Training.Momentum = "sgd", 0.9 },
		"adamw and norms": func(c *Config) { c.Training.Optimizer, c.Training.WeightDecay, c.Model.Norm = "adamw", 0.1, "batch" },
	} {
		t.Run(name, func(t *testing.T) {
			d := fakecuda.Use(t)
			c := DefaultConfig()
			c.Data.Dataset, c.Training.EvalEvery, c.Sampling.BatchSize, c.Sampling.MicroBatches, c.Execution.Device = small(), 0, 100, 2, "cuda"
			c.Model.Hidden, c.Sampling.Fanouts = 16, []int{4, 4}
			set(&c)
			var toHost [2]int
			var micro int
			for i := range toHost {
				c.Training.Epochs = i + 1
				r := started(t, c)
				before := d.Count("to host")
				trained(t, r)
				toHost[i], micro = d.Count("to host")-before, r.plan.Batches*c.Sampling.MicroBatches
				stopped(t, r)
			}
			const loss = 40 // bytes: with four counts
			if got := toHost[1] - toHost[0]; got != micro*loss {
				t.Errorf("an epoch of %d micro-batches brought %d bytes to the host, want %d", micro, got, micro*loss)
			}
		})
	}
}

// Two devices are two trainers under one tree of gradients, with the bits of one device that has
// both micro-batches; a device named twice is refused, and one that there is not.
func TestTwoDevices(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("of the emulated driver there are two")
	}
	fakecuda.Use(t).Set("devices", 2)
	for name, set := range map[string]func(c *Config){
		"sage":       func(*Config) {},
		"batch norm": func(c *Config) { c.Model.Norm, c.Training.ClipNorm, c.Sampling.MicroBatches = "batch", 0.5, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sums []string
			for _, devices := range []string{"cuda:0", "cuda:0,cuda:1"} {
				c := DefaultConfig()
				c.Data.Dataset, c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Sampling.MicroBatches, c.Execution.Device = small(), 2, 1, 64, 2, devices
				c.Model.Hidden, c.Sampling.Fanouts = 16, []int{4, 4}
				set(&c)
				r := started(t, c)
				if n := 1 + strings.Count(devices, ","); r.plan.Trainers != n {
					t.Errorf("%s: %d trainers", devices, r.plan.Trainers)
				}
				trained(t, r)
				for _, other := range r.others {
					if there, back := other.Moved(); there == 0 || back == 0 {
						t.Errorf("the second device had %d bytes and gave %d", there, back)
					}
				}
				sums = append(sums, sumOf(t, r))
				stopped(t, r)
			}
			if sums[0] != sums[1] {
				t.Errorf("parameters %v", sums)
			}
		})
	}
	for names, want := range map[string]string{"cuda:0,cuda:2": "no device cuda:2", "cuda:1,cuda:1": "twice", "cuda,cuda:0": "twice", "cuda:0,cpu": "each must be"} {
		c := DefaultConfig()
		c.Execution.Device = names
		if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", names, r, err)
		}
	}
}

// Every loss of classes, of several labels a node and of numbers is learnt on a device as on the processor, but for rounding, and
// each of another way than the cross-entropy.
func TestDeviceLosses(t *testing.T) {
	fakecuda.Use(t)
	several := labelled()
	all := map[string]func(c *Config){
		"classes":                   func(*Config) {},
		"classes, balanced":         func(c *Config) { c.Training.ClassWeights = "0.5,1,2,3" },
		"classes, smoothed":         func(c *Config) { c.Training.LabelSmoothing, c.Training.ClassWeights = 0.2, "1=2" },
		"classes, focal":            func(c *Config) { c.Training.Loss, c.Training.ClassWeights = "focal", "1=2" },
		"several labels":            func(c *Config) { c.Data.Dataset = several },
		"several labels, weighted":  func(c *Config) { c.Data.Dataset, c.Training.ClassWeights = several, "balanced" },
		"several labels, smoothed":  func(c *Config) { c.Data.Dataset, c.Training.LabelSmoothing = several, 0.2 },
		"several labels, focal 0.5": func(c *Config) { c.Data.Dataset, c.Training.Loss, c.Training.FocalGamma = several, "focal", 0.5 },
		"numbers":                   func(c *Config) { c.Data.Dataset = priced() },
		"numbers, l1":               func(c *Config) { c.Data.Dataset, c.Training.Loss = priced(), "l1" },
		"numbers, huber":            func(c *Config) { c.Data.Dataset, c.Training.Loss = priced(), "huber" },
	}
	var seen sync.Map // by the second epoch's loss
	for name, set := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs [2][]float64
			for i, device := range []string{"cpu", "cuda"} {
				c := config()
				c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = 2, 1, 150, device
				set(&c)
				r := started(t, c)
				runs[i] = lossesOf(t, r)
				stopped(t, r)
			}
			if len(runs[1]) != 2 {
				t.Fatalf("losses %v", runs)
			}
			for e, want := range runs[0] {
				if got := runs[1][e]; !(math.Abs(got-want) <= 1e-4*want) {
					t.Errorf("epoch %d: loss %v on the device, %v on the processor", e, got, want)
				}
			}
			if other, ok := seen.LoadOrStore(runs[0][1], name); ok {
				t.Errorf("it is the same as %v", other)
			}
		})
	}
}

// Without a driver cuda is an error that says how to go on, and auto the processor.
func TestNoDevice(t *testing.T) {
	t.Setenv(cuda.LibraryVariable, filepath.Join(t.TempDir(), "libcuda.so.1"))
	c := DefaultConfig()
	c.Training.Epochs, c.Training.EvalEvery = 1, 0
	c.Execution.Device = "cuda"
	if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !errors.Is(err, devices.ErrNone) || !strings.Contains(err.Error(), "there is no driver") || !strings.Contains(err.Error(), "--device cpu") {
		t.Errorf("%v, %v", r, err)
	}
	c.Execution.Device = "auto"
	r := started(t, c)
	said := false
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		said = said || e.Kind == EventStart && strings.Contains(e.Message, "the processor computes: cuda: there is no driver")
	}
	if !said || strings.Contains(r.identity.Kernels, "cuda") {
		t.Errorf("auto is %v, said %v", r.identity.Kernels, said)
	}
	c.Model.Precision = "tf32" // which the processor lacks
	if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "no products in tf32") || !strings.Contains(err.Error(), "there is no driver") {
		t.Errorf("tf32: %v, %v", r, err)
	}
	c.Model.Precision = ""
	for _, bad := range []string{"gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:1"} {
		c.Execution.Device = bad
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "device: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A device that fails ends a run with what the driver says, and nothing hangs or is left.
func TestDeviceLost(t *testing.T) {
	d := fakecuda.Use(t)
	c := DefaultConfig()
	c.Training.Epochs, c.Training.EvalEvery, c.Sampling.BatchSize, c.Execution.Device = 2, 0, 64, "cuda"
	r := started(t, c)
	d.Fail("cuLaunchKernel", 400, 719)
	var last error
	for _, err := range r.Train(context.Background()) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "unspecified launch failure") || !strings.Contains(last.Error(), "train/e") {
		t.Errorf("%v", last)
	}
	stopped(t, r)
}

// With products on tensor cores a run learns what it learns in float32, with other bits, which are the same
// each time and which its identity names. The processor has none in TF32, cuBLAS none in bfloat16.
func TestDevicePrecision(t *testing.T) {
	fakecuda.Use(t)
	t.Setenv(cpu.SetVariable, "avx2") // which has no bfloat16
	c := shortOnDevice()
	c.Training.Epochs = 2
	losses := map[string][]float64{}
	for _, precision := range []string{"float32", "tf32", "bf16", "tf32"} {
		c.Model.Precision = precision
		r := started(t, c)
		got := lossesOf(t, r)
		if id := r.identity; id.Precision != precision || id.Kernels != "cuda:sm_80" && !fakecuda.Real() {
			t.Errorf("identity has %q and %q", id.Precision, id.Kernels)
		}
		if said := strings.Contains(r.Plan().String(), "; products of factors in "+precision+", on tensor cores"); said != (precision != "float32") {
			t.Errorf("%s: plan\n%v", precision, r.Plan())
		}
		stopped(t, r)
		if before := losses[precision]; before != nil && !slices.Equal(got, before) {
			t.Errorf("%s: losses %v, and %v before", precision, got, before)
		}
		losses[precision] = got
		for i, want := range losses["float32"] {
			if d := math.Abs(got[i] - want); d > 0.01*want || d == 0 && precision != "float32" {
				t.Errorf("%s: losses %v, and %v in float32", precision, got, losses["float32"])
			}
		}
	}
	refused := func(words string) {
		t.Helper()
		if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, %v", r, err)
		}
	}
	c.Execution.Device = "cpu"
	refused("precision: the processor has no products in tf32: use --device cuda, or --precision float32")
	c.Execution.Device, c.Execution.BLAS, c.Model.Precision = "cuda", "cublas", "bf16"
	refused("cublas computes in float32 or tf32, not in bf16: take --blas own, or another --precision")
}

// With cuBLAS a run learns what it learns with the device's own products, under a name of its own, and the plan
// counts what cuBLAS works with; without a device, or the library, it is refused.
func TestDeviceCuBLAS(t *testing.T) {
	fakecuda.Use(t)
	c := shortOnDevice()
	c.Training.Epochs = 2
	own := started(t, c)
	want, kernels := lossesOf(t, own), own.Plan().Kernels
	peak := own.Plan().DevicePeak
	stopped(t, own)
	c.Execution.BLAS = "cublas"
	r := started(t, c)
	p := r.Plan()
	more := p.DevicePeak - peak // two workspaces
	if version, ok := strings.CutPrefix(p.Kernels, kernels+"+cublas:"); !ok || !fakecuda.Real() && version != "12.6.4:4" || more != 2*4<<20 && (!fakecuda.Real() || more != 2*32<<20) {
		t.Errorf("plan %v; without cuBLAS the peak is %d", p, peak)
	}
	got := lossesOf(t, r)
	for i, l := range got {
		if d := math.Abs(l - want[i]); d > 1e-4 || len(got) != 2 {
			t.Errorf("losses %v, and %v by own products", got, want)
		}
	}
	stopped(t, r)
	t.Setenv(cuda.BLASVariable, filepath.Join(t.TempDir(), "libcublas.so"))
	if _, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "there is no cuBLAS") || !strings.Contains(err.Error(), "take --blas own") {
		t.Error(err)
	}
	c.Execution.Device = "cpu"
	if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "blas: cublas computes on a device") {
		t.Error(err)
	}
}
