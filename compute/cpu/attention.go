package cpu

import (
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// Attention is an aggregation weighted by a softmax over each destination's
// entries, for several heads at once. With values of Heads·C columns, head h
// has the columns [h·C, (h+1)·C). Only scores are stored per entry, Heads of
// them, never features.
type Attention[T Float] struct {
	Block *graph.Block
	Heads int
	Slope T // of LeakyReLU where its argument is not above 0, as ActivateBackward has it

	// Loops lets every destination attend to itself exactly once: entries to
	// itself are left out (weight 0) and its own row takes part.
	Loops bool

	// Edge is added to the scores before LeakyReLU: entries×Heads, or nil. A
	// loop gets the mean over the destination's entries, 0 if it has none.
	Edge []T

	// Weights multiply the exponentials of the entries' scores in the softmax: one
	// per entry, constants; nil: all 1. Loops keep theirs. An entry of weight 0
	// is left out, and where all are, and no loop takes part, every weight is 0.
	Weights []T

	// Drop, if not nil, drops and scales weights after the softmax, keyed by
	// (destination, source, head); IDs are the sources' global ids.
	Drop *Dropped

	// Of a softmax that has entries elsewhere, too, a block has some of each destination's. LogSum, if not nil, gets
	// the logarithms of the sums of the exponentials of the scores here, destinations×Heads, by which results of several
	// blocks are put together. Backward then takes Products, of what is put together: a destination's gradient times
	// its result, per head.
	LogSum, Products []T

	// Targets are the destinations' global ids for Drop; nil: those of the first sources.
	Targets []uint32

	Alpha []T // the softmax weights, entries×Heads
	Self  []T // those of the loops, destinations×Heads; nil without Loops

	threshold uint32 // of Drop, 0 if nothing is dropped
	scale     T
}

// attentionTask is one pass of an Attention: the exported methods say what the
// fields hold.
type attentionTask[T Float] struct {
	set  Set
	a    *Attention[T]
	t    *Transpose
	pass attentionPass

	src, dst, dsrc, ddst Matrix[T] // also l and r of Dynamic, and their gradients
	v, y                 Matrix[T]
	att, parts           []T
	ds, dself, dEdge     []T
	drops                bool
	n, rows              int // rows in all, and per chunk
}

type attentionPass uint8

const (
	passAdditive attentionPass = iota
	passAdditiveDst
	passAdditiveSrc
	passDynamic
	passDynamicDst
	passDynamicSrc
	passSum
	passScores
	passValues
)

// start runs pass t over n rows, those of destinations or of sources.
func (t attentionTask[T]) start(x *Exec, a *Attention[T], n int) {
	s := tasksOf[T](x)
	t.set, t.a, t.n, t.rows = x.set, a, n, rowsPerChunk
	s.attention = t
	x.each(ceilDiv(n, t.rows), &s.attention)
	s.attention = attentionTask[T]{}
}

func (t *attentionTask[T]) chunk(w *scratch, c int) {
	i0, i1 := c*t.rows, min(t.n, (c+1)*t.rows)
	if t.fastRows(w, i0, i1) {
		return
	}
	heads := panelOf[T](w, t.a.Heads)
	var part []T
	if t.parts != nil {
		part = t.parts[c*len(t.att):][:len(t.att)]
		clear(part)
	}
	for i := i0; i < i1; i++ {
		switch t.pass {
		case passAdditive:
			t.additive(w, i)
		case passAdditiveDst:
			t.additiveDst(w, i)
		case passAdditiveSrc:
			t.additiveSrc(i)
		case passDynamic:
			t.dynamic(w, i)
		case passDynamicDst:
			t.dynamicDst(w, i, part)
		case passDynamicSrc:
			t.dynamicSrc(w, i)
		case passSum:
			t.sum(heads, i)
		case passScores:
			t.scores(w, heads, i)
		case passValues:
			t.values(heads, i)
		}
	}
}

const badAttention = "cpu: Attention: shapes do not match"

func (a *Attention[T]) check() {
	b, h := a.Block, a.Heads
	if h < 1 || a.Loops && b.NumSrc < b.NumDst || a.LogSum != nil && len(a.LogSum) != b.NumDst*h || a.Products != nil && len(a.Products) != b.NumDst*h ||
		a.Targets != nil && len(a.Targets) != b.NumDst || len(b.Indptr) != b.NumDst+1 || b.Indptr[0] != 0 || b.Indptr[b.NumDst] != int64(len(b.Indices)) || len(a.Alpha) != len(b.Indices)*h || a.Weights != nil && len(a.Weights) != len(b.Indices) || a.Edge != nil && len(a.Edge) != len(a.Alpha) ||
		a.Loops && len(a.Self) != b.NumDst*h || len(b.Indices) >= NoEntry {
		panic(badAttention)
	}
}

// checkScores panics unless t is the transpose of a's block and ds and dself,
// gradients of scores, have the lengths of Alpha and Self.
func (a *Attention[T]) checkScores(t *Transpose, ds, dself []T) {
	a.check()
	b := a.Block
	if t.NumDst != b.NumDst || t.NumSrc != b.NumSrc || len(t.Indptr) != b.NumSrc+1 || len(t.Dst) != len(b.Indices) || len(t.Entry) != len(b.Indices) ||
		len(ds) != len(a.Alpha) || a.Loops && len(dself) != len(a.Self) {
		panic(badAttention)
	}
}

func checkShape[T Float](m Matrix[T], rows, cols int) {
	m.check()
	if m.Rows < rows || m.Cols != cols {
		panic(badAttention)
	}
}

// dropKey is the stream of the draws for the entry from source u to destination
// i; head h has bits 16·(h mod 4) and up of its draw ⌊h/4⌋.
func (a *Attention[T]) dropKey(i, u int) rng.Key {
	if a.Targets != nil {
		return a.Drop.Key.With(uint64(a.Targets[i])).With(a.global(u))
	}
	return a.Drop.row(i).With(a.global(u))
}

func (a *Attention[T]) global(u int) uint64 {
	if a.Drop.IDs != nil {
		return uint64(a.Drop.IDs[u])
	}
	return uint64(u)
}

// mask multiplies the heads d of the entry from source u to destination i by
// what dropout makes of them.
func (a *Attention[T]) mask(d []T, i, u int) {
	k, threshold, scale := a.dropKey(i, u), a.threshold, a.scale
	for h := 0; h < len(d); h += 4 {
		bits := k.Uint64(uint64(h) / 4)
		for g := h; g < min(h+4, len(d)); g++ {
			if uint32(bits)&0xffff < threshold {
				d[g] = 0
			} else {
				d[g] *= scale
			}
			bits >>= 16
		}
	}
}

// drops reports whether any weight is dropped, and prepares for mask.
func (a *Attention[T]) drops() bool {
	a.threshold = 0
	if a.Drop != nil {
		if a.Drop.IDs != nil && len(a.Drop.IDs) < a.Block.NumSrc {
			panic(badAttention)
		}
		a.threshold, a.scale = a.Drop.Threshold(), T(a.Drop.Scale())
	}
	return a.threshold > 0
}

// weights returns the weights alpha of the entry from source u to destination i
// after dropout: alpha itself, or w.
func (a *Attention[T]) weights(w, alpha []T, i, u int) []T {
	if a.threshold == 0 {
		return alpha
	}
	copy(w, alpha)
	a.mask(w, i, u)
	return w
}

// Sum computes dst[i] = Σ_e weight_e·v[u_e] per head, the loop included. v is
// NumSrc×(Heads·C), dst NumDst×(Heads·C).
func (a *Attention[T]) Sum(x *Exec, dst, v Matrix[T]) {
	a.check()
	checkShape(v, a.Block.NumSrc, v.Cols)
	checkShape(dst, a.Block.NumDst, v.Cols)
	if v.Cols%a.Heads != 0 {
		panic(badAttention)
	}
	a.drops()
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionSum(a, dst, v)
		return
	}
	attentionTask[T]{pass: passSum, v: v, y: dst}.start(x, a, a.Block.NumDst)
}

