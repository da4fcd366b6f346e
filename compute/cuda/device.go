//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda/kernels"
	"github.com/gnnactor/gnnactor/compute/devices"
)

// Device is one device with its primary context and the kernels' modules. It may be
// used by any goroutines at once. Close it after what was made of it.
type Device struct {
	Number     int
	Name       string // as the driver has it
	Capability int    // 10·major + minor
	Processors int    // multiprocessors
	Memory     int    // bytes

	driver  *driver
	context uintptr
	modules map[string]uintptr // by their sources' names
	entries map[string]uintptr // the module of each kernel, by its name
	kernels map[string]uintptr // by name, once launched
	mu      sync.Mutex         // of kernels
	lost    atomic.Bool        // no call of this context's succeeds any more
	tables  tables
	blas    *blas // that makes dense products; nil: own kernels do
	// What factors of dense products are rounded to.
	precision cpu.Precision
	memory    sync.RWMutex // of pieces
	pieces    pieces       // of all queues
	used      int64        // bytes of them, and of tables
	peak      int64        // the most there were

	toDevice, toHost atomic.Int64 // bytes that were copied
}

func init() {
	devices.Register("cuda", func(number int) (devices.Device, error) {
		d, err := Open(number)
		if err != nil {
			return nil, err
		}
		return d, nil
	})
}

// Count returns how many devices there are.
func Count() (int, error) {
	d, err := load()
	if err != nil {
		return 0, err
	}
	var n int32
	if code := d.raw(cuDeviceGetCount, uintptr(unsafe.Pointer(&n))); code != 0 {
		return 0, d.failure(cuDeviceGetCount, "", -1, code)
	}
	return int(n), nil
}

// Open returns device number.
func Open(number int) (*Device, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if number < 0 || number >= n {
		return nil, fmt.Errorf("cuda: %w: there is no device cuda:%d; the driver knows %d, from cuda:0", devices.ErrNumber, number, n)
	}
	lib, err := load()
	if err != nil {
		return nil, err
	}
	d := &Device{Number: number, driver: lib, modules: map[string]uintptr{}, entries: map[string]uintptr{}, kernels: map[string]uintptr{}}
	if err := d.describe(); err != nil {
		return nil, err
	}
	if d.Capability < leastCapability {
		return nil, fmt.Errorf("cuda: cuda:%d is a %s of compute capability %d.%d; kernels need %d.%d: use another device, or --device cpu",
			number, d.Name, d.Capability/10, d.Capability%10, leastCapability/10, leastCapability%10)
	}
	if code := lib.raw(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&d.context)), uintptr(number)); code != 0 {
		return nil, lib.failure(cuDevicePrimaryCtxRetain, "", number, code)
	}
	for _, name := range kernels.Names() {
		if name == "tensor" { // which few runs need, and the driver takes long to translate
			continue
		}
		if err := d.load(name); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// load has the driver translate a module, unless it is there.
func (d *Device) load(name string) error {
	if d.modules[name] != 0 {
		return nil
	}
	text, err := kernels.PTX(name)
	if err != nil {
		return err
	}
	text = append(text, 0)
	var module uintptr
	if err := d.call(cuModuleLoadData, name+".ptx", uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&text[0]))); err != nil {
		return err
	}
	d.modules[name] = module
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range kernels.Entries(text) {
		d.entries[e] = module
	}
	return nil
}

// describe asks for what the driver knows of the device without a context.
func (d *Device) describe() error {
	var ordinal, processors, major, minor int32
	name := make([]byte, 256)
	ask := func(e entry, code int) error {
		if code == 0 {
			return nil
		}
		return d.driver.failure(e, "", d.Number, code)
	}
	if err := ask(cuDeviceGet, d.driver.raw(cuDeviceGet, uintptr(unsafe.Pointer(&ordinal)), uintptr(d.Number))); err != nil {
		return err
	}
	if err := ask(cuDeviceGetName, d.driver.raw(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(ordinal))); err != nil {
		return err
	}
	if err := ask(cuDeviceTotalMem, d.driver.raw(cuDeviceTotalMem, uintptr(unsafe.Pointer(&d.Memory)), uintptr(ordinal))); err != nil {
		return err
	}
	const multiprocessors, capabilityMajor, capabilityMinor = 16, 75, 76
	for _, a := range []struct {
		value     *int32
		attribute uintptr
	}{{&processors, multiprocessors}, {&major, capabilityMajor}, {&minor, capabilityMinor}} {
		if err := ask(cuDeviceGetAttribute, d.driver.raw(cuDeviceGetAttribute, uintptr(unsafe.Pointer(a.value)), a.attribute, uintptr(ordinal))); err != nil {
			return err
		}
	}
	d.Name = string(name[:slices.Index(name, 0)])
	d.Processors, d.Capability = int(processors), int(major*10+minor)
	return nil
}

