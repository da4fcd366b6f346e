package cpu

import (
	"math"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/rng"
)

// Attention is an aggregation weighted by a softmax over each destination's
// entries, for several heads at once. With values of Heads·C columns, head h
// has the columns [h·C, (h+1)·C). Only scores are stored per entry, Heads of
// them, never features.
type Attention[T Float] struct {
	Block *graph.Block
	Heads int
	Slope T // of LeakyReLU below 0

	// Loops lets every destination attend to itself exactly once: entries to
	// itself are left out (weight 0) and its own row takes part.
	Loops bool

	// Edge is added to the scores before LeakyReLU: entries×Heads, or nil. A
	// loop gets the mean over the destination's entries, 0 if it has none.
	Edge []T

	// Drop, if not nil, drops and scales weights after the softmax, keyed by
	// (destination, source, head); IDs are the sources' global ids.
	Drop *Dropped

	Alpha []T // the softmax weights, entries×Heads
	Self  []T // those of the loops, destinations×Heads; nil without Loops

	threshold uint32 // of Drop, 0 if nothing is dropped
	scale     T
}

const badAttention = "cpu: Attention: shapes do not match"

func (a *Attention[T]) check() {
	b, h := a.Block, a.Heads
	if h < 1 || b.NumSrc < b.NumDst || len(b.Indptr) != b.NumDst+1 || b.Indptr[0] != 0 || b.Indptr[b.NumDst] != int64(len(b.Indices)) || len(a.Alpha) != len(b.Indices)*h || a.Edge != nil && len(a.Edge) != len(a.Alpha) ||
		a.Loops && len(a.Self) != b.NumDst*h || len(b.Indices) >= NoEntry {
		panic(badAttention)
	}
}

func checkShape[T Float](m Matrix[T], rows, cols int) {
	m.check()
	if m.Rows < rows || m.Cols != cols {
		panic(badAttention)
	}
}

// skipped reports whether entry e of destination i is left out.
func (a *Attention[T]) skipped(i int, e int64) bool {
	return a.Loops && int(a.Block.Indices[e]) == i
}

// rows runs f for every destination, in chunks.
func (a *Attention[T]) rows(x *Exec, f func(i int)) {
	x.pool.For(ceilDiv(a.Block.NumDst, rowsPerChunk), func(_, c int) {
		for i := c * rowsPerChunk; i < min(a.Block.NumDst, (c+1)*rowsPerChunk); i++ {
			f(i)
		}
	})
}

// loopEdge returns the mean of a.Edge over the entries of destination i that
// are not left out, for head h, and how many those are.
func (a *Attention[T]) loopEdge(i, h int) (mean T, n int) {
	if a.Edge == nil {
		return 0, 0
	}
	for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
		if !a.skipped(i, e) {
			mean += a.Edge[int(e)*a.Heads+h]
			n++
		}
	}
	if n > 0 {
		mean /= T(n)
	}
	return mean, n
}

func leaky[T Float](v, slope T) T {
	if v < 0 {
		return v * slope
	}
	return v
}

// softmax turns the scores in Alpha and Self of destination i into weights.
func (a *Attention[T]) softmax(i int) {
	begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
	for h := range a.Heads {
		most := math.Inf(-1)
		if a.Loops {
			most = float64(a.Self[i*a.Heads+h])
		}
		for e := begin; e < end; e++ {
			if v := float64(a.Alpha[int(e)*a.Heads+h]); !a.skipped(i, e) && (v > most || v != v) {
				most = v
			}
		}
		sum := 0.0
		weight := func(p *T) {
			v := math.Exp(float64(*p) - most)
			*p = T(v)
			sum += v
		}
		for e := begin; e < end; e++ {
			if p := &a.Alpha[int(e)*a.Heads+h]; a.skipped(i, e) {
				*p = 0
			} else {
				weight(p)
			}
		}
		if a.Loops {
			weight(&a.Self[i*a.Heads+h])
		}
		inv := T(1 / sum)
		for e := begin; e < end; e++ {
			a.Alpha[int(e)*a.Heads+h] *= inv
		}
		if a.Loops {
			a.Self[i*a.Heads+h] *= inv
		}
	}
}

// Additive computes the weights of GAT's scores (Veličković et al., 2018):
// softmax over the entries e = (u, i) of LeakyReLU(src[u] + dst[i] + Edge[e]),
// per head. src is NumSrc×Heads, dst NumDst×Heads.
func (a *Attention[T]) Additive(x *Exec, src, dst Matrix[T]) {
	a.check()
	checkShape(src, a.Block.NumSrc, a.Heads)
	checkShape(dst, a.Block.NumDst, a.Heads)
	a.rows(x, func(i int) {
		d := dst.Row(i)
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			s := src.Row(int(a.Block.Indices[e]))
			for h := range a.Heads {
				a.Alpha[int(e)*a.Heads+h] = leaky(a.additive(s, d, e, h), a.Slope)
			}
		}
		if a.Loops {
			s := src.Row(i)
			for h := range a.Heads {
				edge, _ := a.loopEdge(i, h)
				a.Self[i*a.Heads+h] = leaky(s[h]+d[h]+edge, a.Slope)
			}
		}
		a.softmax(i)
	})
}

func (a *Attention[T]) additive(s, d []T, e int64, h int) T {
	v := s[h] + d[h]
	if a.Edge != nil {
		v += a.Edge[int(e)*a.Heads+h]
	}
	return v
}

