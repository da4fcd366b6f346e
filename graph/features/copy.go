package features

import (
	"context"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// rowsPerCall is how many rows are copied between looks at the context, and by
// one call of assembly, which cannot be preempted: some ten microseconds.
const rowsPerCall = 64

// streamBytes is from how many bytes on a request is written past the caches,
// which could not hold it until it is read.
const streamBytes = 4 << 20

// copyRows copies the rows of r from src. The request was checked.
func copyRows(ctx context.Context, r *Request, src *graph.Features) error {
	stream := len(r.IDs)*src.Stride >= streamBytes
	for i0 := 0; i0 < len(r.IDs); i0 += rowsPerCall {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		copyRun(r, src, i0, min(len(r.IDs), i0+rowsPerCall), stream)
	}
	return nil
}

// copyRun copies rows [i0, i1) of r.
func copyRun(r *Request, src *graph.Features, i0, i1 int, stream bool) {
	n := src.Cols * src.DType.Size()
	if !copyFast(r, src, i0, i1, n, stream) {
		for i := i0; i < i1; i++ {
			from, to := int(r.IDs[i])*src.Stride, r.slot(i)*r.Dst.Stride
			copy(r.Dst.Data[to:to+n], src.Data[from:from+n])
		}
	}
	if src.RowScale != nil {
		for i := i0; i < i1; i++ {
			r.Dst.RowScale[r.slot(i)] = src.RowScale[r.IDs[i]]
		}
	}
}

// uint32s views memory that is aligned to 4 bytes.
func uint32s(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
