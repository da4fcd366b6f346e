package cpu

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/gnnactor/gnnactor/graph"
)

// Transpose is the transpose of a block's pattern: for each source, the
// destinations that aggregate it, in ascending order. Its buffers are reused by
// the next Build. It refers to the block it was built from, which must stay
// unchanged while it is in use.
type Transpose struct {
	NumDst, NumSrc int
	Indptr         []int64  // len NumSrc+1
	Dst            []uint32 // destination of each transposed entry
	Entry          []uint32 // its position in the block's Indices
	forward        []int64  // the block's Indptr
	indptr         []int64  // owned buffers; Indptr and Dst may alias the block
	dst            []uint32
}

// Build makes t the transpose of b. Entries of one source keep the order of
// their destinations, and of their positions within one destination. The block
// must have fewer than 2^32-1 entries.
func (t *Transpose) Build(x *Exec, b *graph.Block) {
	checkBlock(b)
	if len(b.Indices) >= NoEntry {
		panic(badEntries)
	}
	defer x.end(x.begin(), "transpose", b.NumSrc, 1, len(b.Indices))
	t.NumDst, t.NumSrc, t.forward = b.NumDst, b.NumSrc, b.Indptr
	t.indptr = grow(t.indptr, b.NumSrc+1)
	t.dst = grow(t.dst, len(b.Indices))
	t.Entry = grow(t.Entry, len(b.Indices))
	t.Indptr, t.Dst = t.indptr, t.dst
	parts := partsOf(x, b)
	// Each part of the entries has a cursor per source, and places its entries
	// after those of the parts before: the same order for any number of parts.
	x.cursors = grow(x.cursors, parts*b.NumSrc)
	x.starts = grow(x.starts, parts)
	x.build = buildTask{t: t, b: b, parts: parts, cursors: x.cursors, starts: x.starts}
	for s := range buildSteps {
		x.build.step = s
		x.each(parts, &x.build)
		if s == buildAdd { // each range of sources begins after those before
			at := uint32(0)
			for r, n := range x.starts {
				x.starts[r] = at
				at += n
			}
		}
	}
	t.Indptr[b.NumSrc] = int64(len(b.Indices))
	x.build = buildTask{}
}

// BuildTranspose makes t the transpose of b for kernels in T. Where x has a device for those it is
// made there, the block read from wherever the device has it, and lies in its memory, which the host
// must not read, until the device's Reset.
func BuildTranspose[T Float](x *Exec, t *Transpose, b *graph.Block) {
	d := tasksOf[T](x).device
	if d == nil {
		t.Build(x, b)
		return
	}
	if b.NumDst < 0 || b.NumSrc < b.NumDst || len(b.Indptr) != b.NumDst+1 || b.NumDst == 0 && len(b.Indices) > 0 {
		panic(badAggregate)
	}
	if len(b.Indices) >= NoEntry {
		panic(badEntries)
	}
	defer x.end(x.begin(), "transpose", b.NumSrc, 1, len(b.Indices))
	t.NumDst, t.NumSrc, t.forward = b.NumDst, b.NumSrc, b.Indptr
	d.Transpose(t, b)
}

// Bytes returns how much memory t has allocated.
func (t *Transpose) Bytes() int64 { return 8*int64(cap(t.indptr)) + 4*int64(cap(t.dst)+cap(t.Entry)) }

// parallelEntries is from how many entries on a transpose is built in parts.
const parallelEntries = 1 << 18

// partsOf returns in how many parts the transpose of b is built. All cursors
// together take no more memory than a quarter of the entries.
func partsOf(x *Exec, b *graph.Block) int {
	if len(b.Indices) < parallelEntries {
		return 1
	}
	return max(1, min(x.pool.Size(), len(b.Indices)/(4*max(b.NumSrc, 1))))
}

// partOf returns the destinations [i0, i1) of part c of parts, which have about
// the same number of entries.
func partOf(b *graph.Block, c, parts int) (i0, i1 int) {
	first := func(c int) int {
		if c == parts {
			return b.NumDst
		}
		at := int64(len(b.Indices)) * int64(c) / int64(parts)
		return sort.Search(b.NumDst, func(i int) bool { return b.Indptr[i] >= at })
	}
	if parts == 1 {
		return 0, b.NumDst
	}
	return first(c), first(c + 1)
}

// buildTask is one step of Build, over the parts of a block's entries or as many
// ranges of its sources.
type buildTask struct {
	t       *Transpose
	b       *graph.Block
	parts   int
	cursors []uint32 // parts×NumSrc
	starts  []uint32 // of each range of sources: its entries, then its first one
	step    buildStep
}

type buildStep uint8

const (
	buildCount  buildStep = iota // per part: count the entries of each source
	buildAdd                     // per range: add up the counts
	buildStarts                  // per range: turn the counts into cursors
	buildPlace                   // per part: put the entries where the cursors say
	buildSteps
)

