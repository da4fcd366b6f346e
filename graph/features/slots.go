package features

import (
	"math"
	"slices"
)

// newLease returns an empty lease for the batch with number head.
func (s *Slab) newLease(inputs int) *Lease {
	var l *Lease
	if n := len(s.spare); n > 0 {
		l, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		l = new(Lease)
	}
	if cap(l.Slots) < inputs {
		l.Slots = make([]uint32, inputs, inputs+inputs/4)
	}
	l.Slots = l.Slots[:inputs]
	if cap(l.misses) < inputs {
		l.misses, l.hits = make([]uint32, 0, cap(l.Slots)), make([]uint32, 0, cap(l.Slots))
	}
	l.Load, l.LoadSlots, l.misses, l.hits = l.Load[:0], l.LoadSlots[:0], l.misses[:0], l.hits[:0]
	l.slab, l.number, l.released = s, s.head, false
	return l
}

// dropMisses gives up the inputs that have no slot yet.
func (l *Lease) dropMisses() {
	n, m := 0, 0
	for i, p := range l.Slots {
		if m < len(l.misses) && l.misses[m] == uint32(i) {
			m++
			continue
		}
		l.Slots[n] = p
		n++
	}
	l.Slots, l.misses, l.inputs = l.Slots[:n], l.misses[:0], nil
}

// retire gives up the rows of the released batches before the last keep ones
// matched before the present one, in order: a slot belongs to the last batch
// that reads it.
func (s *Slab) retire(keep int) {
	n := 0
	for _, l := range s.live {
		if !l.released || int64(l.number)+int64(keep) > int64(s.head) {
			break
		}
		n++
		s.giveUp(l)
	}
	s.spare = append(s.spare, s.live[:n]...)
	s.live = slices.Delete(s.live, 0, n)
}

// giveUp drops the rows that no later batch reads.
func (s *Slab) giveUp(l *Lease) {
	last := l.Slots[:0]
	for strip, next := range strips(l.Slots) {
		s.prefetchSlots(next, 0)
		for _, p := range strip {
			x := &s.slots[p]
			if x.last != l.number {
				continue
			}
			x.last = 0
			if x.pins == 0 && x.queue == 0 {
				last = append(last, p)
			}
		}
	}
	var nodes [stripLength]uint32
	for strip := range strips(last) {
		for i, p := range strip {
			nodes[i] = s.slots[p].node
		}
		s.prefetchPlaces(nodes[:len(strip)])
		for _, p := range strip {
			s.drop(p, &s.slots[p])
		}
	}
}

// drop gives up a row that nothing refers to: to the dynamic cache, or for good.
func (s *Slab) drop(p uint32, x *slot) {
	if at := s.place[x.node]; s.cache.capacity > 0 && (at == p+1 || at == 0 || at&ghostBit != 0) {
		s.place[x.node] = p + 1
		s.insert(p, x)
		return
	}
	s.vacate(p, x)
}

// vacate makes a slot free.
func (s *Slab) vacate(p uint32, x *slot) {
	if s.place[x.node] == p+1 {
		s.place[x.node] = 0
	}
	if s.o.Poison {
		s.poison(p)
	}
	s.free = append(s.free, p)
}

// poison fills a row with NaN, or what comes closest to it.
func (s *Slab) poison(p uint32) {
	row := s.table.Data[int(p)*s.table.Stride:][:s.table.Stride]
	for i := range row {
		row[i] = 0xff
	}
	if s.table.RowScale != nil {
		s.table.RowScale[p] = float32(math.NaN())
	}
}

// room makes sure that need slots can be taken, and reports whether they can.
func (s *Slab) room(need int) bool {
	available := func() int { return len(s.free) + len(s.slots) - s.fresh }
	if available() < need {
		s.retire(0)
	}
	for available() < need && s.evict() {
	}
	if available() < need {
		return false
	}
	s.limit = max(s.limit, s.fresh+need-len(s.free))
	return true
}

// take returns a free slot for node u. room made sure that there is one.
func (s *Slab) take(u uint32) uint32 {
	var p uint32
	if n := len(s.free); n > 0 {
		p, s.free = s.free[n-1], s.free[:n-1]
	} else {
		p = uint32(s.fresh)
		s.fresh++
		if s.o.Poison {
			s.poison(p)
		}
	}
	s.stats.Peak = max(s.stats.Peak, s.fresh-len(s.free))
	s.slots[p] = slot{node: u, freq: s.remembered(u)}
	return p
}
