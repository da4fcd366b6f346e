//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// LibraryVariable is the environment variable that names another library than
// libcuda.so.1: tests name one that emulates a device.
const LibraryVariable = "GNNACTOR_LIBCUDA"

// What a driver and a device must have: CUDA 11.0, whose PTX is 7.0, and compute
// capability 8.0.
const (
	leastVersion    = 11000
	leastCapability = 80
)

// entry is a function of the driver's.
type entry int

const (
	cuInit entry = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemHostRegister
	cuMemHostUnregister
	cuMemHostGetDevicePointer
	cuStreamCreateWithPriority
	cuStreamDestroy
	cuStreamSynchronize
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuLaunchKernel
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuGetErrorName
	cuGetErrorString
	entries
)

// names are the functions' with the versions of their interfaces.
var names = [entries]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemHostGetDevicePointer_v2",
	"cuStreamCreateWithPriority", "cuStreamDestroy_v2", "cuStreamSynchronize",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuGetErrorName", "cuGetErrorString",
}

// driver is the library, loaded and initialised.
type driver struct {
	functions [entries]uintptr
	version   atomic.Int32 // of CUDA, as 1000·major + 10·minor; asked for whenever a device is opened
}

var (
	loading sync.Mutex
	loaded  = map[string]*driver{} // by the library's name
)

// load returns the driver, or an error that says what is missing and how to go on.
func load() (*driver, error) {
	name := os.Getenv(LibraryVariable)
	if name == "" {
		name = "libcuda.so.1"
	}
	loading.Lock()
	defer loading.Unlock()
	d := loaded[name]
	if d == nil {
		handle, err := openLibrary(name)
		if err != nil {
			return nil, fmt.Errorf("cuda: there is no driver: %v; install NVIDIA's driver, or use --device cpu", err)
		}
		d = &driver{}
		for e, n := range names {
			if d.functions[e], err = purego.Dlsym(handle, n); err != nil {
				return nil, fmt.Errorf("cuda: %s has no function %s; it is too old: install NVIDIA's driver for CUDA %d.%d or newer, or use --device cpu", name, n, leastVersion/1000, leastVersion%1000/10)
			}
		}
		loaded[name] = d
	}
	var version int32
	if code := d.raw(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); code != 0 {
		return nil, d.failure(cuDriverGetVersion, "", -1, code)
	}
	if d.version.Store(version); version < leastVersion {
		return nil, fmt.Errorf("cuda: the driver is for CUDA %d.%d; this program needs %d.%d or newer: install a newer driver, or use --device cpu",
			version/1000, version%1000/10, leastVersion/1000, leastVersion%1000/10)
	}
	if code := d.raw(cuInit, 0); code != 0 {
		return nil, d.failure(cuInit, "", -1, code)
	}
	return d, nil
}

// openLibrary opens a library of the system's. Why it cannot is known to the thread that tried alone.
func openLibrary(name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// raw calls a function and returns its code. Pointers are converted to uintptr in the
// call itself, which keeps what they point to where it is.
//
//go:uintptrescapes
func (d *driver) raw(e entry, args ...uintptr) int {
	code, _, _ := purego.SyscallN(d.functions[e], args...)
	return int(int32(code))
}
