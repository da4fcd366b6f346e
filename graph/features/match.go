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

// fetchPlaces prefetches the places of nodes.
func (s *Slab) fetchPlaces(nodes []uint32) {
	if len(nodes) > 0 {
		fetch(unsafe.SliceData(s.placeM), &nodes[0], len(nodes), 4, 0)
	}
}

// fetchSlots prefetches the state of slots, given with less added to each.
func (s *Slab) fetchSlots(slots []uint32, less int) {
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
		s.fetchPlaces(next)
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

// touch marks the slots that l found as read by it, and counts them.
func (s *Slab) touch(l *Lease) {
	for strip, next := range strips(l.hits) {
		s.fetchSlots(next, 0)
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
			if x.queue != 0 && x.freq < maxFreq {
				x.freq++
			}
			x.last = l.number
		}
	}
}

// fill gives the misses of l the slots that room made sure of.
func (s *Slab) fill(l *Lease) {
	for strip := range strips(l.misses) {
		var nodes [stripLength]uint32
		for i, at := range strip {
			nodes[i] = l.inputs[at]
		}
		s.fetchPlaces(nodes[:len(strip)])
		s.fetchSlots(s.free[max(0, len(s.free)-len(strip)):], 0)
		for i, at := range strip {
			u := nodes[i]
			p := s.take(u)
			s.slots[p].last = l.number
			if s.o.Keep > 0 {
				s.place[u] = p + 1
			}
			l.Slots[at] = p
			l.Load = append(l.Load, u)
			l.LoadSlots = append(l.LoadSlots, p)
		}
	}
}
