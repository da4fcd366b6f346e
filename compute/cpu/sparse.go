package cpu

import "github.com/gnnactor/gnnactor/graph"

// Sparse is a Rows×Cols matrix in CSR form: row i has the values
// Values[Indptr[i]:Indptr[i+1]] in the columns Indices of the same positions,
// ascending. Indptr need not start with 0.
type Sparse[T Float] struct {
	Rows, Cols int
	Indptr     []int64
	Indices    []uint32
	Values     []T
}

// NewSparse returns the values of f that are not zero.
func NewSparse(f *graph.Features) *Sparse[float32] {
	a := &Sparse[float32]{Rows: f.Rows, Cols: f.Cols, Indptr: make([]int64, 1, f.Rows+1)}
	row := make([]float32, f.Cols)
	for i := range f.Rows {
		f.Row(row, i)
		for j, v := range row {
			if v != 0 {
				a.Indices = append(a.Indices, uint32(j))
				a.Values = append(a.Values, v)
			}
		}
		a.Indptr = append(a.Indptr, int64(len(a.Indices)))
	}
	return a
}

// GatherSparse copies the rows ids of src (nil: the first rows) to dst, whose
// Rows and Indptr the caller has set: Indptr of length Rows+1, of any content.
// alloc returns the memory for that many indices and values. With drop not nil
// values are dropped and scaled as Dropout would in the dense matrix, and the
// dropped ones are left out.
func GatherSparse[T Float](x *Exec, dst *Sparse[T], src *Sparse[float32], ids []uint32, drop *Dropped, alloc func(n int) ([]uint32, []T)) {
	if ids != nil && len(ids) < dst.Rows || ids == nil && src.Rows < dst.Rows || len(dst.Indptr) != dst.Rows+1 {
		panic(badGather)
	}
	dst.Cols = src.Cols
	threshold, scale := uint32(0), T(1)
	if drop != nil {
		threshold, scale = drop.Threshold(), T(drop.Scale())
	}
	each := func(i int, f func(column uint32, v float32)) {
		r := i
		if ids != nil {
			r = int(ids[i])
		}
		begin, end := src.Indptr[r], src.Indptr[r+1]
		if threshold == 0 {
			for p := begin; p < end; p++ {
				f(src.Indices[p], src.Values[p])
			}
			return
		}
		key := drop.row(i)
		for p := begin; p < end; p++ {
			j := src.Indices[p]
			if uint32(key.Uint64(uint64(j)/4)>>(16*(j%4)))&0xffff >= threshold {
				f(j, src.Values[p])
			}
		}
	}
	chunks := ceilDiv(dst.Rows, rowsPerChunk)
	dst.Indptr[0] = 0
	x.For(chunks, func(_, c int) {
		for i := c * rowsPerChunk; i < min(dst.Rows, (c+1)*rowsPerChunk); i++ {
			n := int64(0)
			each(i, func(uint32, float32) { n++ })
			dst.Indptr[i+1] = n
		}
	})
	for i := range dst.Rows {
		dst.Indptr[i+1] += dst.Indptr[i]
	}
	dst.Indices, dst.Values = alloc(int(dst.Indptr[dst.Rows]))
	x.For(chunks, func(_, c int) {
		for i := c * rowsPerChunk; i < min(dst.Rows, (c+1)*rowsPerChunk); i++ {
			p := dst.Indptr[i]
			each(i, func(j uint32, v float32) {
				dst.Indices[p], dst.Values[p] = j, T(T(v)*scale)
				p++
			})
		}
	})
}

// TransposeSparse makes dst the transpose of a. The caller has set dst's
// Indptr, Indices and Values to lengths a.Cols+1, a's number of entries, and the
// same; their content is overwritten.
func TransposeSparse[T Float](dst, a *Sparse[T]) {
	if len(dst.Indptr) != a.Cols+1 || a.Indptr[0] != 0 || len(dst.Indices) != len(a.Indices) || len(dst.Values) != len(a.Values) {
		panic(badShapes)
	}
	dst.Rows, dst.Cols = a.Cols, a.Rows
	clear(dst.Indptr)
	for _, j := range a.Indices {
		dst.Indptr[j+1]++
	}
	for j := range a.Cols {
		dst.Indptr[j+1] += dst.Indptr[j]
	}
	for i := range a.Rows {
		for p := a.Indptr[i]; p < a.Indptr[i+1]; p++ {
			j := a.Indices[p]
			q := dst.Indptr[j]
			dst.Indptr[j] = q + 1
			dst.Indices[q], dst.Values[q] = uint32(i), a.Values[p]
		}
	}
	copy(dst.Indptr[1:], dst.Indptr[:a.Cols]) // each cursor has moved to its row's end
	dst.Indptr[0] = 0
}

// SparseProduct computes dst = Act(A·B + Bias + (dst if Accumulate)), where A is
// M×K, B is K×N and dst is M×N. Sums run over A's entries in order.
func SparseProduct[T Float](x *Exec, dst Matrix[T], a *Sparse[T], b Matrix[T], e Epilogue[T]) {
	dst.check()
	b.check()
	if dst.Rows != a.Rows || a.Cols != b.Rows || dst.Cols != b.Cols {
		panic(badShapes)
	}
	if e.Bias != nil && len(e.Bias) != dst.Cols {
		panic(badBias)
	}
	if d := DeviceOf[T](x); d != nil {
		d.SparseProduct(dst, a, b, e)
		return
	}
	x.For(ceilDiv(dst.Rows, rowsPerChunk), func(_, c int) {
		for i := c * rowsPerChunk; i < min(dst.Rows, (c+1)*rowsPerChunk); i++ {
			d := dst.Row(i)
			if !e.Accumulate {
				clear(d)
			}
			for p := a.Indptr[i]; p < a.Indptr[i+1]; p++ {
				axpy(d, a.Values[p], b.Row(int(a.Indices[p])))
			}
			finish(x.set, d, e.Bias, e.Act)
		}
	})
}

// TransposeDense computes dst = aᵀ, plus what dst held if accumulate.
func TransposeDense[T Float](x *Exec, dst, a Matrix[T], accumulate bool) {
	dst.check()
	a.check()
	if dst.Rows != a.Cols || dst.Cols != a.Rows {
		panic(badShapes)
	}
	if d := DeviceOf[T](x); d != nil {
		d.TransposeDense(dst, a, accumulate)
		return
	}
	x.For(ceilDiv(dst.Rows, rowsPerChunk), func(_, c int) {
		i0, i1 := c*rowsPerChunk, min(dst.Rows, (c+1)*rowsPerChunk)
		for j := range a.Rows {
			for i, v := range a.Row(j)[i0:i1] {
				o := (i0+i)*dst.Stride + j
				if accumulate {
					v += dst.Data[o]
				}
				dst.Data[o] = v
			}
		}
	})
}
