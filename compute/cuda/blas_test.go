//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
)

// Products that cuBLAS makes are the processor's, in all orientations and with everything that they may
// end with; it is told to work in the queue's stream, in memory of the queue's and in float32 alone, and
// the kernel set's name has its version and the multiprocessors.
func TestCuBLAS(t *testing.T) {
	b := newBench(t)
	before := b.q.Device().Kernels()
	workspace, err := b.q.Device().UseBLAS(devices.CuBLAS, cpu.Float32)
	if err != nil && fakecuda.Real() {
		t.Skip(err)
	}
	if err != nil || workspace < 4<<20 {
		t.Fatal(workspace, err)
	}
	kernels := b.q.Device().Kernels()
	if !strings.HasPrefix(kernels, before+"+cublas:") || !fakecuda.Real() && kernels != "cuda:sm_80+cublas:12.6.4:4" {
		t.Errorf("kernel set %s, and %s before", kernels, before)
	}
	if b.q.Peak() != 0 {
		t.Errorf("%d bytes are taken before there is a product", b.q.Peak())
	}
	t.Run("Gemm", func(t *testing.T) { b.products(t, productShapes, 40) })
	if _, err := b.q.Device().UseBLAS(devices.CuBLAS, cpu.BFloat16); err == nil || !strings.Contains(err.Error(), "cublas computes in float32 or tf32, not in bf16: take --blas own") {
		t.Error(err)
	}
	if int64(b.q.Peak()) < workspace {
		t.Errorf("the queue had %d bytes, less than the workspace's", b.q.Peak())
	}
	if _, err := b.q.Device().UseBLAS("mkl", cpu.Float32); err == nil || !strings.Contains(err.Error(), `there is no BLAS "mkl"; there are own and cublas`) {
		t.Error(err)
	}
}

// Whatever cuBLAS refuses is an error with its words and what helps, and nothing is left; so is what is missing.
func TestCuBLASFails(t *testing.T) {
	for name, c := range map[string]struct {
		function string
		status   int
		want     string
	}{
		"memory":    {"cublasCreate_v2", 3, "cuda: cuda:0: cuBLAS: the resource allocation failed (cublasCreate_v2, 3); leave it more of the device's memory, or take --blas own"},
		"stream":    {"cublasSetStream_v2", 7, "(cublasSetStream_v2, 7)"},
		"workspace": {"cublasSetWorkspace_v2", 7, "(cublasSetWorkspace_v2, 7)"},
		"room":      {"cuMemAlloc_v2", 2, "out of memory"},
		"mode":      {"cublasSetMathMode", 8, "(cublasSetMathMode, 8); it is too new or too old for this device: take --blas own"},
		"atomics":   {"cublasSetAtomicsMode", 14, "(cublasSetAtomicsMode, 14); start again from the last checkpoint"},
		"product":   {"cublasSgemm_v2", 13, "the function failed to launch on the GPU (cublasSgemm_v2, 13); start again"},
		"lost":      {"cublasSgemm_v2", 700, "(cublasSgemm_v2, 700)"},
	} {
		t.Run(name, func(t *testing.T) {
			d := fakecuda.Use(t)
			device, err := cuda.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := device.UseBLAS(devices.CuBLAS, cpu.Float32); err != nil {
				t.Fatal(err)
			}
			q := device.NewQueue()
			m := cpu.Dense(2, 2, q.Alloc(4))
			d.Fail(c.function, 0, c.status)
			product := func() error {
				return graph.Guard(func() error {
					q.Gemm(m, m, false, m, false, cpu.Epilogue[float32]{})
					return q.Wait()
				})
			}
			if err := product(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			if err := product(); err != nil && name != "lost" { // nothing is half set
				t.Error(err)
			}
			if err := errors.Join(q.Close(), device.Close()); err != nil && name != "lost" {
				t.Error(err)
			}
		})
	}
	fakecuda.Use(t)
	device, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for library, want := range map[string]string{
		filepath.Join(t.TempDir(), "libcublas.so"): "there is no cuBLAS: ",
		"libm.so.6": "libm.so.6 has no function cublasCreate_v2: install cuBLAS 11.4 or newer, or take --blas own",
	} {
		t.Setenv(cuda.BLASVariable, library)
		if _, err := device.UseBLAS(devices.CuBLAS, cpu.Float32); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "take --blas own") {
			t.Error(err)
		}
	}
}
