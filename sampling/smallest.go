package sampling

import (
	"cmp"
	"math"
	"slices"
)

// smallest keeps the k smallest of the keys it is offered, the earlier one of
// equal keys. It is a binary heap with the largest kept key on top.
type smallest[K cmp.Ordered] struct {
	k    int
	heap []entry[K]
	kept []uint32
}

type entry[K cmp.Ordered] struct {
	key  K
	item uint32
}

// before orders entries by key and, among equal keys, by item.
func (a entry[K]) before(b entry[K]) bool {
	return a.key < b.key || a.key == b.key && a.item < b.item
}

func (s *smallest[K]) reset(k int) {
	s.k, s.heap = k, s.heap[:0]
}

// offer must be called with increasing items.
func (s *smallest[K]) offer(key K, item uint32) {
	h := s.heap
	if len(h) == s.k {
		if key < h[0].key {
			h[0] = entry[K]{key, item}
			s.down(0)
		}
		return
	}
	s.heap = append(h, entry[K]{key, item})
	if len(s.heap) == s.k {
		for i := s.k/2 - 1; i >= 0; i-- {
			s.down(i)
		}
	}
}

func (s *smallest[K]) down(i int) {
	h := s.heap
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c].before(h[c+1]) {
			c++
		}
		if !x.before(h[c]) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = x
}

// sorted returns the items kept, in increasing order, valid until the next call.
func (s *smallest[K]) sorted() []uint32 {
	s.kept = s.kept[:0]
	for _, e := range s.heap {
		s.kept = append(s.kept, e.item)
	}
	slices.Sort(s.kept)
	return s.kept
}

// appendTo appends base plus each item kept to pos, in increasing order.
func (s *smallest[K]) appendTo(pos []int64, base int64) []int64 {
	for _, i := range s.sorted() {
		pos = append(pos, base+int64(i))
	}
	return pos
}

// unit maps 64 uniform bits to (0, 1).
func unit(bits uint64) float64 { return (float64(bits>>12) + 0.5) * 0x1p-52 }

// exponential maps 64 uniform bits to an exponential variate, −ln(u) with u in
// (0, 1). It is written so that no compiler fuses a product with a sum: the
// result is the same on every machine, which math.Log does not promise. The
// method is fdlibm's: u = 2^e·m, m in [√½, √2), and ln m = 2·artanh(f/(2+f)) for
// f = m − 1.
func exponential(bits uint64) float64 {
	x := math.Float64bits(unit(bits))
	e := int(x>>52) - 1023
	m := math.Float64frombits(x&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m *= 0.5
		e++
	}
	f := m - 1
	s := f / (2 + f)
	s2 := s * s
	s4 := s2 * s2
	t1 := float64(s2 * (0.6666666666666735130 + float64(s4*(0.2857142874366239149+float64(s4*(0.1818357216161805012+float64(s4*0.1479819860511658591)))))))
	t2 := float64(s4 * (0.3999999999940941908 + float64(s4*(0.2222219843214978396+float64(s4*0.1531383769920937332)))))
	half := float64(0.5 * f * f)
	ln := float64(float64(e)*math.Ln2) - (float64(half-float64(s*float64(half+float64(t1+t2)))) - f)
	return -ln
}
