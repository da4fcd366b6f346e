package cpu

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// ahead is how many rows the kernels prefetch, farAhead how many those for tables in
// memory do; see internal/asm/cpu.
const (
	ahead    = 16
	farAhead = 48
)

// farTable is from how many bytes on a table counts as lying in memory; a variable
// for tests.
var farTable uint64 = 32 << 20

// sumFunc is a weighted sum of rows; see internal/asm/cpu.
type sumFunc = func(dst *float32, ldd int, counts *int32, rows int, offsets *uint64, coef, scale *float32, base *byte, column *float32, cols, flags int)

// The flags of a sumFunc; see internal/asm/cpu.
const (
	flagAdd    = 1
	flagStream = 2
)

var sumsAVX2 = [...]sumFunc{graph.Float32: sumF32AVX2, graph.Float16: sumF16AVX2, graph.BFloat16: sumBF16AVX2, graph.Int8: sumI8AVX2, graph.Uint8: sumU8AVX2}

var sumsAVX512 = [...]sumFunc{graph.Float32: sumF32AVX512, graph.Float16: sumF16AVX512, graph.BFloat16: sumBF16AVX512, graph.Int8: sumI8AVX512, graph.Uint8: sumU8AVX512}

// The same for tables in memory. One thread's random rows of 512 bytes out of 1 GiB
// on a Xeon: 8.2 to 10.7 GB/s; of rows in the caches a sixth less.
var farsAVX512 = [...]sumFunc{graph.Float32: farF32AVX512, graph.Float16: farF16AVX512, graph.BFloat16: farBF16AVX512, graph.Int8: farI8AVX512, graph.Uint8: farU8AVX512}

// table is where the rows of a sparse kernel lie: row i, or ids[i], of rows
// rows that are stride bytes apart.
type table struct {
	base             *byte
	stride           uint64
	rows             uint64
	ids              []uint32
	dtype            graph.DType
	rowScale, column []float32
	ahead            int // rows that the kernel prefetches
}

// sums returns the kernel that adds up rows of t, and sets how many it prefetches.
func (t *table) sums(set Set) sumFunc {
	if set == AVX512 && t.rows*t.stride >= farTable {
		t.ahead = farAhead
		return farsAVX512[t.dtype]
	}
	t.ahead = ahead
	return set.sums(t.dtype)
}

// tableOf describes src, or reports false if only the portable path reads it.
func tableOf[T Float](src *Source[T], ones []float32) (table, bool) {
	base, stride, rows := src.bytes()
	t := table{base: (*byte)(base), stride: uint64(stride), rows: uint64(rows), dtype: graph.Float32, ahead: ahead}
	if f := src.Table; f != nil {
		if f.Cols > 0 && rows > 0 && (stride < 0 || len(f.Data) < (rows-1)*stride+f.Cols*f.DType.Size()) {
			panic(badMatrix)
		}
		t.ids, t.dtype = src.IDs, f.DType
		if f.DType == graph.Int8 {
			t.rowScale, t.column = f.RowScale, f.ColScale
			if t.column == nil {
				t.column = ones
			}
		}
	}
	return t, int(t.dtype) < len(sumsAVX2) && t.dtype != 0
}

// offset returns where the row of local id u lies.
func (t *table) offset(u uint32) uint64 {
	if t.ids != nil {
		u = t.ids[u]
	}
	if uint64(u) >= t.rows {
		panic(badIndex)
	}
	return uint64(u) * t.stride
}

// offsets fills w.offsets with the offsets of indices[e0:e1] and, for the
// prefetcher, of the entries after them, up to last; what is then still missing
// repeats the last one.
func (t *table) offsets(w *scratch, indices []uint32, e0, e1, last int) {
	n := e1 - e0 + t.ahead
	w.offsets = grow(w.offsets, n)
	o := w.offsets
	in := indices[e0:min(last, e1+t.ahead)]
	switch {
	case len(in) == 0:
	case t.ids == nil && t.stride < 1<<32:
		if uint64(offsetsAVX2(&o[0], &in[0], len(in), t.stride)) >= t.rows {
			panic(badIndex)
		}
	case t.ids == nil:
		for i, u := range in {
			if uint64(u) >= t.rows {
				panic(badIndex)
			}
			o[i] = uint64(u) * t.stride
		}
	default:
		for i, u := range in {
			u = t.ids[u]
			if uint64(u) >= t.rows {
				panic(badIndex)
			}
			o[i] = uint64(u) * t.stride
		}
	}
	pad := uint64(0)
	if len(in) > 0 {
		pad = o[len(in)-1]
	}
	for i := len(in); i < n; i++ {
		o[i] = pad
	}
}

