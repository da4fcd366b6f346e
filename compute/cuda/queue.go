//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/devices"
)

// Queue runs kernels on a device one after the other, in memory that it owns. One
// goroutine may use a queue at a time. It is a cpu.Device.
type Queue struct {
	device *Device
	stream uintptr
	urgent bool   // its kernels go before those of other queues that wait
	pieces pieces // of device memory that was handed out
	used   int    // bytes of them
	peak   int    // the most there were

	inputs map[input]uintptr // host memory that kernels read: where it is on the device
	kept   []any             // what inputs' addresses are of, so that no other memory has them
	arena  arena             // where it is
	pinned uintptr           // memory of the host that copies to the device go through; 0: none yet
	filled int               // bytes of it from which copies may still be running
	spare  piece             // scratch memory of kernels

	blas   uintptr     // cuBLAS's handle; 0: none yet
	launch *parameters // of the kernel that is launched next; on the heap, which does not move
}

// piece is device memory.
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
	factors   [2]float32 // of cuBLAS's products, and of what they are added to
}

const maxParameters, maxWords = 32, 64

// NewQueue returns a queue of d. Close it before d.
func (d *Device) NewQueue() *Queue {
	return &Queue{device: d, inputs: map[input]uintptr{}, launch: new(parameters)}
}

// Queue is NewQueue.
func (d *Device) Queue() devices.Queue { return d.NewQueue() }

const nonBlocking = 1 // a stream that does not wait for the default one

// Close waits for what runs and gives the queue's memory back. What a device had that
// is lost goes with it.
func (q *Queue) Close() error {
	if q.device.isLost() || q.stream == 0 {
		return nil
	}
	err := q.Wait()
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	keep(q.closeBLAS())
	for len(q.pieces) > 0 {
		keep(q.free(q.pieces[len(q.pieces)-1].from))
	}
	if q.pinned != 0 {
		keep(q.device.call(cuMemFreeHost, "", q.pinned))
	}
	keep(q.device.call(cuStreamDestroy, "", q.stream))
	q.stream = 0
	return err
}

// Wait returns once everything that was queued is done, with what failed of it.
func (q *Queue) Wait() error {
	if q.stream == 0 {
		return nil
	}
	return q.device.call(cuStreamSynchronize, "", q.stream)
}

// Peak returns the most bytes of device memory that the queue has had.
func (q *Queue) Peak() int { return q.peak }

// run queues a kernel over a grid of x by y blocks of threads. Its parameters are
// int (as int32), bool (as int32), int64, uint32, uint64, float32, addresses (uintptr)
// and structs (words).
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
	case bool:
		if v {
			return 1
		}
		return 0
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
	}
	panic(fmt.Sprintf("cuda: a kernel takes no %T", p))
}

// Reset forgets which host memory is on the device. It waits for what still reads it.
func (q *Queue) Reset() {
	if len(q.inputs) == 0 && q.arena.total == 0 {
		return
	}
	if err := q.Wait(); err != nil {
		panic(err)
	}
	clear(q.inputs)
	clear(q.kept)
	q.kept, q.filled = q.kept[:0], 0
	q.arena.reset(q)
}

// open makes the stream, if there is none yet.
func (q *Queue) open() error {
	if q.stream != 0 {
		return nil
	}
	priority := int32(0)
	if q.urgent {
		priority = -1 // less is sooner
	}
	return q.device.call(cuStreamCreateWithPriority, "", uintptr(unsafe.Pointer(&q.stream)), nonBlocking, uintptr(priority))
}

// allocate returns bytes of device memory. Nothing is done on a queue before it has any:
// it is opened here.
func (q *Queue) allocate(bytes int) (uintptr, error) {
	bytes = max(bytes, 1)
	if err := q.open(); err != nil {
		return 0, err
	}
	var p uintptr
	if err := q.device.call(cuMemAlloc, fmt.Sprintf("%d bytes, beside %d that are in use", bytes, q.used), uintptr(unsafe.Pointer(&p)), uintptr(bytes)); err != nil {
		return 0, err
	}
	q.pieces.insert(piece{p, p + uintptr(bytes)})
	q.device.memory.Lock()
	q.device.pieces.insert(piece{p, p + uintptr(bytes)})
	q.device.take(int64(bytes))
	q.device.memory.Unlock()
	q.used += bytes
	q.peak = max(q.peak, q.used)
	return p, nil
}

