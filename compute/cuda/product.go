//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// tile is what a block computes of a product.
type tile struct{ rows, cols int }

// kernel names the kernel of t for factors that are rounded to p.
func (t tile) kernel(p cpu.Precision) string {
	if p == cpu.Float32 {
		return fmt.Sprintf("product_%dx%d", t.rows, t.cols)
	}
	return fmt.Sprintf("product_%v_%dx%d", p, t.rows, t.cols)
}

// tiles are in the order of preference: larger ones read less for each product.
var tiles = [...]tile{{128, 128}, {128, 64}, {64, 64}}

// Where one side is short, most of those tiles would be outside of it, and of a small product there are too few.
var (
	flat  = tile{128, 32}
	high  = tile{32, 128}
	small = tile{32, 32} // of float32 alone
)

// enough blocks keep most of a large device busy, two on each multiprocessor. Tests change it.
var enough = 256

const (
	short     = 32
	splitRows = 128 // least terms of a part of a split k
	maxParts  = 128
	maxSplit  = 1 << 24 // values of all parts
)

// threads is how many threads a block has: one for each 8×8 elements, or 4×4 of a small one.
func (t tile) threads() int {
	if t == small {
		return t.rows * t.cols / 16
	}
	return t.rows * t.cols / 64
}

// shape returns the tile for a product of m×n elements, and into how many parts k is split, which only
// that of a product with A transposed is: the others' rows have bits that depend on k alone. Both are by the shape alone.
func shape(p cpu.Precision, ta bool, m, n, k int) (t tile, parts int) {
	split := func(t tile) int {
		parts := 1
		for ta && parts < maxParts && k >= 2*parts*splitRows && parts*t.blocks(m, n) < enough && 2*parts*m*n <= maxSplit {
			parts *= 2
		}
		return parts
	}
	fits := func(t tile) bool { return split(t)*t.blocks(m, n) >= enough }
	switch {
	case n <= short:
		t = flat
	case m <= short:
		t = high
	default:
		for _, t = range tiles {
			if n > t.cols/2 && m > t.rows/2 && fits(t) {
				return t, split(t)
			}
		}
	}
	if !fits(t) && 2*t.blocks(m, n) < enough && p == cpu.Float32 {
		t = small
	}
	return t, split(t)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (t tile) blocks(m, n int) int { return ceilDiv(m, t.rows) * ceilDiv(n, t.cols) }

// Gemm is cpu's. Every element is one sum over k by fused multiply-adds, or, with ta
// and K >= 256, the sum of up to 128 parts of it of at least 128 terms in order; with another
// precision than float32 a sum is what tensor cores add to it of eight terms in TF32, or sixteen in
// bfloat16, at a time; or it is what cuBLAS makes, if the device is to use it.
func (q *Queue) Gemm(dst, a matrix, ta bool, b matrix, tb bool, e cpu.Epilogue[float32]) {
	m, n, k := dst.Rows, dst.Cols, a.Cols
	if ta {
		k = a.Rows
	}
	act := e.Act
	if act == cpu.ELU { // whose exponential the tiles leave to a kernel of its own
		act = cpu.Linear
	}
	to, bias := result(q, dst.Data), of(q, e.Bias)
	if q.device.blas != nil && m > 0 && n > 0 && k > 0 {
		if err := q.blasProduct(dst, a, ta, b, tb, m, n, k, e.Accumulate); err != nil {
			panic(err)
		}
		if bias != 0 || act != cpu.Linear { // a sum of no parts, which dst is added to
			q.run("fold", blocks(m*n), 1, threads, to, int64(dst.Stride), uintptr(0), 0, m, n, bias, int(act), true)
		}
	} else if t, parts := shape(q.device.precision, ta, m, n, k); parts > 1 {
		priv := q.scratch(parts * m * n * 4)
		q.product(t, priv, n, a, ta, b, tb, m, n, k, parts, 0, cpu.Linear, false)
		q.run("fold", blocks(m*n), 1, threads, to, int64(dst.Stride), priv, parts, m, n, bias, int(act), e.Accumulate)
	} else {
		q.product(t, to, dst.Stride, a, ta, b, tb, m, n, k, 1, bias, act, e.Accumulate)
	}
	if act != e.Act {
		q.Elementwise(cpu.OpELU, dst, dst, dst, 0)
	}
}

func (q *Queue) product(t tile, to uintptr, stride int, a matrix, ta bool, b matrix, tb bool, m, n, k, parts int, bias uintptr, act cpu.Activation, accumulate bool) {
	pa, pb := of(q, a.Data), of(q, b.Data)
	wide := 0
	for i, x := range []struct {
		p            uintptr
		stride, cols int
	}{{pa, a.Stride, a.Cols}, {pb, b.Stride, b.Cols}, {to, stride, n}} {
		if x.p%16 == 0 && x.stride%4 == 0 && x.cols%4 == 0 {
			wide |= 1 << i
		}
	}
	terms := ceilDiv(k, parts)
	q.run(t.kernel(q.device.precision), ceilDiv(m, t.rows), ceilDiv(n, t.cols)*parts, t.threads(), to, int64(stride), pa, int64(a.Stride), pb, int64(b.Stride),
		m, n, k, ta, tb, wide, terms, bias, int(act), accumulate)
}

// chunkRows is the number of rows of a chunk of sums over rows, as sums.cu has it.
const chunkRows = 256

// ColumnSums is cpu's, with its bits.
func (q *Queue) ColumnSums(dst []float32, a matrix, accumulate bool) {
	if len(dst) == 0 {
		return
	}
	const threads = 128
	chunks := ceilDiv(a.Rows, chunkRows)
	parts := q.scratch(max(chunks, 1) * a.Cols * 4)
	if chunks > 0 {
		q.run("rows_summed", chunks, ceilDiv(a.Cols, threads), threads, parts, of(q, a.Data), int64(a.Stride), a.Rows, a.Cols)
	}
	q.run("rows_summed_fold", ceilDiv(a.Cols, threads), 1, threads, result(q, dst), parts, chunks, a.Cols, accumulate)
}

// Dot is cpu's, with its bits. It waits for the device.
func (q *Queue) Dot(a, b matrix) float64 {
	chunks := ceilDiv(a.Rows, chunkRows)
	if chunks == 0 || a.Cols == 0 {
		return 0
	}
	parts := q.scratch(chunks * 8)
	q.run("dot", chunks, 1, chunkRows, parts, of(q, a.Data), int64(a.Stride), of(q, b.Data), int64(b.Stride), a.Rows, a.Cols)
	sums := make([]float64, chunks)
	Download(q, sums, unsafe.Slice((*float64)(pointer(parts)), chunks))
	sum := 0.0
	for _, v := range sums {
		sum += v
	}
	return sum
}
