//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	store "github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/pool"
)

// What is missing on a machine is said with what to do.
func TestNoDevice(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(d *fakecuda.Driver)
		want []string
	}{
		"no driver": {func(*fakecuda.Driver) { t.Setenv(cuda.LibraryVariable, filepath.Join(t.TempDir(), "libcuda.so.1")) },
			[]string{"there is no driver", "install NVIDIA's driver, or use --device cpu"}},
		"no library of the driver's": {func(*fakecuda.Driver) { t.Setenv(cuda.LibraryVariable, "libm.so.6") }, []string{"has no function cuInit", "too old"}},
		"old driver":                 {func(d *fakecuda.Driver) { d.Set("version", 10020) }, []string{"for CUDA 10.2; this program needs 11.0 or newer"}},
		"no device":                  {func(d *fakecuda.Driver) { d.Set("devices", 0) }, []string{"no CUDA-capable device is detected", "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"}},
		"no such device":             {func(d *fakecuda.Driver) { d.Set("devices", 3) }, []string{"there is no device cuda:3; the driver knows 3, from cuda:0"}},
		"old device":                 {func(d *fakecuda.Driver) { d.Set("devices", 4); d.Set("capability", 75) }, []string{"compute capability 7.5; kernels need 8.0"}},
		"PTX refused": {func(d *fakecuda.Driver) { d.Set("devices", 4); d.Fail("cuModuleLoadData", 2, 222) },
			[]string{"cuda:3: ", ".ptx", "a driver for CUDA 11.0 at least"}},
		"driver and module differ": {func(d *fakecuda.Driver) { d.Fail("cuInit", 0, 803) }, []string{"cuInit", "do not fit each other"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.set(fakecuda.Use(t))
			if d, why, err := devices.Open("cuda:3"); err == nil {
				d.Close()
				t.Fatal("a device was opened")
			} else if !errors.Is(err, devices.ErrNone) || why != nil {
				t.Errorf("error %v, and %v", err, why)
			} else {
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q has no %q", err, want)
					}
				}
			}
		})
	}
}

// Whoever asks for a library that is not there hears why, whichever threads that happens on: while the system
// looks for it goroutines that compute take the thread's place.
func TestMissingLibrary(t *testing.T) {
	const missing = "libcuda-that-is-not-there.so.1"
	t.Setenv(cuda.LibraryVariable, missing)
	var all sync.WaitGroup
	var over atomic.Bool
	for range 2 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !over.Load() {
			}
		})
	}
	for range 200 {
		if _, err := cuda.Open(0); err == nil || !strings.Contains(err.Error(), missing+": cannot open") {
			t.Error(err)
			break
		}
	}
	over.Store(true)
	all.Wait()
}

// drawn is where a batch's blocks go to.
type drawn [2]graph.Block

func (b *drawn) Nodes(n int) []uint32 { return make([]uint32, n) }

func (b *drawn) Block(i, numDst, numSrc, numEdges int, weights, edgeIDs bool) *graph.Block {
	b[i] = graph.Block{NumDst: numDst, NumSrc: numSrc, Indptr: make([]int64, numDst+1), Indices: make([]uint32, numEdges)}
	return &b[i]
}

// train computes two gradients of a small model on the device, the second of a batch that was drawn there, and
// returns the first error of theirs, and that of giving everything back.
func train(t *testing.T) (err, end error) {
	device, _, err := devices.Open("cuda")
	if err != nil {
		return err, nil
	}
	q := device.Queue()
	var slab devices.Rows
	var sampler devices.Sampler
	defer func() {
		if slab != nil {
			end = slab.Close()
		}
		if sampler != nil {
			end = errors.Join(end, sampler.Close())
		}
		end = errors.Join(end, q.Close(), device.Close())
	}()
	p := pool.New(1)
	defer p.Close()
	x := cpu.NewExec(p, cpu.Go)
	x.UseDevice(q)
	g := &graph.Graph{Indptr: []int64{0, 2, 3, 5, 5}, Indices: []uint32{1, 2, 0, 0, 3}}
	m, err := compute.NewModel(compute.Spec{Model: "gat", Layers: 2, Heads: 2, InDim: 1, Hidden: 4, OutDim: 3, Norm: "batch", Dropout: 0.5}, g)
	if err != nil {
		t.Fatal(err)
	}
	params := m.Init(1)
	grad := make([]float32, len(params))
	// A row takes as much as its id, so that whoever gathers rows faster makes as many calls: of three rows and one.
	in := &compute.Input{Features: graph.NewFeatures(4, 1, []float32{0, 1, 2, 3}), Blocks: []graph.Block{graph.WholeGraph(g), graph.WholeGraph(g)}, Labels: []int32{0, 1, 2}}
	m.BindFeatures(in.Features)
	e := m.NewEngine(x)
	for step := range 2 {
		if step == 1 { // where the device has its rows
			slab, err = device.Rows(store.InMemory(in.Features), devices.RowsOptions{Rows: 4, Pinned: 56, Host: in.Features, Copied: func(int, time.Time, time.Time) {}})
			if err != nil {
				return err, nil
			}
			slots := []uint32{3, 1, 2, 0}
			if err := store.Read(context.Background(), slab, store.Request{IDs: []uint32{0, 1, 2, 3}, Slots: slots, Dst: slab.Table()}); err != nil {
				return err, nil
			}
			if sampler, err = device.Sampler(g, devices.Sampling{Fanouts: []int{2, 1}}); err != nil {
				return err, nil
			}
			var blocks drawn
			if in.There, err = sampler.Sample(&blocks, 1, []uint32{0, 1, 2}, devices.Cache{}, nil); err != nil {
				return err, nil
			}
			in.Features, in.Blocks, in.Rows = slab.Table(), blocks[:], nil
			for _, v := range blocks[0].SrcIDs {
				in.Rows = append(in.Rows, slots[v])
			}
		}
		if _, err := e.Gradient(grad, params, in); err != nil {
			return err, nil
		}
	}
	return nil, nil
}

