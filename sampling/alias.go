package sampling

import (
	"math"
	"math/bits"

	"github.com/gnnactor/gnnactor/internal/rng"
)

// alias draws from a discrete distribution in constant time (Walker, 1977;
// built as Vose, 1991): item i keeps its column with probability
// threshold[i]/2^32, and else yields other[i]. It takes 8 bytes an item.
type alias struct {
	threshold []uint32
	other     []uint32
}

// newAlias returns the table for probabilities in proportion to weight(i), i in
// [0, n), n below 2^32; nil when they are all 0.
func newAlias(n int, weight func(i int) float64) *alias {
	total := 0.0
	scaled := make([]float64, n)
	for i := range scaled {
		scaled[i] = weight(i)
		total += scaled[i]
	}
	if total == 0 {
		return nil
	}
	a := &alias{threshold: make([]uint32, n), other: make([]uint32, n)}
	// Columns below and above the average, one list from either end.
	work := make([]uint32, n)
	small, large := 0, n
	for i := range scaled {
		scaled[i] *= float64(n) / total
		if scaled[i] < 1 {
			work[small] = uint32(i)
			small++
		} else {
			large--
			work[large] = uint32(i)
		}
	}
	for small > 0 && large < n {
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
	a.threshold[i] = math.MaxUint32
	if p < 1 {
		a.threshold[i] = uint32(p * 0x1p32)
		a.other[i] = other
		return
	}
	a.other[i] = i
}

// draw returns draw i of the stream, one of the items.
func (a *alias) draw(key rng.Key, i uint64) uint32 {
	item, rest := bits.Mul64(key.Uint64(i), uint64(len(a.other)))
	if uint32(rest>>32) < a.threshold[item] {
		return uint32(item)
	}
	return a.other[item]
}
