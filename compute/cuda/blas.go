//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/devices"
)

// BLASVariable is the environment variable that names another library than libcublas.so.
const BLASVariable = "GNNACTOR_LIBCUBLAS"

// The versions of cuBLAS that are looked for, the newest first.
var blasLibraries = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}

type blasEntry int

const (
	cublasCreate blasEntry = iota
	cublasDestroy
	cublasSetStream
	cublasSetWorkspace
	cublasSetMathMode
	cublasSetAtomicsMode
	cublasGetProperty
	cublasSgemm
	cublasGetStatusString
	blasEntries
)

var blasNames = [blasEntries]string{
	"cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetMathMode", "cublasSetAtomicsMode",
	"cublasGetProperty", "cublasSgemm_v2", "cublasGetStatusString",
}

// blas is cuBLAS, loaded.
type blas struct {
	functions [blasEntries]uintptr
	version   string
}

// BLASError is what a call of cuBLAS answered.
type BLASError struct {
	Call   string
	Device int
	Status int    // cublasStatus_t
	Words  string // cuBLAS's
}

// Failure tells graph.Guard that a panic with e is an error.
func (e *BLASError) Failure() {}

func (e *BLASError) Error() string {
	remedy := ""
	switch e.Status {
	case 1, 3: // it was not initialised, or found no memory
		remedy = "; leave it more of the device's memory, or take --blas own"
	case 8: // the device's architecture
		remedy = "; it is too new or too old for this device: take --blas own"
	case 13, 14:
		remedy = "; start again from the last checkpoint"
	}
	return fmt.Sprintf("cuda: cuda:%d: cuBLAS: %s (%s, %d)%s", e.Device, e.Words, e.Call, e.Status, remedy)
}

var (
	blasLoading sync.Mutex
	blasLoaded  = map[string]*blas{} // by the library's name
)

// loadBLAS returns cuBLAS, or an error that says what is missing and how to go on.
func loadBLAS() (*blas, error) {
	names := blasLibraries
	if name := os.Getenv(BLASVariable); name != "" {
		names = []string{name}
	}
	blasLoading.Lock()
	defer blasLoading.Unlock()
	var handle uintptr
	var why error
	for _, name := range names {
		if l := blasLoaded[name]; l != nil {
			return l, nil
		}
		var err error
		if handle, err = openLibrary(name); err != nil {
			if why == nil {
				why = err
			}
			continue
		}
		l := &blas{}
		for e, n := range blasNames {
			if l.functions[e], err = purego.Dlsym(handle, n); err != nil {
				return nil, fmt.Errorf("cuda: %s has no function %s: install cuBLAS 11.4 or newer, or take --blas own", name, n)
			}
		}
		var numbers [3]string
		for i := range numbers {
			var v int32
			if status := l.raw(cublasGetProperty, uintptr(i), uintptr(unsafe.Pointer(&v))); status != 0 {
				return nil, fmt.Errorf("cuda: %s does not tell its version (status %d): take --blas own", name, status)
			}
			numbers[i] = fmt.Sprint(v)
		}
		l.version = strings.Join(numbers[:], ".")
		blasLoaded[name] = l
		return l, nil
	}
	return nil, fmt.Errorf("cuda: there is no cuBLAS: %w; install it, as %s, or take --blas own", why, blasLibraries[1])
}

//go:uintptrescapes
func (l *blas) raw(e blasEntry, args ...uintptr) int {
	status, _, _ := purego.SyscallN(l.functions[e], args...)
	return int(int32(status))
}