// runLength is how many entries one call to a kernel takes: it cannot be
// preempted, so it stays at some ten microseconds.
func runLength(cols int) int { return max(16, min(256, 32768/max(cols, 1))) }

// runs cuts rows [i0, i1) of a CSR matrix into runs for one call each: several
// whole rows, or, if a row is longer than a run, a part of it. For each it sets
// w.counts and calls f with the first row, the range of entries, whether this
// goes on with a row and whether it ends the row.
func runs(w *scratch, indptr []int64, i0, i1, length int, f func(row, e0, e1 int, more, ends bool)) {
	for i := i0; i < i1; {
		e0 := int(indptr[i])
		if n := int(indptr[i+1]) - e0; n > length {
			e1 := e0 + n
			for e := e0; e < e1; e += length {
				end := min(e1, e+length)
				w.counts = append(w.counts[:0], int32(end-e))
				f(i, e, end, e > e0, end == e1)
			}
			i++
			continue
		}
		w.counts = w.counts[:0]
		row, e := i, e0
		for i < i1 && len(w.counts) < length {
			next := int(indptr[i+1])
			if next-e0 > length {
				break
			}
			w.counts = append(w.counts, int32(next-e))
			e = next
			i++
		}
		f(row, e0, e, false, true)
	}
}

// ones32 returns n ones.
func (w *scratch) ones32(n int) []float32 {
	for len(w.ones) < n {
		w.ones = append(w.ones, 1)
	}
	return w.ones[:n]
}

func (x Set) sums(t graph.DType) sumFunc {
	if x == AVX512 {
		return sumsAVX512[t]
	}
	return sumsAVX2[t]
}

func first[E any](s []E) *E { return unsafe.SliceData(s) }

// streams reports whether to store the rows of m, which has the values d, past
// the caches: whole cache lines only.
func streams[T Float](d []float32, m Matrix[T]) bool {
	return m.Rows*m.Cols >= streamed && (m.Cols|m.Stride)%16 == 0 && uintptr(unsafe.Pointer(first(d)))%64 == 0
}

// reciprocals sets w.scale to 1/count for the rows of the run.
func (w *scratch) reciprocals() *float32 {
	w.scale = grow(w.scale, len(w.counts))
	for r, n := range w.counts {
		w.scale[r] = 1 / float32(max(n, 1))
	}
	return first(w.scale)
}

func (t *aggregateTask[T]) fast(w *scratch, i0, i1 int) bool {
	dst, ok := as32(t.dst.Data)
	cols := t.dst.Cols
	if !ok || t.set == Go || cols == 0 {
		return false
	}
	tab, ok := tableOf(&t.src, w.ones32(cols))
	if !ok || t.o.Reduce == Max && tab.dtype != graph.Float32 {
		return false
	}
	if i0 == i1 {
		return true
	}
	_ = dst[(i1-1)*t.dst.Stride+cols-1]
	if t.o.Reduce == Max {
		t.fastMax(w, dst, &tab, i0, i1)
	} else {
		t.fastSum(w, dst, &tab, i0, i1)
	}
	if t.o.Self != nil {
		self, _ := as32(t.o.Self)
		addSelf(w, t.set, dst, t.dst.Stride, cols, &tab, self, i0, i1)
	}
	return true
}

