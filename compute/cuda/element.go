//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "github.com/gnnactor/gnnactor/compute/cpu"

// matrix is a view whose elements are on the device.
type matrix = cpu.Matrix[float32]

// threads is how many threads a block of an element-wise kernel has, and maxBlocks how
// many blocks.
const (
	threads   = 256
	maxBlocks = 4096
)

// blocks is how many blocks of a kernel go over n elements: by n alone.
func blocks(n int) int { return min((n+threads-1)/threads, maxBlocks) }

// Elementwise is cpu's.
func (q *Queue) Elementwise(op cpu.ElementOp, dst, a, b matrix, f float32) {
	n := dst.Rows * dst.Cols
	if n == 0 {
		return
	}
	q.run("element", blocks(n), 1, threads, int(op), result(q, dst.Data), int64(dst.Stride),
		of(q, a.Data), int64(a.Stride), of(q, b.Data), int64(b.Stride), dst.Rows, dst.Cols, f)
}
