//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Alloc returns n numbers of device memory; see cpu.Device.
func (q *Queue) Alloc(n int) []float32 { return Alloc[float32](q, n) }

// AllocInts returns n indices of device memory; see cpu.Device.
func (q *Queue) AllocInts(n int) []uint32 { return Alloc[uint32](q, n) }

// Free gives back what Alloc returned.
func (q *Queue) Free(s []float32) { Free(q, s) }

// FreeInts gives back what AllocInts returned.
func (q *Queue) FreeInts(s []uint32) { Free(q, s) }

// Holds reports whether s is the device's memory; see cpu.Device.
func (q *Queue) Holds(s []float32) bool {
	return len(s) > 0 && q.onDevice(uintptr(unsafe.Pointer(&s[0])))
}

// Upload copies from the host to the device.
func (q *Queue) Upload(dst, src []float32) { Upload(q, dst, src) }

// Download copies to the host, from wherever src is.
func (q *Queue) Download(dst, src []float32) { Download(q, dst, src) }

// count returns 0, 1, ... n-1.
func count[E uint32 | int64](n int) []E {
	s := make([]E, n)
	for i := range s {
		s[i] = E(i)
	}
	return s
}

// rowOf returns the row of every entry that indptr counts.
func rowOf(indptr []int64) []uint32 {
	s := make([]uint32, indptr[len(indptr)-1])
	for i := range len(indptr) - 1 {
		for e := indptr[i]; e < indptr[i+1]; e++ {
			s[e] = uint32(i)
		}
	}
	return s
}

// TakeRows is cpu's.
func (q *Queue) TakeRows(dst, a matrix, ids []uint32) {
	from := q.dense(a)
	from.ids = of(q, ids)
	q.gather(dst, from)
}

// SparseProduct is cpu's.
func (q *Queue) SparseProduct(dst matrix, a *cpu.Sparse[float32], b matrix, e cpu.Epilogue[float32]) {
	q.sum(sumRows{
		indptr: of(q, a.Indptr), indices: of(q, a.Indices), weights: of(q, a.Values), src: q.dense(b),
		dst: result(q, dst.Data), dstStride: int64(dst.Stride),
		rows: int32(dst.Rows), cols: int32(dst.Cols), heads: 1, accumulate: flag(e.Accumulate),
	})
	if e.Bias != nil || e.Act != cpu.Linear { // a product over no terms leaves what it ends with
		e.Accumulate = true
		q.Gemm(dst, matrix{Rows: dst.Rows}, false, matrix{Cols: dst.Cols, Stride: dst.Cols}, false, e)
	}
}

// SumEntries is cpu's.
func (q *Queue) SumEntries(dst matrix, indptr []int64, a matrix, mean bool) {
	o := cpu.AggregateOptions[float32]{Reduce: cpu.Sum}
	if mean {
		o.Reduce = cpu.Mean
	}
	b := graph.Block{NumDst: dst.Rows, NumSrc: a.Rows, Indptr: indptr, Indices: count[uint32](a.Rows)}
	q.Aggregate(dst, &b, cpu.Source[float32]{Dense: a}, o)
}

// SpreadEntries is cpu's.
func (q *Queue) SpreadEntries(dst matrix, indptr []int64, a matrix, mean, accumulate bool) {
	rows := rowOf(indptr)
	var weights []float32
	if mean {
		weights = make([]float32, len(rows))
		for e, i := range rows {
			weights[e] = 1 / float32(indptr[i+1]-indptr[i])
		}
	}
	q.sum(sumRows{
		indptr: of(q, count[int64](len(rows)+1)), indices: of(q, rows), weights: of(q, weights), src: q.dense(a),
		dst: result(q, dst.Data), dstStride: int64(dst.Stride),
		rows: int32(dst.Rows), cols: int32(dst.Cols), heads: 1, accumulate: flag(accumulate),
	})
}

// ones is a matrix of n ones.
func ones(rows, cols int) matrix {
	m := cpu.NewMatrix[float32](rows, cols)
	for i := range m.Data {
		m.Data[i] = 1
	}
	return m
}

// RowSums is cpu's.
func (q *Queue) RowSums(dst []float32, a matrix) {
	q.Gemm(cpu.Dense(len(dst), 1, dst), a, false, ones(a.Cols, 1), false, cpu.Epilogue[float32]{})
}

// SpreadRows is cpu's.
func (q *Queue) SpreadRows(dst matrix, a []float32, accumulate bool) {
	q.Gemm(dst, cpu.Dense(len(a), 1, a), false, ones(1, dst.Cols), false, cpu.Epilogue[float32]{Accumulate: accumulate})
}

// TransposeDense is cpu's.
func (q *Queue) TransposeDense(dst, a matrix, accumulate bool) {
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	q.run("transpose", ceilDiv(a.Rows, 32), ceilDiv(a.Cols, 32), threads, result(q, dst.Data), int64(dst.Stride), of(q, a.Data), int64(a.Stride), a.Rows, a.Cols, accumulate)
}

// Larger is cpu's.
func (q *Queue) Larger(dst, a matrix, which []uint32, k uint32) {
	if n := dst.Rows * dst.Cols; n > 0 {
		q.run("larger_of", blocks(n), 1, threads, result(q, dst.Data), int64(dst.Stride), of(q, a.Data), int64(a.Stride), result(q, which), k, dst.Rows, dst.Cols)
	}
}

// Where is cpu's.
func (q *Queue) Where(dst, a matrix, which []uint32, k uint32) {
	if n := dst.Rows * dst.Cols; n > 0 {
		q.run("where", blocks(n), 1, threads, result(q, dst.Data), int64(dst.Stride), of(q, a.Data), int64(a.Stride), of(q, which), k, dst.Rows, dst.Cols)
	}
}
