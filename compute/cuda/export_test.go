//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"os"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// The driver's numbers of what a kernel takes.
const (
	SharedBytes = 1
	LocalBytes  = 3
	Registers   = 4
)

// Takes returns how much of something the driver says that a kernel takes.
func (d *Device) Takes(kernel string, what int) (int, error) {
	f, err := d.kernel(kernel)
	if err != nil {
		return 0, err
	}
	name := os.Getenv(LibraryVariable)
	if name == "" {
		name = "libcuda.so.1"
	}
	library, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return 0, err
	}
	ask, err := purego.Dlsym(library, "cuFuncGetAttribute")
	if err != nil {
		return 0, err
	}
	n := new(int32)
	err = d.inContext(kernel, func() error {
		if code, _, _ := purego.SyscallN(ask, uintptr(unsafe.Pointer(n)), uintptr(what), f); code != 0 {
			return d.driver.failure(cuModuleGetFunction, kernel, d.Number, int(int32(code)))
		}
		return nil
	})
	return int(*n), err
}

// Enough has the largest tiles for products of as many blocks, until the function that it
// returns is called.
func Enough(blocks int) (restore func()) {
	old := enough
	enough = blocks
	return func() { enough = old }
}

// Functions returns the names of the driver's functions that are called.
func Functions() []string { return names[:] }

// Memory returns the bytes of memory that the device has.
func (q *Queue) Memory() int { return q.device.Memory }

// Tables returns how many tables the device knows where they are.
func (d *Device) Tables() int {
	d.tables.mu.Lock()
	defer d.tables.mu.Unlock()
	return len(d.tables.places)
}

// Device returns the queue's device.
func (q *Queue) Device() *Device { return q.device }

// FMALimit runs a kernel of fused multiply-adds, and no more.
func (q *Queue) FMALimit(out []float32, blocks, rounds int) {
	q.run("fma_limit", blocks, 1, threads, result(q, out), float32(0.999), float32(0.001), rounds)
}

// TensorLimit runs a kernel of multiplications on tensor cores, and no more.
func (q *Queue) TensorLimit(p cpu.Precision, out []float32, blocks, rounds int) {
	q.run(p.String()+"_limit", blocks, 1, threads, result(q, out), rounds)
}

// BusLimit copies pinned memory to the device, as much as an upload before it went through.
func (q *Queue) BusLimit(to []float32) {
	if err := q.device.call(cuMemcpyHtoDAsync, "", result(q, to), q.pinned, uintptr(4*len(to)), q.stream); err != nil {
		panic(err)
	}
}

// RowsLimit has every warp of blocks read count random rows of table, 128 values wide.
func (q *Queue) RowsLimit(out []float32, table cpu.Matrix[float32], blocks, count int) {
	q.run("rows_limit", blocks, 1, threads, result(q, out), of(q, table.Data), uint32(table.Rows), count)
}

// SkipTo has the values of the next batch begin at base or, if they would not fit, at 1.
func (s *NeighborSampler) SkipTo(base uint32) { s.base, s.count = base, 0 }
