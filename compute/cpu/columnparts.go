package cpu

import (
	"github.com/klauspost/cpuid/v2"

	"github.com/gnnactor/gnnactor/graph"
)

// A source of few rows that many entries read, as that of a subgraph, may be just
// too large for the second-level cache. It is then cut into parts of columns that
// fit, each packed without gaps, since a part of wide rows would fall into few sets
// of the cache; and one part after another is aggregated, by all workers. No result
// depends on it: a column's sum has the entries in the order of the block either way.
// (A row that no entry reads is packed too, so that what is wrong with it shows.)

// secondLevel is the bytes of a core's second-level cache; 0 or less: unknown.
var secondLevel = cpuid.CPU.Cache.L2

const (
	// leastPart is how many columns have to fit: with parts of less, what a kernel
	// does for each entry outweighs what the cache gains.
	leastPart = 64
	// leastReuse is how often rows are read on average, for packing to pay.
	leastReuse = 16
)

// partWidth returns how many columns parts have, but for the last; 0: the source is
// not cut.
func partWidth(set Set, rows, cols, entries int) int {
	if set == Go || rows == 0 || rows*cols*4 <= secondLevel || entries/rows < leastReuse {
		return 0
	}
	most := secondLevel * 7 / 8 / (4 * rows) / 16 * 16 // whole cache lines
	if most < leastPart {
		return 0
	}
	return roundUp(ceilDiv(cols, ceilDiv(cols, most)), 16)
}

// columnPart is columns [from, to) of a source, as a source of its own.
type columnPart[T Float] struct {
	from, to int
	src      Source[T]
}

// columnParts returns the parts of src that a block of so many entries is aggregated
// from: src itself, if it is not to be cut. They are valid until the next kernel.
func (s *tasks[T]) columnParts(x *Exec, src Source[T], rows, entries int, reduce Reduce) []columnPart[T] {
	clear(s.cut) // as a kernel left it that panicked
	s.cut, s.rows = s.cut[:0], packRowsTask[T]{}
	cols := src.Cols()
	width := 0
	if _, ok := as32(s.packed); ok && reduce != Max && (src.Table == nil || src.Table.DType == graph.Float32) {
		width = partWidth(x.set, rows, cols, entries)
	}
	if width == 0 {
		s.cut = append(s.cut, columnPart[T]{0, cols, src})
		return s.cut
	}
	s.packed = grow(s.packed, rows*cols)
	s.rows = packRowsTask[T]{src: src, rows: rows, width: width, dst: s.packed}
	x.each(ceilDiv(rows, rowsPerChunk), &s.rows)
	s.rows = packRowsTask[T]{}
	for at := 0; at < cols; at += width {
		n := min(width, cols-at)
		s.cut = append(s.cut, columnPart[T]{at, at + n, Source[T]{Dense: Dense(rows, n, s.packed[rows*at:][:rows*n])}})
	}
	return s.cut
}

// packRowsTask packs rows of src: the parts follow each other.
type packRowsTask[T Float] struct {
	src         Source[T]
	rows, width int
	dst         []T
}

func (t *packRowsTask[T]) chunk(w *scratch, c int) {
	for r := c * rowsPerChunk; r < min(t.rows, (c+1)*rowsPerChunk); r++ {
		row := t.src.row(w, r)
		for at := 0; at < len(row); at += t.width {
			n := min(t.width, len(row)-at)
			copy(t.dst[t.rows*at+r*n:][:n], row[at:])
		}
	}
}

// partsTask runs tasks of as many chunks each one after another.
type partsTask[T any, P interface {
	*T
	task
}] struct {
	tasks  []T
	chunks int
}

func (t *partsTask[T, P]) chunk(w *scratch, c int) { P(&t.tasks[c/t.chunks]).chunk(w, c%t.chunks) }

// reset forgets all tasks.
func (t *partsTask[T, P]) reset() {
	clear(t.tasks)
	t.tasks = t.tasks[:0]
}

func (t *partsTask[T, P]) run(x *Exec, chunks int) {
	t.chunks = chunks
	x.each(len(t.tasks)*chunks, t)
	t.reset()
}
