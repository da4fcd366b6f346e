package features

import (
	"errors"
	"fmt"
	"math"
)

// Pin is a set of rows that stay in a slab: a static cache, or a generation of
// GNS's. Its slices belong to the slab until Unpin.
type Pin struct {
	Load      []uint32 // nodes whose rows have to be read before Publish,
	LoadSlots []uint32 // and where to

	slab      *Slab
	slots     []uint32
	published bool
}

// Request returns the read that Publish needs.
func (p *Pin) Request() Request {
	return Request{IDs: p.Load, Slots: p.LoadSlots, Dst: p.slab.table}
}

// Rows returns how many rows are pinned.
func (p *Pin) Rows() int { return len(p.slots) }

// Pin takes slots for the rows of the given distinct nodes. Rows that are
// pinned and published already are shared; the others have to be read, and are
// not used by any batch until Publish: so the next generation of a cache is
// loaded while the present one serves. ErrFull asks to try again after a batch
// is released.
func (s *Slab) Pin(nodes []uint32) (*Pin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := 0
	for _, u := range nodes {
		if int(u) >= len(s.place) {
			return nil, fmt.Errorf("features: node %d is out of range [0, %d)", u, len(s.place))
		}
		if x := s.pinned(u); x == nil {
			need++
		} else if x.pins == math.MaxUint8 {
			return nil, errors.New("features: a row is pinned 255 times; Unpin what is not used any more")
		}
	}
	if !s.room(need) {
		for _, l := range s.live {
			if !l.released {
				return nil, ErrFull
			}
		}
		return nil, fmt.Errorf("features: %d rows of %d bytes do not fit the slab of %d, of which %d are in use; give it more memory, or pin fewer",
			need, s.layout.RowBytes(), s.limit, s.fresh-len(s.free))
	}
	p := &Pin{slab: s, slots: make([]uint32, 0, len(nodes)), Load: make([]uint32, 0, need), LoadSlots: make([]uint32, 0, need)}
	for _, u := range nodes {
		if x := s.pinned(u); x != nil {
			x.pins++
			p.slots = append(p.slots, s.place[u]-1)
			continue
		}
		at := s.take(u)
		s.slots[at].pins = 1
		p.slots = append(p.slots, at)
		p.Load, p.LoadSlots = append(p.Load, u), append(p.LoadSlots, at)
	}
	s.stats.Pins += int64(len(p.Load))
	return p, nil
}

// pinned returns the slot in which u is pinned and published, or nil.
func (s *Slab) pinned(u uint32) *slot {
	if p := s.place[u]; p != 0 && p&ghostBit == 0 && s.slots[p-1].pins > 0 {
		return &s.slots[p-1]
	}
	return nil
}

// Publish tells that p's rows were read: from now on Match finds them.
func (s *Slab) Publish(p *Pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.slab != s || p.published {
		panic("features: Publish of what is published, or of another slab")
	}
	p.published = true
	for _, at := range p.LoadSlots {
		s.place[s.slots[at].node] = at + 1
	}
}

// Unpin ends p. Batches that read its rows keep them until they are released.
func (s *Slab) Unpin(p *Pin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.slab != s {
		panic("features: Unpin of what is not pinned")
	}
	p.slab = nil
	for _, at := range p.slots {
		x := &s.slots[at]
		if x.pins--; x.pins == 0 && x.queue == 0 && x.last == 0 {
			s.drop(at, x)
		}
	}
}
