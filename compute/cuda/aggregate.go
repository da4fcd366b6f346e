//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// rowWarps is how many rows a thread block of a kernel over rows makes, and rowColumns
// how many groups of columns; see kernels/rows.h.
const (
	rowWarps   = 8
	rowColumns = 32
)

// source is where rows lie; the kernels' Source.
type source struct {
	data                  uintptr
	stride                int64 // bytes
	rowScale, columnScale uintptr
	ids                   uintptr
	dtype                 int64
}

// dropped is the kernels' Dropped.
type dropped struct {
	key       uint64
	ids       uintptr
	threshold uint32
	scale     float32
}

// sumRows is the kernels' SumRows.
type sumRows struct {
	indptr, indices, entry, forward uintptr
	weights, self                   uintptr
	src                             source
	own                             uintptr
	ownStride                       int64
	dst                             uintptr
	dstStride                       int64
	drop                            dropped
	rows, cols, heads, loops        int32
	mean, accumulate                int32
}

// dense is a matrix as a source of rows.
func (q *Queue) dense(m matrix) source {
	return source{data: of(q, m.Data), stride: 4 * int64(m.Stride), dtype: int64(graph.Float32)}
}

// source brings what a kernel reads of s's first rows to the device. Of a table that the
// device does not keep it is those rows alone.
func (q *Queue) source(s cpu.Source[float32], rows int) source {
	f := s.Table
	if f == nil {
		return q.dense(s.Dense)
	}
	if there, ok := q.resident(f, s.IDs); ok {
		return there
	}
	ids, data, stride, rowScale := s.IDs, f.Data, f.Stride, f.RowScale
	if ids != nil && len(data) > 0 && !q.onDevice(uintptr(unsafe.Pointer(&data[0]))) {
		size := f.Cols * f.DType.Size()
		data, stride, rowScale = make([]byte, rows*size), size, nil
		if f.RowScale != nil {
			rowScale = make([]float32, rows)
		}
		for i, id := range ids[:rows] {
			copy(data[i*size:], f.Data[int(id)*f.Stride:][:size])
			if rowScale != nil {
				rowScale[i] = f.RowScale[id]
			}
		}
		ids = nil
	}
	return source{of(q, data), int64(stride), of(q, rowScale), of(q, f.ColScale), of(q, ids), int64(f.DType)}
}

// by4 reports whether four values of s, and of rows of dst with that many columns a head,
// can be read and written at once. No bit depends on it.
func by4(s source, size int, dst uintptr, dstStride int64, cols int) bool {
	return cols%4 == 0 && (uint64(s.data)|uint64(s.stride))%uint64(4*size) == 0 && (uint64(dst)|uint64(4*dstStride))%16 == 0
}

// overRows runs a kernel over rows that makes so many columns in a thread.
func (q *Queue) overRows(name string, rows, cols, perThread int, p []uint64) {
	q.run(name, (rows+rowWarps-1)/rowWarps, (cols+rowColumns*perThread-1)/(rowColumns*perThread), rowWarps*32, p)
}

var sumBy4 = [...]string{graph.Float32: "sum_rows_f32x4", graph.Float16: "sum_rows_f16x4", graph.BFloat16: "sum_rows_bf16x4", graph.Int8: "sum_rows_i8x4", graph.Uint8: "sum_rows_u8x4"}