// Whatever call of the driver's fails, and whenever, the error names it, and nothing is
// left, but what could not be given back.
func TestEveryCallFails(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("only the emulated driver does that")
	}
	var d *fakecuda.Driver
	t.Run("none", func(t *testing.T) {
		d = fakecuda.Use(t)
		if err, end := train(t); err != nil || end != nil {
			t.Fatal(err, end)
		}
	})
	calls := map[string]int{}
	for _, f := range cuda.Functions() {
		calls[f] = d.Count(f)
	}
	for function, n := range calls {
		// Of those that say what went wrong nothing is asked.
		if strings.HasPrefix(function, "cuGetError") || function == "cuDriverGetVersion" {
			continue
		}
		if n == 0 {
			t.Errorf("%s is not called", function)
			continue
		}
		for _, after := range []int{0, n / 2, n - 1} {
			for _, code := range []int{2, 719} { // of memory, and of a device that is lost
				t.Run(fmt.Sprint(function, "/", after, "/", code), func(t *testing.T) {
					d := fakecuda.Use(t)
					d.Fail(function, after, code)
					err, end := train(t)
					err = errors.Join(err, end)
					if strings.HasPrefix(function, "cuMemHostRegister") && code == 2 || strings.HasPrefix(function, "cuMemHostGetDevicePointer") && code == 2 {
						if err != nil { // the host gathers the rows
							t.Error(err)
						}
					} else if err == nil || !strings.Contains(err.Error(), function) {
						t.Errorf("%v", err)
					}
					gives := strings.Contains(function, "Free") || strings.Contains(function, "Destroy") || strings.Contains(function, "Unload") || strings.Contains(function, "Unregister") || strings.Contains(function, "Release")
					if gives || function == "cuCtxSetCurrent" && after == n-1 {
						d.Forget()
					}
				})
			}
		}
	}
}

// A device that has too little memory, is lost or launches no kernel is an error of the
// call that came upon it, which says what helps; what else goes on does.
func TestDeviceFails(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(d *fakecuda.Driver)
		want []string
	}{
		"memory": {func(d *fakecuda.Driver) { d.Set("memory", 1<<20) }, []string{"cuda:0: ", "bytes, beside ", "out of memory", "take smaller batches"}},
		"lost":   {func(d *fakecuda.Driver) { d.Fail("cuStreamSynchronize", 0, 700) }, []string{"an illegal memory access", "start again from the last checkpoint"}},
		"launch": {func(d *fakecuda.Driver) { d.Fail("cuLaunchKernel", 4, 719) }, []string{"kernel ", "unspecified launch failure", "cuLaunchKernel"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.set(fakecuda.Use(t))
			err, end := train(t)
			if err == nil || end != nil {
				t.Fatal(err, end)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
		})
	}
}

// cuda:all is every device that there is; without one it is an error, and it is named alone. What fails
// in one of them leaves none open.
func TestAllDevices(t *testing.T) {
	d := fakecuda.Use(t)
	d.Set("devices", 3)
	all, why, err := openAll("cuda:all")
	if err != nil || why != nil || len(all) != 3 {
		t.Fatal(len(all), why, err)
	}
	for i, o := range all {
		if n := o.(*cuda.Device).Number; n != i {
			t.Errorf("device %d is number %d", i, n)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	d.Fail("cuModuleLoadData", d.Count("modules")+15, 222)
	if all, _, err := openAll("cuda:all"); err == nil || all != nil || !strings.Contains(err.Error(), "cuda:1: ") {
		t.Error(len(all), err)
	}
	d.Set("devices", 0)
	if _, _, err := openAll("cuda:all"); !errors.Is(err, devices.ErrNone) {
		t.Error(err)
	}
	if _, err := devices.Parse("cuda:all,cuda:1"); err == nil || !strings.Contains(err.Error(), "each must be a cuda:N") {
		t.Error(err)
	}
}

// The device's peak is that of all queues and tables together.
func TestDevicePeak(t *testing.T) {
	b := newBench(t)
	d := b.q.Device()
	other := d.NewQueue()
	b.q.Free(b.q.Alloc(1000))
	x := b.q.Alloc(500)
	y := other.Alloc(700)
	if d.Peak() != 4800 {
		t.Errorf("peak %d", d.Peak())
	}
	f := table(10, 10)
	b.q.Keep(f)
	if d.Peak() < 4800+400 || d.Peak() > 4800+1000 {
		t.Errorf("peak %d with a table", d.Peak())
	}
	b.q.Free(x)
	other.Free(y)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

func openAll(name string) (all []devices.Device, why, err error) {
	c, err := devices.Parse(name)
	if err != nil {
		return nil, nil, err
	}
	return c.Open()
}