func (t *aggregateTask[T]) fastSum(w *scratch, dst []float32, tab *table, i0, i1 int) {
	weights, _ := as32(t.o.Weights)
	cols, ldd := t.dst.Cols, t.dst.Stride
	kernel := tab.sums(t.set)
	length := runLength(cols)
	ones := w.ones32(max(length, cols))
	last := int(t.b.Indptr[i1])
	stream := t.o.Self == nil && streams(dst, t.dst)
	runs(w, t.b.Indptr, i0, i1, length, func(row, e0, e1 int, more, ends bool) {
		tab.offsets(w, t.b.Indices, e0, e1, last)
		coef := ones
		if weights != nil {
			coef = weights[e0:e1]
		}
		if tab.rowScale != nil {
			coef = tab.scaled(w, coef, t.b.Indices[e0:e1])
		}
		var scale *float32
		if t.o.Reduce == Mean && ends {
			if more {
				w.scale = append(w.scale[:0], 1/float32(t.b.Indptr[row+1]-t.b.Indptr[row]))
				scale = first(w.scale)
			} else {
				scale = w.reciprocals()
			}
		}
		flags := 0
		if more {
			flags = flagAdd
		}
		if stream && ends && !more {
			flags = flagStream
		}
		kernel(&dst[row*ldd], 4*ldd, first(w.counts), len(w.counts), first(w.offsets), first(coef), scale, tab.base, first(tab.column), cols, flags)
	})
}

// scaled returns coef times the scales of the rows, in w.coef.
func (t *table) scaled(w *scratch, coef []float32, indices []uint32) []float32 {
	w.coef = grow(w.coef, len(indices))
	for i, u := range indices {
		if t.ids != nil {
			u = t.ids[u]
		}
		w.coef[i] = coef[i] * t.rowScale[u]
	}
	return w.coef
}

// addSelf adds self[i]·(row i of tab) to rows [i0, i1) of dst.
func addSelf(w *scratch, set Set, dst []float32, ldd, cols int, tab *table, self []float32, i0, i1 int) {
	kernel := tab.sums(set)
	length := runLength(cols)
	for i := i0; i < i1; i += length {
		n := min(length, i1-i)
		w.counts, w.offsets = grow(w.counts, n), grow(w.offsets, n+tab.ahead)
		coef := self[i : i+n]
		for r := range n {
			w.counts[r] = 1
			w.offsets[r] = tab.offset(uint32(i + r))
		}
		for r := n; r < n+tab.ahead; r++ {
			w.offsets[r] = w.offsets[n-1]
		}
		if tab.rowScale != nil {
			w.coef = grow(w.coef, n)
			for r := range n {
				u := uint32(i + r)
				if tab.ids != nil {
					u = tab.ids[u]
				}
				w.coef[r] = coef[r] * tab.rowScale[u]
			}
			coef = w.coef
		}
		kernel(&dst[i*ldd], 4*ldd, first(w.counts), n, first(w.offsets), first(coef), nil, tab.base, first(tab.column), cols, 1)
	}
}

func (t *aggregateTask[T]) fastMax(w *scratch, dst []float32, tab *table, i0, i1 int) {
	cols, ldd := t.dst.Cols, t.dst.Stride
	kernel := maxAVX2
	if t.set == AVX512 {
		kernel = maxAVX512
	}
	last := int(t.b.Indptr[i1])
	length := runLength(cols)
	arg := t.o.Argmax
	for i := i0; i < i1; {
		// Rows without entries have no maximum; the kernel takes the others.
		if t.b.Indptr[i] == t.b.Indptr[i+1] {
			t.max(w, i, t.dst.Row(i))
			i++
			continue
		}
		end := i + 1
		for end < i1 && t.b.Indptr[end] < t.b.Indptr[end+1] {
			end++
		}
		runs(w, t.b.Indptr, i, end, length, func(row, e0, e1 int, more, _ bool) {
			tab.offsets(w, t.b.Indices, e0, e1, last)
			to := arg
			if to == nil {
				w.arg = grow(w.arg, len(w.counts)*cols)
				to = w.arg
			} else {
				to = arg[row*cols:]
			}
			acc := 0
			if more {
				acc = 1
			}
			kernel(&dst[row*ldd], 4*ldd, first(to), 4*cols, first(w.counts), len(w.counts), first(w.offsets), tab.base, cols, e0, acc)
		})
		i = end
	}
}