// ranges is buildTask.chunk for a step over sources [u0, u1), range r.
func (k *buildTask) ranges(r, u0, u1 int) {
	n := k.b.NumSrc
	if k.step == buildAdd {
		sum := uint32(0)
		for p := range k.parts {
			for _, c := range k.cursors[p*n+u0 : p*n+u1] {
				sum += c
			}
		}
		k.starts[r] = sum
		return
	}
	at := k.starts[r]
	for u := u0; u < u1; u++ {
		k.t.Indptr[u] = int64(at)
		for c := u; c < len(k.cursors); c += n {
			count := k.cursors[c]
			k.cursors[c] = at
			at += count
		}
	}
}

func (k *buildTask) chunk(_ *scratch, c int) {
	b := k.b
	if k.step == buildAdd || k.step == buildStarts {
		k.ranges(c, b.NumSrc*c/k.parts, b.NumSrc*(c+1)/k.parts)
		return
	}
	next := k.cursors[c*b.NumSrc : (c+1)*b.NumSrc]
	i0, i1 := partOf(b, c, k.parts)
	if k.step == buildCount {
		clear(next)
		if i0 < i1 {
			for _, u := range b.Indices[b.Indptr[i0]:b.Indptr[i1]] {
				next[u]++
			}
		}
		return
	}
	for i := i0; i < i1; i++ {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			u := b.Indices[e]
			p := next[u]
			next[u] = p + 1
			k.t.Dst[p] = uint32(i)
			k.t.Entry[p] = uint32(e)
		}
	}
}

// checkBlock panics unless b's rows are exactly its entries.
func checkBlock(b *graph.Block) {
	checkRows(b)
	if b.NumDst < 0 || b.NumSrc < 0 || b.NumDst == 0 && len(b.Indices) > 0 ||
		b.NumDst > 0 && (b.Indptr[0] != 0 || b.Indptr[b.NumDst] != int64(len(b.Indices))) {
		panic(badAggregate)
	}
}

// BuildSymmetric makes t the transpose of the square block b whose pattern is
// symmetric and whose rows are sorted: the transpose then has b's own row
// pointers and ids, which t aliases, and one pass over the rows yields the
// permutation of the entries (Zeng et al.; docs/algorithms.md §5). It reports whether b
// is such a block; if not, t is not usable and the caller takes Build.
func (t *Transpose) BuildSymmetric(x *Exec, b *graph.Block) bool {
	checkBlock(b)
	if b.NumDst != b.NumSrc || len(b.Indices) >= NoEntry {
		return false
	}
	defer x.end(x.begin(), "transpose", b.NumSrc, 1, len(b.Indices))
	t.NumDst, t.NumSrc, t.forward = b.NumDst, b.NumSrc, b.Indptr
	t.Indptr, t.Dst = b.Indptr, b.Indices
	if b.NumDst == 0 {
		t.indptr = append(t.indptr[:0], 0)
		t.Indptr = t.indptr
	}
	t.Entry = grow(t.Entry, len(b.Indices))
	parts := partsOf(x, b)
	x.cursors = grow(x.cursors, parts*b.NumSrc)
	x.symmetric = symmetricTask{t: t, b: b, parts: parts, cursors: x.cursors}
	x.each(parts, &x.symmetric)
	symmetric := !x.symmetric.differs.Load()
	x.symmetric = symmetricTask{}
	return symmetric
}

// symmetricTask is BuildSymmetric, over the parts of a block's entries. A part
// begins in each row where the row reaches the part's own destinations. Should
// the row not be sorted, that is somewhere, and later parts begin later: parts
// that all find what they look for have then found each entry once, in order.
type symmetricTask struct {
	t       *Transpose
	b       *graph.Block
	parts   int
	cursors []uint32    // parts×NumSrc
	differs atomic.Bool // the block is not symmetric, or not sorted
}

func (k *symmetricTask) chunk(_ *scratch, c int) {
	b := k.b
	i0, i1 := partOf(b, c, k.parts)
	next := k.cursors[c*b.NumSrc : (c+1)*b.NumSrc]
	for u := range next {
		at := b.Indptr[u]
		if c > 0 {
			d, _ := slices.BinarySearch(b.Indices[at:b.Indptr[u+1]], uint32(i0))
			at += int64(d)
		}
		next[u] = uint32(at)
	}
	entry := k.t.Entry
	for i := i0; i < i1 && !k.differs.Load(); i++ {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			u := b.Indices[e]
			p := next[u]
			if int64(p) >= b.Indptr[u+1] || b.Indices[p] != uint32(i) {
				k.differs.Store(true)
				return
			}
			next[u] = p + 1
			entry[p] = uint32(e)
		}
	}
}