func (t *attentionTask[T]) sum(w []T, i int) {
	a, d := t.a, t.y.Row(i)
	clear(d)
	for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
		u := int(a.Block.Indices[e])
		a.axpy(d, a.weights(w, a.Alpha[int(e)*a.Heads:][:a.Heads], i, u), t.v.Row(u))
	}
	if a.Loops {
		a.axpy(d, a.weights(w, a.Self[i*a.Heads:][:a.Heads], i, i), t.v.Row(i))
	}
}

// axpy adds w[h]·s to d for the columns of every head h.
func (a *Attention[T]) axpy(d, w, s []T) {
	c := len(d) / a.Heads
	for h, f := range w {
		axpy(d[h*c:(h+1)*c], f, s[h*c:(h+1)*c])
	}
}

// Backward computes, from the gradient dy of Sum's result, that of its values v
// (dv, nil Data: not wanted) and, in ds and dself (shaped as Alpha and Self),
// those of the scores that the softmax was taken of.
func (a *Attention[T]) Backward(x *Exec, t *Transpose, dv, dy, v Matrix[T], ds, dself []T) {
	a.checkScores(t, ds, dself)
	checkShape(v, a.Block.NumSrc, v.Cols)
	checkShape(dy, a.Block.NumDst, v.Cols)
	if v.Cols%a.Heads != 0 {
		panic(badAttention)
	}
	if dv.Data != nil {
		checkShape(dv, a.Block.NumSrc, v.Cols)
	}
	drops := a.drops()
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionBackward(a, t, dv, dy, v, ds, dself)
		return
	}
	k := attentionTask[T]{pass: passScores, v: v, y: dy, ds: ds, dself: dself, drops: drops, t: t}
	k.start(x, a, a.Block.NumDst)
	if dv.Data == nil {
		return
	}
	k.pass, k.v = passValues, dv
	k.start(x, a, t.NumSrc)
}