func (t *backwardTask[T]) fast(w *scratch, u0, u1 int) bool {
	dx, ok := as32(t.dx.Data)
	dy, _ := as32(t.dy.Data)
	cols, ldd := t.dx.Cols, t.dx.Stride
	if !ok || t.set == Go || cols == 0 || t.o.Reduce == Max && t.dy.Stride != cols {
		return false
	}
	if u0 == u1 {
		return true
	}
	_ = dx[(u1-1)*ldd+cols-1]
	tab := table{base: (*byte)(unsafe.Pointer(first(dy))), stride: uint64(4 * t.dy.Stride), rows: uint64(t.dy.Rows), dtype: graph.Float32, ahead: ahead}
	kernel := tab.sums(t.set)
	byMax := maxBackwardAVX2
	if t.set == AVX512 {
		byMax = maxBackwardAVX512
	}
	length := runLength(cols)
	ones := w.ones32(length)
	last := int(t.t.Indptr[u1])
	stream := t.o.Self == nil && streams(dx, t.dx)
	inverse, _ := as32(t.inverse)
	weights, _ := as32(t.o.Weights)
	plain := t.o.Reduce == Sum && t.o.Weights == nil
	runs(w, t.t.Indptr, u0, u1, length, func(row, e0, e1 int, more, ends bool) {
		tab.offsets(w, t.t.Dst, e0, e1, last)
		acc := 0
		if more || t.o.Accumulate {
			acc = 1
		}
		if t.o.Reduce == Max {
			byMax(&dx[row*ldd], 4*ldd, first(w.counts), len(w.counts), first(w.offsets), first(t.t.Entry[e0:e1]),
				tab.base, (*byte)(unsafe.Pointer(first(t.o.Argmax))), cols, acc)
			return
		}
		coef := ones
		if !plain {
			w.coef = grow(w.coef, e1-e0)
			coef = w.coef
			t.coefficients(coef, inverse, weights, e0)
		}
		if stream && acc == 0 && ends {
			acc = flagStream
		}
		kernel(&dx[row*ldd], 4*ldd, first(w.counts), len(w.counts), first(w.offsets), first(coef), nil, tab.base, nil, cols, acc)
	})
	if t.o.Self != nil && u0 < t.t.NumDst {
		self, _ := as32(t.o.Self)
		addSelf(w, t.set, dx, ldd, cols, &tab, self, u0, min(u1, t.t.NumDst))
	}
	return true
}

// coefficients fills coef with coefficient(e0), coefficient(e0+1), …
func (t *backwardTask[T]) coefficients(coef, inverse, weights []float32, e0 int) {
	dst, entry := t.t.Dst[e0:][:len(coef)], t.t.Entry[e0:][:len(coef)]
	switch {
	case inverse == nil:
		for k, e := range entry {
			coef[k] = weights[e]
		}
	case weights == nil:
		for k, i := range dst {
			coef[k] = inverse[i]
		}
	default:
		for k, i := range dst {
			coef[k] = inverse[i] * weights[entry[k]]
		}
	}
}

func (t *gatherTask[T]) fast(w *scratch, i0, i1 int) bool {
	dst, ok := as32(t.dst.Data)
	cols, ldd := t.dst.Cols, t.dst.Stride
	if !ok || t.set == Go || cols == 0 {
		return false
	}
	tab, ok := tableOf(&t.src, w.ones32(cols))
	if !ok {
		return false
	}
	kernel := tab.sums(t.set)
	length := runLength(cols)
	ones := w.ones32(max(length, cols))
	for i := i0; i < i1; i += length {
		n := min(length, i1-i)
		_ = dst[(i+n-1)*ldd+cols-1]
		w.counts, w.offsets = grow(w.counts, n), grow(w.offsets, n+tab.ahead)
		end := min(i1, i+n+tab.ahead)
		for r := range n + tab.ahead {
			if r < n {
				w.counts[r] = 1
			}
			w.offsets[r] = tab.offset(uint32(min(i+r, end-1)))
		}
		coef := ones
		if tab.rowScale != nil {
			w.coef = grow(w.coef, n)
			for r := range n {
				u := uint32(i + r)
				if tab.ids != nil {
					u = tab.ids[u]
				}
				w.coef[r] = tab.rowScale[u]
			}
			coef = w.coef
		}
		kernel(&dst[i*ldd], 4*ldd, first(w.counts), n, first(w.offsets), first(coef), nil, tab.base, first(tab.column), cols, 0)
	}
	return true
}
