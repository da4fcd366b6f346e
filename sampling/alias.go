package sampling

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// alias draws from a discrete distribution in constant time (Walker, 1977;
// built as Vose, 1991). It takes 8 bytes an item, in one cache line.
type alias struct {
	// columns[i] holds a threshold in its upper half and an item in its lower
	// half: i is kept with probability threshold/2^32, else that item is drawn.
	columns []uint64
}

// newAlias returns the table for probabilities in proportion to weight(i), i in
// [0, n), n below 2^32; nil when they are all 0. When stop ends it, the table is void.
func newAlias(stop *interrupt.Poll, n int, weight func(i int) float64) *alias {
	total := 0.0
	scaled := make([]float64, n)
	for i := range scaled {
		if stop.Ended() {
			break
		}
		scaled[i] = weight(i)
		total += scaled[i]
	}
	if total == 0 {
		return nil
	}
	a := &alias{columns: make([]uint64, n)}
	// Columns below and above the average, one list from either end.
	work := make([]uint32, n)
	small, large := 0, n
	for i := range scaled {
		if stop.Ended() {
			break
		}
		scaled[i] *= float64(n) / total
		if scaled[i] < 1 {
			work[small] = uint32(i)
			small++
		} else {
			large--
			work[large] = uint32(i)
		}
	}
	for small > 0 && large < n && !stop.Ended() {
		small--
		s, l := work[small], work[large]
		a.set(s, scaled[s], l)
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large++
			work[small] = l
			small++
		}
	}
	// What is left is 1 but for rounding.
	for _, i := range work[:small] {
		a.set(i, 1, i)
	}
	for _, i := range work[large:] {
		a.set(i, 1, i)
	}
	return a
}

func (a *alias) set(i uint32, p float64, other uint32) {
	threshold := uint32(math.MaxUint32)
	if p < 1 {
		threshold = uint32(p * 0x1p32)
	} else {
		other = i
	}
	a.columns[i] = uint64(threshold)<<32 | uint64(other)
}

// draw returns draw i of the stream, one of the items.
func (a *alias) draw(key rng.Key, i uint64) uint32 {
	column, rest := a.column(key, i)
	return a.item(column, rest)
}

// column returns the column that draw i hits, and where it hits that.
func (a *alias) column(key rng.Key, i uint64) (column, rest uint32) {
	hi, lo := bits.Mul64(key.Uint64(i), uint64(len(a.columns)))
	return uint32(hi), uint32(lo >> 32)
}

func (a *alias) item(column, rest uint32) uint32 {
	c := a.columns[column]
	if rest < uint32(c>>32) {
		return column
	}
	return uint32(c)
}

// draws fills dst with the first draws of the stream. Columns are asked for a
// group ahead.
func (a *alias) draws(dst []uint32, key rng.Key) {
	const ahead = 64
	var rest [2 * ahead]uint32
	look := func(begin int) {
		group := dst[min(begin, len(dst)):min(begin+ahead, len(dst))]
		for i := range group {
			group[i], rest[(begin+i)%len(rest)] = a.column(key, uint64(begin+i))
		}
		if len(group) > 0 {
			prefetch8((*int64)(unsafe.Pointer(&a.columns[0])), &group[0], len(group))
		}
	}
	look(0)
	for begin := 0; begin < len(dst); begin += ahead {
		look(begin + ahead)
		for i := begin; i < min(begin+ahead, len(dst)); i++ {
			dst[i] = a.item(dst[i], rest[i%len(rest)])
		}
	}
}