// pieces are sorted by address.
type pieces []piece

// find returns where in s that is which begins at p, or would be.
func (s pieces) find(p uintptr) (int, bool) {
	return slices.BinarySearchFunc(s, p, func(a piece, p uintptr) int { return cmp.Compare(a.from, p) })
}

// hold reports whether p lies in one of s.
func (s pieces) hold(p uintptr) bool {
	at, found := s.find(p)
	return found || at > 0 && p < s[at-1].to
}

func (s *pieces) insert(x piece) {
	at, _ := s.find(x.from)
	*s = slices.Insert(*s, at, x)
}

// remove takes out what begins at p.
func (s *pieces) remove(p uintptr) (x piece, found bool) {
	at, found := s.find(p)
	if found {
		x = (*s)[at]
		*s = slices.Delete(*s, at, at+1)
	}
	return x, found
}

// free gives back what allocate returned. The driver waits for what uses it.
func (q *Queue) free(p uintptr) error {
	x, found := q.pieces.remove(p)
	if !found {
		panic("cuda: memory is given back that was not handed out")
	}
	q.used -= int(x.to - x.from)
	q.device.memory.Lock()
	q.device.pieces.remove(p)
	q.device.take(-int64(x.to - x.from))
	q.device.memory.Unlock()
	return q.device.call(cuMemFree, "", p)
}

// onDevice reports whether p is memory of this queue, or of another of the device's.
func (q *Queue) onDevice(p uintptr) bool {
	if q.pieces.hold(p) {
		return true
	}
	q.device.memory.RLock()
	defer q.device.memory.RUnlock()
	return q.device.pieces.hold(p)
}

// scratch returns bytes of device memory of unspecified content until the next call.
// Kernels run in order, so that those of the call before are done with it.
func (q *Queue) scratch(bytes int) uintptr {
	if int(q.spare.to-q.spare.from) < bytes {
		if q.spare.from != 0 {
			if err := q.free(q.spare.from); err != nil {
				panic(err)
			}
			q.spare = piece{}
		}
		bytes += bytes / 4
		p, err := q.allocate(bytes)
		if err != nil {
			panic(err)
		}
		q.spare = piece{p, p + uintptr(bytes)}
	}
	return q.spare.from
}

// arena hands out device memory until it is reset, and then has as much in one piece.
type arena struct {
	pieces []piece
	used   int // bytes of the last piece
	total  int // bytes handed out
}

const (
	arenaPiece = 1 << 20
	alignment  = 256 // bytes
)

func (a *arena) alloc(q *Queue, bytes int) uintptr {
	need := (bytes + alignment - 1) / alignment * alignment
	last := len(a.pieces) - 1
	if last < 0 || a.used+need > int(a.pieces[last].to-a.pieces[last].from) {
		size := max(need, arenaPiece)
		p, err := q.allocate(size)
		if err != nil {
			panic(err)
		}
		a.pieces, a.used = append(a.pieces, piece{p, p + uintptr(size)}), 0
		last++
	}
	p := a.pieces[last].from + uintptr(a.used)
	a.used += need
	a.total += need
	return p
}

func (a *arena) reset(q *Queue) {
	if len(a.pieces) > 1 {
		for _, p := range a.pieces {
			if err := q.free(p.from); err != nil {
				panic(err)
			}
		}
		size := a.total + a.total/8
		a.pieces = a.pieces[:0]
		p, err := q.allocate(size)
		if err != nil {
			panic(err)
		}
		a.pieces = append(a.pieces, piece{p, p + uintptr(size)})
	}
	a.used, a.total = 0, 0
}
