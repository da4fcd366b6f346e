//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/cuda/kernels"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/pool"
)

// bench is a queue of an emulated device, and the processor's kernels to compare with.
type bench struct {
	t    *testing.T
	q    *cuda.Queue
	x    *cpu.Exec // runs its kernels on q
	host *cpu.Exec
	r    *rand.Rand
	made [][]float32 // of device
}

func newBench(t *testing.T) *bench {
	q := fakecuda.Queue(t)
	p := pool.New(1)
	t.Cleanup(p.Close)
	b := &bench{t, q, cpu.NewExec(p, cpu.Go), cpu.NewExec(p, cpu.Go), rand.New(rand.NewPCG(1, 2)), nil}
	b.x.UseDevice(q)
	return b
}

// random returns a host matrix of values between -2 and 2, gap values between rows.
func (b *bench) random(rows, cols, gap int) cpu.Matrix[float32] {
	m := cpu.NewMatrix[float32](rows, cols+gap)
	for i := range m.Data {
		m.Data[i] = b.r.Float32()*4 - 2
	}
	return m.View(0, rows, 0, cols)
}

// device returns a copy of m on the device, in memory of its own.
func (b *bench) device(m cpu.Matrix[float32]) cpu.Matrix[float32] {
	d := m
	d.Data = cuda.Alloc[float32](b.q, len(m.Data))
	cuda.Upload(b.q, d.Data, m.Data)
	b.made = append(b.made, d.Data)
	return d
}

// clone returns a copy of m with its gaps.
func clone(m cpu.Matrix[float32]) cpu.Matrix[float32] {
	m.Data = append([]float32(nil), m.Data...)
	return m
}

// same fails unless the device's matrix is want, gaps included, within tolerance of
// the value itself and of 1; with tolerance 0 to the bit, any NaN being the same.
func (b *bench) same(what string, device, want cpu.Matrix[float32], tolerance float32) {
	b.t.Helper()
	got := clone(want)
	cuda.Download(b.q, got.Data, device.Data)
	for i, w := range want.Data {
		g := got.Data[i]
		exact := math.Float32bits(g) == math.Float32bits(w) || g != g && w != w
		if !exact && (tolerance == 0 || !(abs(g-w) <= tolerance*max(1, abs(w)))) {
			b.t.Fatalf("%s: value %d (row %d, column %d of %d×%d) is %v, not %v", what, i, i/want.Stride, i%want.Stride, want.Rows, want.Cols, g, w)
		}
	}
}

func abs(v float32) float32 { return max(v, -v) }

// shapes are odd ones, one element, one row and one column among them.
var shapes = [][2]int{{1, 1}, {1, 70}, {70, 1}, {3, 5}, {33, 257}, {130, 64}}

// The table of what the driver made of kernels: registers of a thread, shared memory of a block, and
// the local memory of a thread, which would be registers that did not do.
func TestKernelsTake(t *testing.T) {
	d := newBench(t).q.Device()
	if _, err := d.UseBLAS(devices.OwnBLAS, cpu.TF32); err != nil { // so that tensor's kernels are there
		t.Fatal(err)
	}
	var names []string
	for _, name := range kernels.Names() {
		ptx, err := kernels.PTX(name)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, kernels.Entries(ptx)...)
	}
	slices.Sort(names)
	for _, name := range names {
		var n [3]int
		for i, what := range []int{cuda.Registers, cuda.SharedBytes, cuda.LocalBytes} {
			var err error
			if n[i], err = d.Takes(name, what); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%-28s %3d registers %6d bytes shared %4d local", name, n[0], n[1], n[2])
		if n[0] == 0 || n[0] > 255 {
			t.Errorf("%s takes %d registers", name, n[0])
		}
	}
}