// AggregateBackward computes the gradient with respect to Aggregate's source,
// from the gradient dy of its destinations, with the options of the forward
// pass (Max: with the Argmax that it wrote). For source u with transposed
// entries k (destinations i_k, entries e_k),
//
//	Sum:  dx[u] = Σ_k w_{e_k}·dy[i_k]                    + Self[u]·dy[u] if u < NumDst
//	Mean: dx[u] = Σ_k w_{e_k}·(1/count_{i_k})·dy[i_k]    + …
//	Max:  dx[u][j] = Σ_k (Argmax[i_k][j] = e_k) dy[i_k][j] + …
//
// with the entries in the order of t, and with o.Accumulate starting from what
// dx holds. dx is t.NumSrc × columns, dy is t.NumDst
// × columns; they must not overlap. Every row of dx is summed by one worker, in
// a fixed order, without atomics.
func AggregateBackward[T Float](x *Exec, dx Matrix[T], t *Transpose, dy Matrix[T], o AggregateOptions[T]) {
	dx.check()
	dy.check()
	switch {
	case dx.Rows != t.NumSrc || dy.Rows != t.NumDst || dx.Cols != dy.Cols:
		panic(badBackward)
	case o.Weights != nil && len(o.Weights) != len(t.Dst) || o.Self != nil && len(o.Self) != t.NumDst:
		panic(badWeights)
	case o.Reduce == Max && (o.Weights != nil || o.Argmax == nil):
		panic(badMax)
	case o.Reduce == Max && len(o.Argmax) != t.NumDst*dy.Cols:
		panic(badArgmax)
	}
	s := tasksOf[T](x)
	entries := len(t.Dst)
	if t.NumSrc > 0 && s.device == nil { // of these sources, which may be some of a larger transpose's
		entries = int(t.Indptr[t.NumSrc] - t.Indptr[0])
	}
	defer x.end(x.begin(), "aggregate-backward", t.NumSrc, dy.Cols, entries)
	if s.device != nil {
		s.device.AggregateBackward(dx, t, dy, o)
		return
	}
	k := backwardTask[T]{set: x.set, t: t, o: o, rows: sparseRows(t.NumSrc, entries)}
	if o.Reduce == Mean {
		k.inverse = s.inverses(t)
	}
	tasks := &s.backward
	tasks.reset() // of a call that panicked
	for _, p := range s.columnParts(x, Source[T]{Dense: dy}, t.NumDst, entries, o.Reduce) {
		k.dy, k.dx = p.src.Dense, dx.View(0, dx.Rows, p.from, p.to)
		tasks.tasks = append(tasks.tasks, k)
	}
	tasks.run(x, ceilDiv(t.NumSrc, k.rows))
	clear(s.cut)
	s.cut = s.cut[:0]
}

type backwardTask[T Float] struct {
	set    Set
	dx, dy Matrix[T]
	t      *Transpose
	o      AggregateOptions[T]
	rows   int // per chunk

	inverse []T // Mean: 1/count of each destination
}

// inverses returns 1/count for each destination of t.
func (s *tasks[T]) inverses(t *Transpose) []T {
	s.columns = grow(s.columns, t.NumDst)
	for i := range s.columns {
		s.columns[i] = 1 / T(t.forward[i+1]-t.forward[i])
	}
	return s.columns
}

// coefficient returns what transposed entry k multiplies its destination by.
func (t *backwardTask[T]) coefficient(k int64) T {
	f := T(1)
	if t.o.Reduce == Mean {
		f = t.inverse[t.t.Dst[k]]
	}
	if t.o.Weights != nil {
		f *= t.o.Weights[t.t.Entry[k]]
	}
	return f
}

func (t *backwardTask[T]) chunk(w *scratch, c int) {
	u0 := c * t.rows
	u1 := min(t.t.NumSrc, u0+t.rows)
	if t.fast(w, u0, u1) {
		return
	}
	for u := u0; u < u1; u++ {
		d := t.dx.Row(u)
		if !t.o.Accumulate {
			clear(d)
		}
		for k := t.t.Indptr[u]; k < t.t.Indptr[u+1]; k++ {
			i := int(t.t.Dst[k])
			if t.o.Reduce == Max {
				arg := t.o.Argmax[i*t.dy.Cols:][:t.dy.Cols]
				for j, v := range t.dy.Row(i) {
					if arg[j] == t.t.Entry[k] {
						d[j] += v
					}
				}
				continue
			}
			axpy(d, t.coefficient(k), t.dy.Row(i))
		}
		if t.o.Self != nil && u < t.t.NumDst {
			axpy(d, t.o.Self[u], t.dy.Row(u))
		}
	}
}

// Forward returns the row pointers of the block that t is the transpose of.
func (t *Transpose) Forward() []int64 { return t.forward }
