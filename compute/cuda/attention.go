//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// attention is the kernels' Attention.
type attention struct {
	indptr, indices      uintptr
	src, dst             uintptr
	srcStride, dstStride int64
	att, edge, weights   uintptr
	alpha, self          uintptr
	ds, dself            uintptr
	ddst                 uintptr
	ddstStride           int64
	dedge                uintptr
	drop                 dropped
	rows, heads, cols    int32
	loops, dynamic       int32
	slope                float32
}

// mostHeads is how many heads the kernels take: the weights of an entry fit in the shared
// memory of a warp.
const mostHeads = 128

// attention is what all passes over the destinations of a take.
func (q *Queue) attention(a *cpu.Attention[float32]) attention {
	if a.Heads > mostHeads {
		panic(fmt.Sprintf("cuda: attention has %d heads; a device takes up to %d", a.Heads, mostHeads))
	}
	return attention{
		indptr: of(q, a.Block.Indptr), indices: of(q, a.Block.Indices), edge: of(q, a.Edge), weights: of(q, a.Weights),
		alpha: result(q, a.Alpha), self: result(q, a.Self),
		rows: int32(a.Block.NumDst), heads: int32(a.Heads), loops: flag(a.Loops), slope: a.Slope,
	}
}

func (q *Queue) attend(name string, p *attention) {
	if p.rows > 0 {
		q.run(name, (int(p.rows)+rowWarps-1)/rowWarps, 1, rowWarps*32, words(p))
	}
}

// AttentionAdditive is Attention.Additive of cpu.
func (q *Queue) AttentionAdditive(a *cpu.Attention[float32], src, dst matrix) {
	p := q.attention(a)
	p.src, p.srcStride, p.dst, p.dstStride = of(q, src.Data), int64(src.Stride), of(q, dst.Data), int64(dst.Stride)
	q.attend("attention_weights", &p)
}

// AttentionDynamic is Attention.Dynamic of cpu.
func (q *Queue) AttentionDynamic(a *cpu.Attention[float32], l, r matrix, att []float32) {
	p := q.attention(a)
	p.src, p.srcStride, p.dst, p.dstStride = of(q, l.Data), int64(l.Stride), of(q, r.Data), int64(r.Stride)
	p.att, p.cols, p.dynamic = of(q, att), int32(len(att)), 1
	q.attend("attention_weights", &p)
}

// AttentionSum is Attention.Sum of cpu.
func (q *Queue) AttentionSum(a *cpu.Attention[float32], dst, v matrix) {
	q.weighted(a, dst, q.dense(v), a.Block.Indptr, a.Block.Indices, nil, a.Block.NumDst)
}

// weighted sums rows of src, weighted by a's weights, over a's block or its transpose.
func (q *Queue) weighted(a *cpu.Attention[float32], dst matrix, src source, indptr []int64, indices, entry []uint32, loops int) {
	if !a.Loops {
		loops = 0
	}
	q.sum(sumRows{
		indptr: of(q, indptr), indices: of(q, indices), entry: of(q, entry), weights: of(q, a.Alpha), self: of(q, a.Self), src: src,
		dst: result(q, dst.Data), dstStride: int64(dst.Stride), drop: q.drop(a.Drop),
		rows: int32(len(indptr) - 1), cols: int32(dst.Cols), heads: int32(a.Heads), loops: int32(loops),
	})
}

// AttentionBackward is Attention.Backward of cpu.
func (q *Queue) AttentionBackward(a *cpu.Attention[float32], t *cpu.Transpose, dv, dy, v matrix, ds, dself []float32) {
	p := q.attention(a)
	p.src, p.srcStride, p.dst, p.dstStride = of(q, v.Data), int64(v.Stride), of(q, dy.Data), int64(dy.Stride)
	p.ds, p.dself, p.drop, p.cols = result(q, ds), result(q, dself), q.drop(a.Drop), int32(v.Cols)
	q.attend("attention_scores_backward", &p)
	if dv.Data != nil {
		q.weighted(a, dv, q.dense(dy), t.Indptr, t.Dst, t.Entry, t.NumDst)
	}
}

// AttentionAdditiveBackward is Attention.AdditiveBackward of cpu.
func (q *Queue) AttentionAdditiveBackward(a *cpu.Attention[float32], t *cpu.Transpose, ds, dself []float32, src, dst, dsrc, ddst matrix, dedge []float32) {
	p := q.attention(a)
	p.src, p.srcStride, p.dst, p.dstStride = of(q, src.Data), int64(src.Stride), of(q, dst.Data), int64(dst.Stride)
	p.ds, p.dself, p.ddst, p.ddstStride, p.dedge = result(q, ds), result(q, dself), result(q, ddst.Data), int64(ddst.Stride), result(q, dedge)
	q.attend("attention_additive_backward", &p)
	// A source's is the sum of its entries' gradients, and of its loop's.
	loops := 0
	if a.Loops {
		loops = t.NumDst
	}
	q.sum(sumRows{
		indptr: of(q, t.Indptr), indices: of(q, t.Entry), src: source{data: p.ds, stride: 4 * int64(a.Heads), dtype: int64(graph.Float32)},
		own: p.dself, ownStride: int64(a.Heads), dst: result(q, dsrc.Data), dstStride: int64(dsrc.Stride),
		rows: int32(t.NumSrc), cols: int32(a.Heads), heads: 1, loops: int32(loops),
	})
}

// dynamicRows is the kernels' DynamicRows.
type dynamicRows struct {
	indptr, indices, entry   uintptr
	own, other               uintptr
	ownStride, otherStride   int64
	att, ds, dself           uintptr
	gradient                 uintptr
	gradientStride           int64
	parts                    uintptr
	rows, heads, cols, loops int32
	accumulate               int32
	slope                    float32
}

// AttentionDynamicBackward is Attention.DynamicBackward of cpu.
func (q *Queue) AttentionDynamicBackward(a *cpu.Attention[float32], t *cpu.Transpose, ds, dself []float32, l, r matrix, att []float32, dl, dr matrix, datt []float32) {
	cols := len(att)
	if cols == 0 {
		return
	}
	blocks := (a.Block.NumDst + rowWarps - 1) / rowWarps
	p := dynamicRows{
		indptr: of(q, a.Block.Indptr), indices: of(q, a.Block.Indices), own: of(q, r.Data), ownStride: int64(r.Stride), other: of(q, l.Data), otherStride: int64(l.Stride),
		att: of(q, att), ds: of(q, ds), dself: of(q, dself), gradient: result(q, dr.Data), gradientStride: int64(dr.Stride), parts: q.scratch(4 * blocks * cols),
		rows: int32(a.Block.NumDst), heads: int32(a.Heads), cols: int32(cols), slope: a.Slope,
	}
	if a.Loops {
		p.loops = int32(t.NumDst)
	}
	if p.rows > 0 {
		q.overRows("dynamic_backward", int(p.rows), cols, 1, words(&p))
	}
	q.run("dynamic_att", (cols+threads-1)/threads, 1, threads, result(q, datt), p.parts, blocks, cols)
	p.indptr, p.indices, p.entry, p.rows = of(q, t.Indptr), of(q, t.Dst), of(q, t.Entry), int32(t.NumSrc)
	p.own, p.ownStride, p.other, p.otherStride = p.other, p.otherStride, p.own, p.ownStride
	p.gradient, p.gradientStride, p.parts, p.accumulate = result(q, dl.Data), int64(dl.Stride), 0, 1
	if p.rows > 0 {
		q.overRows("dynamic_backward", int(p.rows), cols, 1, words(&p))
	}
}