// sum runs the kernel of sum_rows that takes p.
func (q *Queue) sum(p sumRows) {
	if p.rows == 0 || p.cols == 0 {
		return
	}
	dtype := graph.DType(p.src.dtype)
	switch cols := int(p.cols / p.heads); {
	case by4(p.src, dtype.Size(), p.dst, p.dstStride, cols):
		q.overRows(sumBy4[dtype], int(p.rows), int(p.cols), 4, words(&p))
	case dtype == graph.Float32:
		q.overRows("sum_rows_f32x1", int(p.rows), int(p.cols), 1, words(&p))
	default:
		q.overRows("sum_rows_x1", int(p.rows), int(p.cols), 1, words(&p))
	}
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// Aggregate is cpu's.
func (q *Queue) Aggregate(dst matrix, b *graph.Block, src cpu.Source[float32], o cpu.AggregateOptions[float32]) {
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	from := q.source(src, b.NumSrc)
	if o.Reduce == cpu.Max {
		q.max(dst, b, from, o)
		return
	}
	loops := 0
	if o.Self != nil {
		loops = dst.Rows
	}
	q.sum(sumRows{
		indptr: of(q, b.Indptr), indices: of(q, b.Indices), weights: of(q, o.Weights), self: of(q, o.Self), src: from,
		dst: result(q, dst.Data), dstStride: int64(dst.Stride),
		rows: int32(dst.Rows), cols: int32(dst.Cols), heads: 1, loops: int32(loops), mean: flag(o.Reduce == cpu.Mean),
	})
}

// maxRows is the kernels' MaxRows.
type maxRows struct {
	indptr, indices, self uintptr
	src                   source
	dst                   uintptr
	dstStride             int64
	argmax                uintptr
	rows, cols            int32
}

func (q *Queue) max(dst matrix, b *graph.Block, from source, o cpu.AggregateOptions[float32]) {
	p := maxRows{
		indptr: of(q, b.Indptr), indices: of(q, b.Indices), self: of(q, o.Self), src: from,
		dst: result(q, dst.Data), dstStride: int64(dst.Stride), argmax: result(q, o.Argmax), rows: int32(dst.Rows), cols: int32(dst.Cols),
	}
	name := "max_rows"
	if graph.DType(from.dtype) == graph.Float32 {
		name = "max_rows_f32"
	}
	q.overRows(name, dst.Rows, dst.Cols, 1, words(&p))
}

// maxBackward is the kernels' MaxBackward.
type maxBackward struct {
	indptr, indices, entry, argmax, self uintptr
	dy                                   uintptr
	dyStride                             int64
	dx                                   uintptr
	dxStride                             int64
	rows, cols, loops, accumulate        int32
}

// AggregateBackward is cpu's.
func (q *Queue) AggregateBackward(dx matrix, t *cpu.Transpose, dy matrix, o cpu.AggregateOptions[float32]) {
	if dx.Rows == 0 || dx.Cols == 0 {
		return
	}
	loops := 0
	if o.Self != nil {
		loops = t.NumDst
	}
	if o.Reduce == cpu.Max {
		p := maxBackward{
			indptr: of(q, t.Indptr), indices: of(q, t.Dst), entry: of(q, t.Entry), argmax: of(q, o.Argmax), self: of(q, o.Self),
			dy: of(q, dy.Data), dyStride: int64(dy.Stride), dx: result(q, dx.Data), dxStride: int64(dx.Stride),
			rows: int32(dx.Rows), cols: int32(dx.Cols), loops: int32(loops), accumulate: flag(o.Accumulate),
		}
		q.overRows("max_backward", dx.Rows, dx.Cols, 1, words(&p))
		return
	}
	p := sumRows{
		indptr: of(q, t.Indptr), indices: of(q, t.Dst), entry: of(q, t.Entry), weights: of(q, o.Weights), self: of(q, o.Self), src: q.dense(dy),
		dst: result(q, dx.Data), dstStride: int64(dx.Stride),
		rows: int32(dx.Rows), cols: int32(dx.Cols), heads: 1, loops: int32(loops), accumulate: flag(o.Accumulate),
	}
	if o.Reduce == cpu.Mean {
		p.forward = of(q, t.Forward())
	}
	q.sum(p)
}

// gatherRows is the kernels' GatherRows.
type gatherRows struct {
	src        source
	dst        uintptr
	dstStride  int64
	rows, cols int32
}

// Gather is cpu's.
func (q *Queue) Gather(dst matrix, src cpu.Source[float32]) {
	q.gather(dst, q.source(src, dst.Rows))
}

func (q *Queue) gather(dst matrix, from source) {
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	p := gatherRows{src: from, dst: result(q, dst.Data), dstStride: int64(dst.Stride), rows: int32(dst.Rows), cols: int32(dst.Cols)}
	if by4(from, graph.DType(from.dtype).Size(), p.dst, p.dstStride, dst.Cols) {
		q.run("gather_rows_x4", blocks(dst.Rows*dst.Cols/4), 1, threads, words(&p))
	} else {
		q.run("gather_rows_x1", blocks(dst.Rows*dst.Cols), 1, threads, words(&p))
	}
}