// UseBLAS has dense products made by cuBLAS, or by the device's own kernels, of factors that are rounded
// to p; see devices.Device.
func (d *Device) UseBLAS(name string, p cpu.Precision) (workspace int64, err error) {
	switch name {
	case "", devices.OwnBLAS:
		if p != cpu.Float32 {
			if err := d.load("tensor"); err != nil {
				return 0, err
			}
		}
		d.precision, d.blas = p, nil
		return 0, nil
	case devices.CuBLAS:
		if p == cpu.BFloat16 {
			return 0, fmt.Errorf("cuda: cublas computes in float32 or tf32, not in %v: take --blas own, or another --precision", p)
		}
		l, err := loadBLAS()
		if err != nil {
			return 0, err
		}
		d.precision, d.blas = p, l
		return int64(d.workspace()), nil
	}
	return 0, fmt.Errorf("cuda: there is no BLAS %q; there are %s and %s", name, devices.OwnBLAS, devices.CuBLAS)
}

// workspace is how many bytes cuBLAS works with in a stream, as its documentation advises.
func (d *Device) workspace() int {
	if d.Capability >= 90 {
		return 32 << 20
	}
	return 4 << 20
}

// blasCall calls a function of cuBLAS in the device's context.
//
//go:uintptrescapes
func (d *Device) blasCall(e blasEntry, args ...uintptr) error {
	status := 0
	if err := d.inContext(blasNames[e], func() error {
		status = d.blas.raw(e, args...)
		return nil
	}); err != nil || status == 0 {
		return err
	}
	words := "unknown error"
	if p, _, _ := purego.SyscallN(d.blas.functions[cublasGetStatusString], uintptr(status)); p != 0 {
		words = text(pointer(p))
	}
	return &BLASError{Call: blasNames[e], Device: d.Number, Status: status, Words: words}
}

const (
	pedantic   = 2 // products in float32 alone, in all their parts
	tensorTF32 = 3 // products of factors in TF32
	noAtomics  = 0
	notTurned  = 0
	transposed = 1
)

// openBLAS readies cuBLAS for q's stream, with a workspace of q's.
func (q *Queue) openBLAS() error {
	if q.blas != 0 {
		return nil
	}
	if err := q.open(); err != nil {
		return err
	}
	d := q.device
	if err := d.blasCall(cublasCreate, uintptr(unsafe.Pointer(&q.blas))); err != nil {
		q.blas = 0
		return err
	}
	bytes, mode := d.workspace(), uintptr(pedantic)
	if d.precision == cpu.TF32 {
		mode = tensorTF32
	}
	at, err := q.allocate(bytes)
	for _, set := range []struct {
		e    blasEntry
		a, b uintptr
	}{{cublasSetStream, q.stream, 0}, {cublasSetWorkspace, at, uintptr(bytes)}, {cublasSetMathMode, mode, 0}, {cublasSetAtomicsMode, noAtomics, 0}} {
		if err == nil {
			err = d.blasCall(set.e, q.blas, set.a, set.b)
		}
	}
	if err != nil {
		q.closeBLAS()
	}
	return err
}

func (q *Queue) closeBLAS() error {
	h := q.blas
	if q.blas = 0; h == 0 {
		return nil
	}
	return q.device.blasCall(cublasDestroy, h)
}

// blasProduct is a product of at least one term by cuBLAS, added to dst with accumulate. Matrices
// are its transposes: it has columns where rows are here.
func (q *Queue) blasProduct(dst, a matrix, ta bool, b matrix, tb bool, m, n, k int, accumulate bool) error {
	if err := q.openBLAS(); err != nil {
		return err
	}
	turned := func(t bool) uintptr {
		if t {
			return transposed
		}
		return notTurned
	}
	q.launch.factors = [2]float32{1, 0}
	if accumulate {
		q.launch.factors[1] = 1
	}
	return q.device.blasCall(cublasSgemm, q.blas, turned(tb), turned(ta), uintptr(n), uintptr(m), uintptr(k),
		uintptr(unsafe.Pointer(&q.launch.factors[0])), of(q, b.Data), uintptr(b.Stride), of(q, a.Data), uintptr(a.Stride),
		uintptr(unsafe.Pointer(&q.launch.factors[1])), result(q, dst.Data), uintptr(dst.Stride))
}
