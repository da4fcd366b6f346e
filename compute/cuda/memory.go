//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "unsafe"

// Alloc returns n elements of device memory of unspecified content, which the host must
// not read or write, until Free or Close. It panics with an *Error if there is not
// enough.
func Alloc[E any](q *Queue, n int) []E {
	var e E
	p, err := q.allocate(n * int(unsafe.Sizeof(e)))
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*E)(pointer(p)), n)
}

// Free gives back what Alloc returned.
func Free[E any](q *Queue, s []E) {
	if err := q.free(uintptr(unsafe.Pointer(unsafe.SliceData(s)))); err != nil {
		panic(err)
	}
}

// pointer is p as a pointer to memory that Go knows nothing of.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// Upload copies host memory to device memory of the same length. src may be changed
// once it returns.
func Upload[E any](q *Queue, dst, src []E) {
	if len(dst) != len(src) {
		panic("cuda: Upload: lengths differ")
	}
	if len(src) > 0 {
		q.upload(uintptr(unsafe.Pointer(&dst[0])), unsafe.Pointer(&src[0]), len(src)*int(unsafe.Sizeof(src[0])))
	}
}

// pinnedBytes is how much of the host's memory a queue pins.
const pinnedBytes = 4 << 20

// upload copies through pinned memory, a part at a time, so that the last copy runs while
// the host goes on. The driver never reads other memory of the host's: where that is a
// mapped file, a fault of it would end the program.
func (q *Queue) upload(to uintptr, from unsafe.Pointer, bytes int) {
	if err := q.tryUpload(to, from, bytes); err != nil {
		panic(err)
	}
}

func (q *Queue) tryUpload(to uintptr, from unsafe.Pointer, bytes int) error {
	for ; bytes > pinnedBytes; bytes -= pinnedBytes {
		if err := q.tryUpload(to, from, pinnedBytes); err != nil {
			return err
		}
		to, from = to+pinnedBytes, unsafe.Add(from, pinnedBytes)
	}
	if q.pinned == 0 {
		if err := q.device.call(cuMemHostAlloc, "pinned memory of the host", uintptr(unsafe.Pointer(&q.pinned)), pinnedBytes, 0); err != nil {
			return err
		}
	}
	if q.filled+bytes > pinnedBytes {
		if err := q.Wait(); err != nil {
			return err
		}
		q.filled = 0
	}
	p := q.pinned + uintptr(q.filled)
	copy(unsafe.Slice((*byte)(pointer(p)), bytes), unsafe.Slice((*byte)(from), bytes))
	q.device.toDevice.Add(int64(bytes))
	q.filled += (bytes + alignment - 1) / alignment * alignment
	return q.device.call(cuMemcpyHtoDAsync, "", to, p, uintptr(bytes), q.stream)
}

// Download waits for what was queued, and copies memory of the device, or of the host,
// to host memory of the same length.
func Download[E any](q *Queue, dst, src []E) {
	if len(dst) != len(src) {
		panic("cuda: Download: lengths differ")
	}
	if len(src) == 0 {
		return
	}
	if !q.onDevice(uintptr(unsafe.Pointer(&src[0]))) {
		copy(dst, src)
		return
	}
	q.device.toHost.Add(int64(len(src)) * int64(unsafe.Sizeof(src[0])))
	err := q.device.call(cuMemcpyDtoHAsync, "", uintptr(unsafe.Pointer(&dst[0])), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src))*unsafe.Sizeof(src[0]), q.stream)
	if err == nil {
		err = q.Wait()
	}
	if err != nil {
		panic(err)
	}
}

// of returns where a kernel finds s: its own address if it is device memory, else that
// of a copy, which stands until Reset. Nothing is at 0.
func of[E any](q *Queue, s []E) uintptr {
	if len(s) == 0 {
		return 0
	}
	p := uintptr(unsafe.Pointer(&s[0]))
	if q.onDevice(p) {
		return p
	}
	in := input{p, len(s) * int(unsafe.Sizeof(s[0]))}
	if at, ok := q.inputs[in]; ok {
		return at
	}
	at := q.arena.alloc(q, in.bytes)
	q.upload(at, unsafe.Pointer(&s[0]), in.bytes)
	q.kept = append(q.kept, s)
	q.inputs[in] = at
	return at
}

// result is of for memory that a kernel writes, which must be the device's.
func result[E any](q *Queue, s []E) uintptr {
	if len(s) == 0 {
		return 0
	}
	p := uintptr(unsafe.Pointer(&s[0]))
	if !q.onDevice(p) {
		panic("cuda: a kernel is to write to memory of the host")
	}
	return p
}
