package cpu

import (
	"math"

	"github.com/gnnactor/gnnactor/graph"
)

// Reduce says how the entries of a row are combined.
type Reduce uint8

// The reductions.
const (
	Sum  Reduce = iota
	Mean        // the sum times 1/(number of entries)
	Max         // per column; the first entry wins a tie, a NaN wins over all
)

func (r Reduce) String() string {
	switch r {
	case Sum:
		return "sum"
	case Mean:
		return "mean"
	case Max:
		return "max"
	}
	return "unknown"
}

// NoEntry is what Argmax holds for a row without entries.
const NoEntry = math.MaxUint32

// AggregateOptions says what Aggregate and AggregateBackward compute.
type AggregateOptions[T Float] struct {
	Reduce  Reduce
	Weights []T      // one per entry of the block; nil: 1. Not with Max
	Self    []T      // one per destination: coefficient of its own source row, added after the reduction; nil: none
	Argmax  []uint32 // Max: position in the block of the entry that won, destinations×columns dense; Aggregate writes it if not nil

	Accumulate bool // AggregateBackward adds to what dx holds; not for Aggregate
}

// Aggregate computes, for destination i with entries e (sources u_e, weights w_e),
//
//	Sum:  dst[i] = Σ_e w_e·src[u_e]              + Self[i]·src[i]
//	Mean: dst[i] = (Σ_e w_e·src[u_e])·(1/count)  + Self[i]·src[i]
//	Max:  dst[i] = max_e src[u_e]                + Self[i]·src[i]
//
// with the entries in the order of the block. A row without entries reduces to
// 0. dst is b.NumDst × src.Cols(); src has at least b.NumSrc rows; dst must not
// overlap src. Block.Weights is not read: pass it in o. o.Accumulate panics.
//
// A Table source is read through its ids where it lies, without a copy.
//
// A block may be a range of rows of a larger one, with that one's entries:
// b.Indptr is then a part of its row pointers, and positions of entries
// (Weights, Argmax) are positions in b.Indices.
func Aggregate[T Float](x *Exec, dst Matrix[T], b *graph.Block, src Source[T], o AggregateOptions[T]) {
	dst.check()
	checkRows(b)
	if src.Table == nil {
		src.Dense.check()
	}
	switch {
	case dst.Rows != b.NumDst || dst.Cols != src.Cols() || src.Rows() < b.NumSrc:
		panic(badAggregate)
	case o.Weights != nil && len(o.Weights) != len(b.Indices) || o.Self != nil && (len(o.Self) != b.NumDst || b.NumSrc < b.NumDst):
		panic(badWeights)
	case o.Accumulate:
		panic(badForward)
	case o.Reduce == Max && o.Weights != nil:
		panic(badMax)
	case o.Reduce == Max && o.Argmax != nil && len(o.Argmax) != b.NumDst*dst.Cols:
		panic(badArgmax)
	case o.Reduce == Max && len(b.Indices) >= NoEntry:
		panic(badEntries)
	}
	s := tasksOf[T](x)
	entries := 0
	if b.NumDst > 0 {
		entries = int(b.Indptr[b.NumDst] - b.Indptr[0])
	}
	defer x.end(x.begin(), "aggregate", b.NumDst, dst.Cols, entries)
	if s.device != nil {
		s.device.Aggregate(dst, b, src, o)
		return
	}
	t := aggregateTask[T]{set: x.set, b: b, o: o, rows: sparseRows(b.NumDst, entries)}
	tasks := &s.aggregate
	tasks.reset() // of a call that panicked
	for _, p := range s.columnParts(x, src, b.NumSrc, entries, o.Reduce) {
		t.src, t.dst = p.src, dst.View(0, dst.Rows, p.from, p.to)
		tasks.tasks = append(tasks.tasks, t)
	}
	tasks.run(x, ceilDiv(b.NumDst, t.rows))
	clear(s.cut)
	s.cut = s.cut[:0]
}

// rowsPerChunk is how many rows a chunk has where rows cost about the same.
const rowsPerChunk = 64

// streamed is from how many values on a result goes past the caches, since none
// of it would still be there when it is read.
const streamed = 1 << 24

// sparseRows is how many rows of a sparse operand make a chunk: some thousands
// of entries on average, and enough chunks to balance.
func sparseRows(rows, entries int) int {
	return max(8, min(1024, rows/64, int(4096*int64(rows)/int64(max(entries, 1)))))
}

// checkRows panics unless b's row pointers fit its entries. They may be a part
// of a larger block's: start above 0 and end before the last entry.
func checkRows(b *graph.Block) {
	if b.NumDst > 0 && (len(b.Indptr) != b.NumDst+1 || b.Indptr[0] < 0 || b.Indptr[b.NumDst] > int64(len(b.Indices))) {
		panic(badAggregate)
	}
}

type aggregateTask[T Float] struct {
	set Set
	dst Matrix[T]
	b   *graph.Block
	src Source[T]
	o   AggregateOptions[T]

	rows int // per chunk
}

func (t *aggregateTask[T]) chunk(w *scratch, c int) {
	i0 := c * t.rows
	i1 := min(t.b.NumDst, i0+t.rows)
	if t.fast(w, i0, i1) {
		return
	}
	for i := i0; i < i1; i++ {
		d := t.dst.Row(i)
		if t.o.Reduce == Max {
			t.max(w, i, d)
		} else {
			t.sum(w, i, d)
		}
		if t.o.Self != nil {
			axpy(d, t.o.Self[i], t.src.row(w, i))
		}
	}
}

func (t *aggregateTask[T]) sum(w *scratch, i int, d []T) {
	clear(d)
	e0, e1 := t.b.Indptr[i], t.b.Indptr[i+1]
	for e := e0; e < e1; e++ {
		r := t.src.row(w, int(t.b.Indices[e]))
		if t.o.Weights == nil {
			for j, v := range r {
				d[j] += v
			}
		} else {
			axpy(d, t.o.Weights[e], r)
		}
	}
	if t.o.Reduce == Mean && e1 > e0 {
		f := 1 / T(e1-e0)
		for j := range d {
			d[j] *= f
		}
	}
}

func (t *aggregateTask[T]) max(w *scratch, i int, d []T) {
	e0, e1 := t.b.Indptr[i], t.b.Indptr[i+1]
	var arg []uint32
	if t.o.Argmax != nil {
		arg = t.o.Argmax[i*t.dst.Cols:][:t.dst.Cols]
	}
	if e0 == e1 {
		clear(d)
		for j := range arg {
			arg[j] = NoEntry
		}
		return
	}
	copy(d, t.src.row(w, int(t.b.Indices[e0])))
	for j := range arg {
		arg[j] = uint32(e0)
	}
	for e := e0 + 1; e < e1; e++ {
		for j, v := range t.src.row(w, int(t.b.Indices[e])) {
			if cur := d[j]; !(v <= cur) && cur == cur {
				d[j] = v
				if arg != nil {
					arg[j] = uint32(e)
				}
			}
		}
	}
}

// axpy adds a·s to d.
func axpy[T Float](d []T, a T, s []T) {
	s = s[:len(d)]
	for j, v := range s {
		d[j] += T(a * v)
	}
}
