package features

import (
	"fmt"
	"iter"
	"unsafe"
)

// Matching reads and writes tables at random, so it goes strip by strip, and
// fetches what the next strip needs while it works on one.

const stripLength = 128

// strips yields x in strips, each with the one after it.
func strips(x []uint32) iter.Seq2[[]uint32, []uint32] {
	return func(yield func(strip, next []uint32) bool) {
		for len(x) > 0 {
			n := min(len(x), stripLength)
			rest := x[n:]
			if !yield(x[:n], rest[:min(len(rest), stripLength)]) {
				return
			}
			x = rest
		}
	}
}

// prefetchPlaces prefetches the places of nodes.
func (s *Slab) prefetchPlaces(nodes []uint32) {
	if len(nodes) > 0 {
		fetch(unsafe.SliceData(s.placeM), &nodes[0], len(nodes), 4, 0)
	}
}

// prefetchSlots prefetches the state of slots, given with less added to each.
func (s *Slab) prefetchSlots(slots []uint32, less int) {
	if len(slots) > 0 {
		fetch(unsafe.SliceData(s.slotsM), &slots[0], len(slots), slotBytes, less*slotBytes)
	}
}

// checkNodes reports a node that there is not.
func (s *Slab) checkNodes(nodes []uint32) error {
	most := uint32(0)
	for _, u := range nodes {
		most = max(most, u)
	}
	if len(nodes) > 0 && int(most) >= len(s.place) {
		return fmt.Errorf("features: node %d is out of range [0, %d)", most, len(s.place))
	}
	return nil
}

// find sets l.Slots where there is a slot, and lists the hits and the misses.
func (s *Slab) find(l *Lease, inputs []uint32) {
	misses, hits := l.misses[:len(inputs)], l.hits[:len(inputs)]
	m, h, i := 0, 0, 0
	for strip, next := range strips(inputs) {
		s.prefetchPlaces(next)
		for _, u := range strip {
			p := s.place[u] - 1
			miss := int(p >> 31) // 0 and ghosts, but for the ghost number 0, which there is not
			l.Slots[i], hits[h], misses[m] = p, p, uint32(i)
			m += miss
			h += 1 - miss
			i++
			// Both lists are as long as inputs: the index is in range until the end.
			if i == len(inputs) {
				break
			}
		}
	}
	l.misses, l.hits = misses[:m], hits[:h]
}

// findAgain is find for the misses of a lease that waited: since then a pin was
// published, or a batch was released whose rows are cached.
func (s *Slab) findAgain(l *Lease) {
	n := 0
	l.hits = l.hits[:0]
	for _, at := range l.misses {
		if p := s.place[l.inputs[at]]; p != 0 && p&ghostBit == 0 {
			l.Slots[at] = p - 1
			l.hits = append(l.hits, p-1)
			continue
		}
		l.misses[n] = at
		n++
	}
	l.misses = l.misses[:n]
}

// touch marks the slots that l found as read by it, and counts them.
func (s *Slab) touch(l *Lease) {
	for strip, next := range strips(l.hits) {
		s.prefetchSlots(next, 0)
		for _, p := range strip {
			x := &s.slots[p]
			switch {
			case x.pins > 0:
				s.stats.Pinned++
			case x.last != 0:
				s.stats.Shared++
			default:
				s.stats.Cached++
			}
			if x.queue != 0 && x.freq < maxFreq && x.last != l.number {
				x.freq++
			}
			x.last = l.number
		}
	}
}

// pending is the place of a node that distinct has counted: the ghost number 0,
// which no row gets.
const pending = ghostBit

// distinct returns how many nodes the misses of l are.
func (s *Slab) distinct(l *Lease) int {
	places := l.hits[:0] // the hits were touched: their memory is free
	for strip := range strips(l.misses) {
		for _, at := range strip {
			if u := l.inputs[at]; s.place[u] != pending {
				places = append(places, s.place[u])
				s.place[u] = pending
			}
		}
	}
	n := 0
	for _, at := range l.misses {
		if u := l.inputs[at]; s.place[u] == pending {
			s.place[u] = places[n]
			n++
		}
	}
	return n
}

// fill gives the misses of l the slots that room made sure of: one to a node,
// however often l lists it.
func (s *Slab) fill(l *Lease) {
	places := l.hits[:0] // of l.Load, before
	for strip := range strips(l.misses) {
		var nodes [stripLength]uint32
		for i, at := range strip {
			nodes[i] = l.inputs[at]
		}
		s.prefetchPlaces(nodes[:len(strip)])
		s.prefetchSlots(s.free[max(0, len(s.free)-len(strip)):], 0)
		for i, at := range strip {
			u := nodes[i]
			before := s.place[u]
			if before != 0 && before&ghostBit == 0 { // l lists it again
				l.Slots[at] = before - 1
				continue
			}
			p := s.take(u)
			s.slots[p].last = l.number
			s.place[u] = p + 1
			places = append(places, before)
			l.Slots[at] = p
			l.Load = append(l.Load, u)
			l.LoadSlots = append(l.LoadSlots, p)
		}
	}
	if s.o.Keep > 0 {
		return
	}
	for i, u := range l.Load { // no other batch is to find them
		s.place[u] = places[i]
	}
}
