package cpu

import (
	"math"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// float32s returns Alpha if the assembly takes this task.
func (t *attentionTask[T]) float32s() ([]float32, bool) {
	alpha, ok := as32(t.a.Alpha)
	return alpha, ok && t.set != Go
}

func denseTable[T Float](m Matrix[T]) table {
	d, _ := as32(m.Data)
	return table{base: (*byte)(unsafe.Pointer(first(d))), stride: uint64(4 * m.Stride), rows: uint64(m.Rows), dtype: graph.Float32}
}

// fastRows runs a pass over rows [i0, i1) in assembly, if it can; if it returns
// false it has made the offsets of their entries for those steps that can.
func (t *attentionTask[T]) fastRows(w *scratch, i0, i1 int) bool {
	if _, ok := t.float32s(); !ok || i0 == i1 {
		return false
	}
	b := t.a.Block
	prepare := func(m Matrix[T], indptr []int64, indices []uint32) {
		tab := denseTable(m)
		w.begin = int(indptr[i0])
		tab.offsets(w, indices, w.begin, int(indptr[i1]), int(indptr[len(indptr)-1]))
	}
	switch t.pass {
	case passSum:
		t.sumHeads(w, t.y, t.v, b.Indptr, b.Indices, nil, b.NumDst, i0, i1)
		return true
	case passValues:
		t.sumHeads(w, t.v, t.y, t.t.Indptr, t.t.Dst, t.t.Entry, t.t.NumDst, i0, i1)
		return true
	case passAdditiveSrc:
		t.sumScores(w, i0, i1)
		return true
	case passScores:
		prepare(t.v, b.Indptr, b.Indices)
	case passDynamicSrc:
		prepare(t.dst, t.t.Indptr, t.t.Dst)
	default:
		prepare(t.src, b.Indptr, b.Indices)
	}
	return false
}

// sumHeads computes rows [i0, i1) of dst, the sums of rows of src, weighted by
// the softmax weights of the entries or, if entry is not nil, of the entries it
// names; rows below loops have one to themselves.
func (t *attentionTask[T]) sumHeads(w *scratch, dst, src Matrix[T], indptr []int64, indices, entry []uint32, loops, i0, i1 int) {
	a, heads := t.a, t.a.Heads
	alpha, _ := as32(a.Alpha)
	self, _ := as32(a.Self)
	d, _ := as32(dst.Data)
	if dst.Cols == 0 {
		return
	}
	_ = d[(i1-1)*dst.Stride+dst.Cols-1]
	tab := denseTable(src)
	c := dst.Cols / heads
	kernel := sumHeadAVX2
	if t.set == AVX512 {
		kernel = sumHeadAVX512
	}
	call := func(row int, coef []float32, flags int) {
		if len(coef) == 0 {
			coef = w.ones32(heads) // not read
		}
		for h := range heads {
			kernel(&d[row*dst.Stride+h*c], 4*dst.Stride, first(w.counts), len(w.counts), first(w.offsets), &coef[h], nil,
				(*byte)(unsafe.Add(unsafe.Pointer(tab.base), 4*h*c)), nil, c, flags, 4*heads)
		}
	}
	// destination and source of the entry at k, of row i
	ends := func(i, k int) (int, int) {
		if entry == nil {
			return i, int(indices[k])
		}
		return int(indices[k]), i
	}
	drop := func(coef []float32, i, u int) { a.mask(any(coef).([]T), i, u) }
	last := int(indptr[i1])
	runs(w, indptr, i0, i1, runLength(dst.Cols), func(row, e0, e1 int, more, _ bool) {
		tab.offsets(w, indices, e0, e1, last)
		coef := alpha[e0*heads : e1*heads]
		if entry != nil || a.threshold > 0 {
			w.coef = grow(w.coef, len(coef))
			copy(w.coef, coef)
			if entry != nil {
				for k, e := range entry[e0:e1] {
					copy(w.coef[k*heads:(k+1)*heads], alpha[int(e)*heads:])
				}
			}
			coef = w.coef
		}
		if a.threshold > 0 {
			k := e0
			for r, n := range w.counts {
				for range n {
					i, u := ends(row+r, k)
					drop(coef[(k-e0)*heads:(k-e0+1)*heads], i, u)
					k++
				}
			}
		}
		flags := 0
		if more {
			flags = flagAdd
		}
		call(row, coef, flags)
	})
	if !a.Loops {
		return
	}
	const length = 64
	for i := i0; i < min(i1, loops); i += length {
		n := min(length, min(i1, loops)-i)
		w.counts, w.offsets = grow(w.counts, n), grow(w.offsets, n+ahead)
		for r := range n + ahead {
			if r < n {
				w.counts[r] = 1
			}
			w.offsets[r] = tab.offset(uint32(i + min(r, n-1)))
		}
		coef := self[i*heads : (i+n)*heads]
		if a.threshold > 0 {
			w.coef = append(w.coef[:0], coef...)
			coef = w.coef
			for r := range n {
				drop(coef[r*heads:(r+1)*heads], i+r, i+r)
			}
		}
		call(i, coef, flagAdd)
	}
}

// sumScores adds up the gradients of the scores of sources [u0, u1).
func (t *attentionTask[T]) sumScores(w *scratch, u0, u1 int) {
	heads := t.a.Heads
	ds, _ := as32(t.ds)
	d, _ := as32(t.dsrc.Data)
	_ = d[(u1-1)*t.dsrc.Stride+heads-1]
	tab := table{base: (*byte)(unsafe.Pointer(first(ds))), stride: uint64(4 * heads), rows: uint64(len(ds) / heads), dtype: graph.Float32}
	kernel := t.set.sums(graph.Float32)
	length := runLength(heads)
	ones := w.ones32(length)
	last := int(t.t.Indptr[u1])
	runs(w, t.t.Indptr, u0, u1, length, func(row, e0, e1 int, more, _ bool) {
		tab.offsets(w, t.t.Entry, e0, e1, last)
		flags := 0
		if more {
			flags = flagAdd
		}
		kernel(&d[row*t.dsrc.Stride], 4*t.dsrc.Stride, first(w.counts), len(w.counts), first(w.offsets), first(ones), nil, tab.base, nil, heads, flags)
	})
	if !t.a.Loops {
		return
	}
	for u := u0; u < min(u1, t.t.NumDst); u++ {
		g := t.dsrc.Row(u)
		for h, v := range t.dself[u*heads:][:heads] {
			g[h] += v
		}
	}
}

// pieces cuts the entries of row i of indptr into pieces for one call each, and
// passes their offsets: n at a time at most.
func pieces(w *scratch, indptr []int64, i, n int, f func(e0, e1 int, offsets []uint64)) {
	for e, end := int(indptr[i]), int(indptr[i+1]); e < end; e += n {
		f(e, min(end, e+n), w.offsets[e-w.begin:])
	}
}

// fastScores makes the scores of destination i, or takes the backward step.
func (t *attentionTask[T]) fastScores(w *scratch, i int) bool {
	values, ok := t.float32s()
	a, heads := t.a, t.a.Heads
	if !ok || heads != 4 && heads != 8 {
		return false
	}
	kernel := scores8AVX2
	if heads == 4 {
		kernel = scores4AVX2
	}
	var sum *float32
	if t.pass == passAdditiveDst {
		kernel = scoresBackward8AVX2
		if heads == 4 {
			kernel = scoresBackward4AVX2
		}
		values, _ = as32(t.ds)
		g, _ := as32(t.ddst.Row(i))
		sum = &g[0]
	}
	edge, _ := as32(a.Edge)
	d, _ := as32(t.dst.Row(i))
	tab := denseTable(t.src)
	pieces(w, a.Block.Indptr, i, 1024, func(e0, e1 int, offsets []uint64) {
		var e *float32
		if edge != nil {
			e = &edge[e0*heads]
		}
		kernel(&values[e0*heads], e, &d[0], &offsets[0], e1-e0, tab.base, float32(a.Slope), sum)
	})
	return true
}

// fastDots computes, for the entries of destination i, the dot products per
// head of its row and theirs.
func (t *attentionTask[T]) fastDots(w *scratch, i int) bool {
	if _, ok := t.float32s(); !ok || t.y.Cols == 0 {
		return false
	}
	heads := t.a.Heads
	ds, _ := as32(t.ds)
	g, _ := as32(t.y.Row(i))
	tab := denseTable(t.v)
	pieces(w, t.a.Block.Indptr, i, runLength(t.y.Cols), func(e0, e1 int, offsets []uint64) {
		headDotsAVX2(&ds[e0*heads], &g[0], &offsets[0], e1-e0, tab.base, heads, len(g)/heads)
	})
	return true
}

// fastDynamic makes GATv2's scores of destination i.
func (t *attentionTask[T]) fastDynamic(w *scratch, i int) bool {
	alpha, ok := t.float32s()
	if !ok || len(t.att) == 0 {
		return false
	}
	heads := t.a.Heads
	r, _ := as32(t.dst.Row(i))
	att, _ := as32(t.att)
	tab := denseTable(t.src)
	pieces(w, t.a.Block.Indptr, i, runLength(len(r)), func(e0, e1 int, offsets []uint64) {
		dynamicScoresAVX2(&alpha[e0*heads], &r[0], &offsets[0], e1-e0, tab.base, heads, len(r)/heads, &att[0], float32(t.a.Slope))
	})
	return true
}

// fastGradients takes the backward step of GATv2's scores for the entries of
// destination i (part: of att's gradient) or, in the pass over sources, source i.
func (t *attentionTask[T]) fastGradients(w *scratch, i int, part []T) bool {
	if _, ok := t.float32s(); !ok || len(t.att) == 0 {
		return false
	}
	heads, c, slope := t.a.Heads, len(t.att)/t.a.Heads, float32(t.a.Slope)
	ds, _ := as32(t.ds)
	att, _ := as32(t.att)
	datt, _ := as32(part)
	indptr, m, o, d := t.a.Block.Indptr, t.src, t.dst, t.ddst
	if t.pass == passDynamicSrc {
		indptr, m, o, d = t.t.Indptr, t.dst, t.src, t.dsrc
	}
	own, _ := as32(o.Row(i))
	g, _ := as32(d.Row(i))
	base := unsafe.Pointer(denseTable(m).base)
	pieces(w, indptr, i, runLength(len(att)), func(e0, e1 int, offsets []uint64) {
		coef := ds[e0*heads : e1*heads]
		if t.pass == passDynamicSrc {
			w.coef = grow(w.coef, len(coef))
			coef = w.coef
			for k, e := range t.t.Entry[e0:e1] {
				copy(coef[k*heads:(k+1)*heads], ds[int(e)*heads:])
			}
		}
		for h := range heads {
			j := h * c
			b := (*byte)(unsafe.Add(base, 4*j))
			if datt == nil {
				headGradientsAVX2(&g[j], &own[j], &att[j], &offsets[0], &coef[h], 4*heads, e1-e0, b, slope, c)
			} else {
				headGradientsAttAVX2(&g[j], &own[j], &att[j], &offsets[0], &coef[h], 4*heads, e1-e0, b, slope, c, &datt[j])
			}
		}
	})
	return true
}

// flatLength is how many values one call to a kernel over lanes takes: lanes
// are summed in float32 within it, in float64 beyond.
const flatLength = 2048

// perHead reports whether the 8 lanes of a vector are whole entries, so that
// lane l belongs to head l modulo heads.
func perHead(heads int) bool { return lanes%heads == 0 }

// foldHeads makes every lane the sum of those of its head.
func foldHeads(s *[lanes]float64, heads int) {
	for h := range heads {
		for l := h + heads; l < lanes; l += heads {
			s[h] += s[l]
		}
	}
	for l := heads; l < lanes; l++ {
		s[l] = s[l%heads]
	}
}

// fastSoftmax turns the scores of destination i into weights.
func (t *attentionTask[T]) fastSoftmax(i int) bool {
	alpha, ok := t.float32s()
	heads := t.a.Heads
	if !ok || !perHead(heads) {
		return false
	}
	p := alpha[int(t.a.Block.Indptr[i])*heads : int(t.a.Block.Indptr[i+1])*heads]
	var own []float32
	var most, by, part [lanes]float32
	var sums [lanes]float64
	for l := range most {
		most[l] = float32(math.Inf(-1))
	}
	if t.a.Loops {
		self, _ := as32(t.a.Self)
		own = self[i*heads : (i+1)*heads]
		copy(most[:], own)
	}
	for k := 0; k < len(p); k += flatLength {
		maxLanesAVX2(&p[k], min(flatLength, len(p)-k), &most[0])
	}
	for l := heads; l < lanes; l++ {
		if v := most[l]; v > most[l%heads] || v != v {
			most[l%heads] = v
		}
	}
	for l := heads; l < lanes; l++ {
		most[l] = most[l%heads]
	}
	for k := 0; k < len(p); k += flatLength {
		part = [lanes]float32{}
		expLanesAVX2(&p[k], min(flatLength, len(p)-k), &most[0], &part[0])
		for l, v := range part {
			sums[l] += float64(v)
		}
	}
	for h, v := range own {
		own[h] = exp(v - most[h])
		sums[h] += float64(own[h])
	}
	foldHeads(&sums, heads)
	for l, v := range sums {
		by[l] = float32(1 / v)
	}
	for k := 0; k < len(p); k += flatLength {
		scaleLanesAVX2(&p[k], min(flatLength, len(p)-k), &by[0])
	}
	for h := range own {
		own[h] *= by[h]
	}
	return true
}

// fastSoftmaxBackward turns the gradients of destination i's weights, ds and
// dself, into those of its scores.
func (t *attentionTask[T]) fastSoftmaxBackward(i int) bool {
	alpha, ok := t.float32s()
	heads := t.a.Heads
	if !ok || !perHead(heads) {
		return false
	}
	begin, end := int(t.a.Block.Indptr[i])*heads, int(t.a.Block.Indptr[i+1])*heads
	all, _ := as32(t.ds)
	d, p := all[begin:end], alpha[begin:end]
	var own, down []float32
	if t.a.Loops {
		self, _ := as32(t.a.Self)
		dself, _ := as32(t.dself)
		own, down = self[i*heads:(i+1)*heads], dself[i*heads:(i+1)*heads]
	}
	var sums [lanes]float64
	var by, part [lanes]float32
	if products, _ := as32(t.a.Products); products != nil {
		for l := range by {
			by[l] = products[i*heads+l%heads]
		}
	} else {
		for k := 0; k < len(p); k += flatLength {
			part = [lanes]float32{}
			dotLanesAVX2(&p[k], &d[k], min(flatLength, len(p)-k), &part[0])
			for l, v := range part {
				sums[l] += float64(v)
			}
		}
		for h, v := range own {
			sums[h] += float64(v * down[h])
		}
		foldHeads(&sums, heads)
		for l, v := range sums {
			by[l] = float32(v)
		}
	}
	for k := 0; k < len(p); k += flatLength {
		softmaxBackwardAVX2(&d[k], &p[k], min(flatLength, len(p)-k), &by[0])
	}
	for h, v := range own {
		down[h] = v * (down[h] - by[h])
	}
	return true
}
