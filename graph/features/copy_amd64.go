package features

import (
	"os"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"github.com/gnnactor/gnnactor/graph"
)

// haveAVX2 chooses the kernels, which copy the same bytes as Go does.
// GNNACTOR_SIMD=go turns them off.
var haveAVX2 = os.Getenv("GNNACTOR_SIMD") != "go" && cpuid.CPU.Supports(cpuid.AVX2)

// copyFast copies n bytes of each of the rows [i0, i1) of r, if there is a
// kernel for them. The request was checked; the tables are as large as they say.
func copyFast(r *Request, src *graph.Features, i0, i1, n int, stream bool) bool {
	if !haveAVX2 || n < 32 || i1 <= i0 || len(src.Data) < (src.Rows-1)*src.Stride+n || len(r.Dst.Data) < (r.Dst.Rows-1)*r.Dst.Stride+n {
		return false
	}
	var order [rowsPerCall]uint32
	slots := order[:]
	if r.Slots != nil {
		slots = r.Slots[i0:i1]
	} else {
		for i := range slots {
			slots[i] = uint32(i0 + i)
		}
	}
	dst := unsafe.SliceData(r.Dst.Data)
	kernel := copyRowsAVX2
	if stream && (uintptr(unsafe.Pointer(dst))|uintptr(r.Dst.Stride)|uintptr(n))%32 == 0 {
		kernel = streamRowsAVX2
	}
	kernel(dst, r.Dst.Stride, unsafe.SliceData(src.Data), src.Stride, &slots[0], &r.IDs[i0], i1-i0, len(r.IDs)-i0, n)
	return true
}