// Kernels is the name of the kernel set, such as cuda:sm_90, or cuda:sm_90+cublas:12.6.4:132, with
// the number of multiprocessors, which cuBLAS chooses its kernels by.
func (d *Device) Kernels() string {
	name := fmt.Sprintf("cuda:sm_%d", d.Capability)
	if d.blas != nil {
		name += fmt.Sprintf("+cublas:%s:%d", d.blas.version, d.Processors)
	}
	return name
}

// Describe is a line for people.
func (d *Device) Describe() string {
	version := d.driver.version.Load()
	return fmt.Sprintf("cuda:%d, %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d",
		d.Number, d.Name, d.Capability/10, d.Capability%10, d.Processors, float64(d.Memory)/(1<<30), version/1000, version%1000/10)
}

// Bytes is the device's memory.
func (d *Device) Bytes() int64 { return int64(d.Memory) }

// Moved returns how many bytes were copied to the device and back.
func (d *Device) Moved() (toDevice, toHost int64) { return d.toDevice.Load(), d.toHost.Load() }

// Peak is devices.Device's.
func (d *Device) Peak() int64 {
	d.memory.RLock()
	defer d.memory.RUnlock()
	return d.peak
}

// take counts bytes that were taken, or given back if they are less than 0. d.memory is held.
func (d *Device) take(bytes int64) {
	d.used += bytes
	d.peak = max(d.peak, d.used)
}

func (d *Device) isLost() bool { return d.lost.Load() }

// Close gives back the modules and the context.
func (d *Device) Close() error {
	var first error
	if d.isLost() {
		d.modules, d.tables.places = nil, nil // they go with the context
	}
	for _, t := range d.tables.places {
		if t.address != 0 && !t.foreign {
			if err := d.call(cuMemFree, "", t.address); err != nil && first == nil {
				first = err
			}
		}
	}
	d.tables.places = nil
	for _, m := range d.modules {
		if err := d.call(cuModuleUnload, "", m); err != nil && first == nil {
			first = err
		}
	}
	d.modules = nil
	if d.context != 0 {
		d.context = 0
		if code := d.driver.raw(cuDevicePrimaryCtxRelease, uintptr(d.Number)); code != 0 && first == nil {
			first = d.driver.failure(cuDevicePrimaryCtxRelease, "", d.Number, code)
		}
	}
	return first
}

// call calls a function on a thread that has d's context for its current one. what is
// for the error.
//
//go:uintptrescapes
func (d *Device) call(e entry, what string, args ...uintptr) error {
	return d.inContext(what, func() error {
		if code := d.driver.raw(e, args...); code != 0 {
			if lost(code) {
				d.lost.Store(true)
			}
			return d.driver.failure(e, what, d.Number, code)
		}
		return nil
	})
}

// inContext calls f on a thread that has d's context for its current one.
func (d *Device) inContext(what string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := d.driver.raw(cuCtxSetCurrent, d.context); code != 0 {
		return d.driver.failure(cuCtxSetCurrent, what, d.Number, code)
	}
	return f()
}

// kernel returns the kernel called name.
func (d *Device) kernel(name string) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.kernels[name]; f != 0 {
		return f, nil
	}
	text := append([]byte(name), 0)
	var f uintptr
	if err := d.call(cuModuleGetFunction, name, uintptr(unsafe.Pointer(&f)), d.entries[name], uintptr(unsafe.Pointer(&text[0]))); err != nil {
		return 0, err
	}
	d.kernels[name] = f
	return f, nil
}