// AdditiveBackward computes, from the gradients ds and dself of the activated
// scores (see Backward), which it overwrites, those of src, dst and Edge (dEdge
// may be nil). The matrices have the shapes of Additive's.
func (a *Attention[T]) AdditiveBackward(x *Exec, t *Transpose, ds, dself []T, src, dst, dsrc, ddst Matrix[T], dEdge []T) {
	a.rows(x, func(i int) {
		begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
		d, g := dst.Row(i), ddst.Row(i)
		clear(g)
		for e := begin; e < end; e++ {
			s := src.Row(int(a.Block.Indices[e]))
			for h := range a.Heads {
				p := &ds[int(e)*a.Heads+h]
				if a.skipped(i, e) {
					*p = 0
				} else if a.additive(s, d, e, h) < 0 {
					*p *= a.Slope
				}
				g[h] += *p
				if dEdge != nil {
					dEdge[int(e)*a.Heads+h] = *p
				}
			}
		}
		if !a.Loops {
			return
		}
		s := src.Row(i)
		for h := range a.Heads {
			p := &dself[i*a.Heads+h]
			edge, n := a.loopEdge(i, h)
			if s[h]+d[h]+edge < 0 {
				*p *= a.Slope
			}
			g[h] += *p
			if dEdge == nil || n == 0 {
				continue
			}
			for e := begin; e < end; e++ {
				if !a.skipped(i, e) {
					dEdge[int(e)*a.Heads+h] += *p / T(n)
				}
			}
		}
	})
	a.sources(x, t, func(u int) {
		g := dsrc.Row(u)
		clear(g)
		for k := t.Indptr[u]; k < t.Indptr[u+1]; k++ {
			for h := range a.Heads {
				g[h] += ds[int(t.Entry[k])*a.Heads+h]
			}
		}
		if a.Loops && u < t.NumDst {
			for h := range a.Heads {
				g[h] += dself[u*a.Heads+h]
			}
		}
	})
}

// sources runs f for every source, in chunks.
func (a *Attention[T]) sources(x *Exec, t *Transpose, f func(u int)) {
	x.pool.For(ceilDiv(t.NumSrc, rowsPerChunk), func(_, c int) {
		for u := c * rowsPerChunk; u < min(t.NumSrc, (c+1)*rowsPerChunk); u++ {
			f(u)
		}
	})
}

// dropKey is the stream of the draws for the entry from source u to destination
// i; head h has bits 16·(h mod 4) and up of its draw ⌊h/4⌋.
func (a *Attention[T]) dropKey(i, u int) rng.Key { return a.Drop.row(i).With(a.global(u)) }

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
		a.threshold, a.scale = a.Drop.threshold(), T(a.Drop.scale())
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
	a.chunksOf(x, a.Block.NumDst, func(w []T, i int) {
		d := dst.Row(i)
		clear(d)
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			if a.skipped(i, e) {
				continue
			}
			u := int(a.Block.Indices[e])
			a.axpy(d, a.weights(w, a.Alpha[int(e)*a.Heads:][:a.Heads], i, u), v.Row(u))
		}
		if a.Loops {
			a.axpy(d, a.weights(w, a.Self[i*a.Heads:][:a.Heads], i, i), v.Row(i))
		}
	})
}

// chunksOf runs f for rows [0, n) with scratch of Heads values.
func (a *Attention[T]) chunksOf(x *Exec, n int, f func(w []T, i int)) {
	const line = 16 // values between two workers' scratch, so that they share no cache line
	width := roundUp(a.Heads, line) + line
	buf := make([]T, width*x.pool.Size())
	x.pool.For(ceilDiv(n, rowsPerChunk), func(worker, c int) {
		w := buf[worker*width:][:a.Heads]
		for i := c * rowsPerChunk; i < min(n, (c+1)*rowsPerChunk); i++ {
			f(w, i)
		}
	})
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
	a.check()
	drops := a.drops()
	c := dy.Cols / a.Heads
	a.chunksOf(x, a.Block.NumDst, func(w []T, i int) {
		g := dy.Row(i)
		begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
		clear(w)
		entry := func(d, alpha []T, u int) {
			r := v.Row(u)
			for h := range d {
				sum := T(0)
				for j, q := range g[h*c : (h+1)*c] {
					sum += T(q * r[h*c+j])
				}
				d[h] = sum
			}
			if drops {
				a.mask(d, i, u)
			}
			for h, f := range d {
				w[h] += T(alpha[h] * f)
			}
		}
		for e := begin; e < end; e++ {
			d := ds[int(e)*a.Heads:][:a.Heads]
			if a.skipped(i, e) {
				clear(d)
				continue
			}
			entry(d, a.Alpha[int(e)*a.Heads:][:a.Heads], int(a.Block.Indices[e]))
		}
		if a.Loops {
			entry(dself[i*a.Heads:][:a.Heads], a.Self[i*a.Heads:][:a.Heads], i)
		}
		for p := int(begin) * a.Heads; p < int(end)*a.Heads; p++ {
			ds[p] = a.Alpha[p] * (ds[p] - w[p%a.Heads])
		}
		if a.Loops {
			for h := range a.Heads {
				p := i*a.Heads + h
				dself[p] = a.Self[p] * (dself[p] - w[h])
			}
		}
	})
	if dv.Data == nil {
		return
	}
	a.chunksOf(x, t.NumSrc, func(w []T, u int) {
		d := dv.Row(u)
		clear(d)
		for k := t.Indptr[u]; k < t.Indptr[u+1]; k++ {
			i, e := int(t.Dst[k]), int64(t.Entry[k])
			if !a.skipped(i, e) {
				a.axpy(d, a.weights(w, a.Alpha[int(e)*a.Heads:][:a.Heads], i, u), dy.Row(i))
			}
		}
		if a.Loops && u < t.NumDst {
			a.axpy(d, a.weights(w, a.Self[u*a.Heads:][:a.Heads], u, u), dy.Row(u))
		}
	})
}
