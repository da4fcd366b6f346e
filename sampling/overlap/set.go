package overlap

import (
	"math/bits"
	"slices"

	"github.com/gnnactor/gnnactor/rng"
)

// set is the input nodes of a batch: a list, and on graphs that are small
// against it a bitmap too, when they are counted exactly; or a sketch.
type set struct {
	size   int
	nodes  []uint32
	bits   []uint64 // empty when the bitmap is longer than the list
	bitmap []uint64 // backs bits; zeros outside of nodes
	sketch []uint64 // the smallest hashes, in increasing order
	heap   []uint64
}

// fill makes s the union of the given parts.
func (s *set) fill(parts []Part, nodes int, sketch bool) {
	for _, u := range s.nodes[:len(s.nodes)*min(1, len(s.bits))] { // cheaper than clearing all of a large bitmap
		s.bits[u/64] = 0
	}
	s.nodes, s.bits, s.sketch = s.nodes[:0], s.bits[:0], s.sketch[:0]
	if sketch {
		s.makeSketch(parts)
		return
	}
	for _, p := range parts {
		s.nodes = append(s.nodes, p.Nodes...)
	}
	if len(parts) > 1 {
		slices.Sort(s.nodes)
		s.nodes = slices.Compact(s.nodes)
	}
	s.size = len(s.nodes)
	if words := (nodes + 63) / 64; words <= wordsPerNode*len(s.nodes) {
		if s.bitmap == nil {
			s.bitmap = make([]uint64, words)
		}
		s.bits = s.bitmap
		for _, u := range s.nodes {
			s.bits[u/64] |= 1 << (u % 64)
		}
	}
}

// wordsPerNode is how many words of two bitmaps are counted in the time that
// it takes to look one node up.
const wordsPerNode = 2

// member is a bitmap of the last batch.
type member []uint64

func (m member) add(nodes []uint32) {
	for _, u := range nodes {
		m[u/64] |= 1 << (u % 64)
	}
}

func (m member) remove(nodes []uint32) {
	for _, u := range nodes {
		m[u/64] = 0
	}
}

// common counts the nodes of s that are in m: word by word, or, where the
// bitmap is long and the list is short, node by node.
func (m member) common(s *set) uint64 {
	n := 0
	if len(s.bits) > 0 {
		b := s.bits[:len(m)]
		for i, x := range m {
			n += bits.OnesCount64(x & b[i])
		}
		return uint64(n)
	}
	for _, u := range s.nodes {
		n += int(m[u/64] >> (u % 64) & 1)
	}
	return uint64(n)
}

// sketchKey makes the hashes; it decides the order of a run and must not change.
var sketchKey = rng.New(0, 0x6f7665726c6170)

// makeSketch keeps the SketchSize smallest hashes: all below a threshold that
// is expected to let a few more through, and, should they not do, all.
func (s *set) makeSketch(parts []Part) {
	h := s.heap[:0]
	limit, most, all, listed := ^uint64(0), 0, 0, 0
	for _, p := range parts {
		most, all, listed = max(most, p.Size), all+p.Size, listed+len(p.Nodes)
	}
	if listed > 2*SketchSize*len(parts) { // each node may be in all parts
		limit = uint64(float64(1<<63) / float64(listed) * 2 * float64((SketchSize+SketchSize/4)*len(parts)))
	}
	for {
		for _, p := range parts {
			for _, u := range p.Nodes {
				if x := sketchKey.Uint64(uint64(u)); x <= limit {
					h = append(h, x)
				}
			}
		}
		slices.Sort(h)
		if len(parts) > 1 {
			h = slices.Compact(h)
		}
		if len(h) >= SketchSize || limit == ^uint64(0) {
			break
		}
		h, limit = h[:0], ^uint64(0)
	}
	s.heap = h
	s.sketch = append(s.sketch, h[:min(SketchSize, len(h))]...)
	switch {
	case len(parts) == 1:
		s.size = parts[0].Size
	case most <= SketchSize || len(h) < SketchSize: // the sketches have all nodes, or some twice
		s.size = len(h)
	default: // of n hashes the k-th smallest is about k/n of the way up
		n := float64(SketchSize-1) / (float64(s.sketch[SketchSize-1]) / (1 << 64))
		s.size = int(min(max(n, float64(most)), float64(all)))
	}
}

// estimate returns the expected number of common nodes: of the smallest hashes
// of the union, the share that is in both estimates the Jaccard index J, and
// |A ∩ B| = (|A| + |B|)·J/(1 + J). It is exact for sets that fit their sketches.
func estimate(s, t *set) uint64 {
	a, b := s.sketch, t.sketch
	k := max(len(a), len(b))
	if s.size <= SketchSize && t.size <= SketchSize {
		k = s.size + t.size
	}
	union, both := 0, 0
	i, j := 0, 0
	for union < k && (i < len(a) || j < len(b)) {
		switch {
		case j == len(b) || i < len(a) && a[i] < b[j]:
			i++
		case i == len(a) || b[j] < a[i]:
			j++
		default:
			both++
			i++
			j++
		}
		union++
	}
	if s.size <= SketchSize && t.size <= SketchSize {
		return uint64(both)
	}
	// both/union = J, so J/(1+J) = both/(union+both).
	n := uint64(s.size+t.size) * uint64(both) / uint64(union+both)
	return min(n, uint64(min(s.size, t.size)))
}