// scores computes the gradients of destination i's scores; w is scratch of
// Heads values.
func (t *attentionTask[T]) scores(s *scratch, w []T, i int) {
	a := t.a
	begin, end := int(a.Block.Indptr[i]), int(a.Block.Indptr[i+1])
	clear(w)
	g := t.y.Row(i)
	if !t.fastDots(s, i) {
		for e := begin; e < end; e++ {
			a.dots(t.ds[e*a.Heads:][:a.Heads], g, t.v.Row(int(a.Block.Indices[e])))
		}
	}
	if t.drops {
		for e := begin; e < end; e++ {
			a.mask(t.ds[e*a.Heads:][:a.Heads], i, int(a.Block.Indices[e]))
		}
	}
	if a.Loops {
		d := t.dself[i*a.Heads:][:a.Heads]
		a.dots(d, g, t.v.Row(i))
		if t.drops {
			a.mask(d, i, i)
		}
	}
	if t.fastSoftmaxBackward(i) {
		return
	}
	row, alpha := t.ds[begin*a.Heads:end*a.Heads], a.Alpha[begin*a.Heads:end*a.Heads]
	if a.Products != nil {
		copy(w, a.Products[i*a.Heads:])
	} else {
		for k := 0; k < len(row); k += a.Heads {
			for h := range w {
				w[h] += T(alpha[k+h] * row[k+h])
			}
		}
		for h := 0; h < len(w) && a.Loops; h++ {
			w[h] += T(a.Self[i*a.Heads+h] * t.dself[i*a.Heads+h])
		}
	}
	for h := 0; h < len(w) && a.Loops; h++ {
		p := i*a.Heads + h
		t.dself[p] = a.Self[p] * (t.dself[p] - w[h])
	}
	for k := 0; k < len(row); k += a.Heads {
		for h := range w {
			row[k+h] = alpha[k+h] * (row[k+h] - w[h])
		}
	}
}

// dots computes d[h] = g_h·r_h for the columns of every head h.
func (a *Attention[T]) dots(d, g, r []T) {
	c := len(g) / a.Heads
	for h := range d {
		sum := T(0)
		for j, q := range g[h*c : (h+1)*c] {
			sum += T(q * r[h*c+j])
		}
		d[h] = sum
	}
}

func (t *attentionTask[T]) values(w []T, u int) {
	a, d := t.a, t.v.Row(u)
	clear(d)
	for k := t.t.Indptr[u]; k < t.t.Indptr[u+1]; k++ {
		i, e := int(t.t.Dst[k]), int(t.t.Entry[k])
		a.axpy(d, a.weights(w, a.Alpha[e*a.Heads:][:a.Heads], i, u), t.y.Row(i))
	}
	if a.Loops && u < t.t.NumDst {
		a.axpy(d, a.weights(w, a.Self[u*a.Heads:][:a.Heads], u, u), t.y.Row(u))
	}
}
