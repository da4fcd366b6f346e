//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// Queue runs kernels on a device one after the other, in memory that it owns. One
// goroutine may use a queue at a time.
type Queue struct {
	device *Device
	stream uintptr
	pieces []piece           // of memory that was handed out, by address
	inputs map[input]uintptr // host memory that kernels read: where it is on the device
	kept   []any             // what inputs' addresses are of, so that no other memory has them
	held   []uintptr         // where inputs are, to be given back by Reset
	staged []staged          // pinned memory, from which copies may still be running
	launch *parameters       // of the kernel that is launched next
	pins   runtime.Pinner    // of launch
	peak   int               // bytes
	used   int               // bytes
}

type piece struct{ from, to uintptr }

// input is a piece of host memory.
type input struct {
	address uintptr
	bytes   int
}

// parameters are a kernel's, as the driver takes them: addresses of values.
type parameters struct {
	values    [maxWords]uint64
	addresses [maxParameters]unsafe.Pointer
}

const maxParameters, maxWords = 32, 64

// NewQueue returns a queue of d. Close it before d.
func (d *Device) NewQueue() (*Queue, error) {
	q := &Queue{device: d, inputs: map[input]uintptr{}, launch: new(parameters)}
	if err := d.call(cuStreamCreate, "", uintptr(unsafe.Pointer(&q.stream)), nonBlocking); err != nil {
		return nil, err
	}
	q.pins.Pin(q.launch)
	return q, nil
}

const nonBlocking = 1 // a stream that does not wait for the default one

// Close waits for what runs and gives the queue's memory back.
func (q *Queue) Close() error {
	err := q.Wait()
	for _, f := range []func() error{q.reset, q.freeAll, func() error { return q.device.call(cuStreamDestroy, "", q.stream) }} {
		if e := f(); err == nil {
			err = e
		}
	}
	q.pins.Unpin()
	return err
}

// Wait returns once everything that was queued is done, with what failed of it.
func (q *Queue) Wait() error { return q.device.call(cuStreamSynchronize, "", q.stream) }

// run queues a kernel over a grid of x by y blocks of threads. Its parameters are
// int (as int32), int64, uint32, uint64, float32, addresses (uintptr) and structs (words).
func (q *Queue) run(name string, x, y, threads int, params ...any) {
	f, err := q.device.kernel(name)
	if err == nil {
		at := 0
		for i, p := range params {
			q.launch.addresses[i] = unsafe.Pointer(&q.launch.values[at])
			if w, ok := p.([]uint64); ok {
				at += copy(q.launch.values[at:at+len(w)], w)
				continue
			}
			q.launch.values[at] = parameter(p)
			at++
		}
		err = q.device.call(cuLaunchKernel, "kernel "+name, f, uintptr(x), uintptr(y), 1, uintptr(threads), 1, 1, 0, q.stream, uintptr(unsafe.Pointer(&q.launch.addresses[0])), 0)
	}
	if err != nil {
		panic(err)
	}
}

// words are what a kernel that takes a struct is passed: p has the same fields in the
// same order, and a multiple of 8 bytes.
func words[T any](p *T) []uint64 {
	if unsafe.Sizeof(*p)%8 != 0 {
		panic(fmt.Sprintf("cuda: %T is no whole number of words", p))
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), unsafe.Sizeof(*p)/8)
}

func parameter(p any) uint64 {
	switch v := p.(type) {
	case int:
		if int(int32(v)) != v {
			panic(fmt.Sprintf("cuda: %d is too large for a kernel", v))
		}
		return uint64(uint32(v))
	case int64:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint64:
		return v
	case uintptr:
		return uint64(v)
	case float32:
		return uint64(*(*uint32)(unsafe.Pointer(&v)))
	case bool:
		if v {
			return 1
		}
		return 0
	}
	panic(fmt.Sprintf("cuda: a kernel takes no %T", p))
}

// Reset forgets which host memory is on the device, and gives its copies back.
func (q *Queue) Reset() {
	if err := q.reset(); err != nil {
		panic(err)
	}
}

func (q *Queue) reset() error {
	if len(q.held) == 0 && len(q.staged) == 0 {
		return nil
	}
	first := q.Wait() // copies and kernels may still read
	for _, p := range q.held {
		if err := q.free(p); first == nil {
			first = err
		}
	}
	for _, s := range q.staged {
		if err := q.device.call(cuMemFreeHost, "", s.address); first == nil {
			first = err
		}
	}
	clear(q.inputs)
	clear(q.kept)
	q.held, q.kept, q.staged = q.held[:0], q.kept[:0], q.staged[:0]
	return first
}

// staged is pinned host memory.
type staged struct {
	address uintptr
	bytes   int
}

// allocate returns bytes of device memory.
func (q *Queue) allocate(bytes int) (uintptr, error) {
	var p uintptr
	if err := q.device.call(cuMemAlloc, fmt.Sprintf("%d bytes, beside %d that are in use", bytes, q.used), uintptr(unsafe.Pointer(&p)), uintptr(max(bytes, 1))); err != nil {
		return 0, err
	}
	at, _ := slices.BinarySearchFunc(q.pieces, p, func(a piece, p uintptr) int { return compareAddress(a.from, p) })
	q.pieces = slices.Insert(q.pieces, at, piece{p, p + uintptr(max(bytes, 1))})
	q.used += bytes
	q.peak = max(q.peak, q.used)
	return p, nil
}

func compareAddress(a, b uintptr) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// free gives back what allocate returned.
func (q *Queue) free(p uintptr) error {
	at, found := slices.BinarySearchFunc(q.pieces, p, func(a piece, p uintptr) int { return compareAddress(a.from, p) })
	if !found {
		panic("cuda: memory is given back that was not handed out")
	}
	q.used -= int(q.pieces[at].to - q.pieces[at].from)
	q.pieces = slices.Delete(q.pieces, at, at+1)
	return q.device.call(cuMemFree, "", p)
}

func (q *Queue) freeAll() (first error) {
	for len(q.pieces) > 0 {
		if err := q.free(q.pieces[len(q.pieces)-1].from); first == nil {
			first = err
		}
	}
	return first
}

// onDevice reports whether p is memory of this queue.
func (q *Queue) onDevice(p uintptr) bool {
	at, found := slices.BinarySearchFunc(q.pieces, p, func(a piece, p uintptr) int { return compareAddress(a.from, p) })
	return found || at > 0 && p < q.pieces[at-1].to
}
