package sampling

import (
	"fmt"
	"math"
	"math/bits"
)

// idMap numbers global ids in the order of their first occurrence (Fused-Map,
// FastGL): an open-addressing table with linear probing. A slot holds the
// key in its upper half and the value plus base in its lower half; it is taken
// only if that is at least base. So moving base past the values of a batch
// empties the table without touching it.
type idMap struct {
	slots []uint64 // a power of two, at most half of them taken
	shift uint32   // 32 - log2(len(slots))
	base  uint32   // at least 1
	count uint32   // keys in the map: the values are [0, count)
}

const (
	hashMultiplier = 0x9e3779b1 // 2^32/φ: Fibonacci hashing
	minSlots       = 1 << 10
)

// clear empties the map.
func (m *idMap) clear() {
	switch {
	case m.slots == nil:
		m.resize(minSlots)
	case uint64(m.base)+uint64(m.count)+uint64(len(m.slots)) > math.MaxUint32:
		clear(m.slots)
		m.base = 1
	default:
		m.base += m.count
	}
	m.count = 0
}

// reserve makes room for extra ids beside those in nodes, which it renumbers
// when the table grows.
func (m *idMap) reserve(nodes []uint32, extra int) {
	need := 2 * (len(nodes) + extra)
	if need <= len(m.slots) {
		return
	}
	m.resize(1 << bits.Len(uint(need-1)))
	m.count = 0
	for _, u := range nodes {
		m.put(u)
	}
}

func (m *idMap) resize(size int) {
	m.slots = make([]uint64, size)
	m.shift = uint32(32 - bits.TrailingZeros(uint(size)))
	m.base = 1
}

// put gives the next local id to a key that is not in the map.
func (m *idMap) put(u uint32) {
	mask := uint32(len(m.slots) - 1)
	for h := u * hashMultiplier >> m.shift; ; h++ {
		if s := &m.slots[h&mask]; uint32(*s) < m.base {
			*s = uint64(u)<<32 | uint64(m.base+m.count)
			m.count++
			return
		}
	}
}

// number replaces the global ids by local ones and appends the ids that are
// new to nodes, which must have room for them. reserve must have been called
// for as many.
func (m *idMap) number(ids, nodes []uint32) []uint32 {
	slots, base, shift := m.slots, m.base, m.shift
	mask := uint32(len(slots) - 1)
	n := uint32(len(nodes))
	nodes = nodes[:cap(nodes)]
	for i, u := range ids {
		h := u * hashMultiplier >> shift
		for {
			s := slots[h&mask]
			if uint32(s) < base {
				slots[h&mask] = uint64(u)<<32 | uint64(base+n)
				nodes[n] = u
				ids[i] = n
				n++
				break
			}
			if uint32(s>>32) == u {
				ids[i] = uint32(s) - base
				break
			}
			h++
		}
	}
	m.count = n
	return nodes[:n]
}

// get returns the local id of u and whether it has one.
func (m *idMap) get(u uint32) (uint32, bool) {
	mask := uint32(len(m.slots) - 1)
	for h := u * hashMultiplier >> m.shift; ; h++ {
		s := m.slots[h&mask]
		if uint32(s) < m.base {
			return 0, false
		}
		if uint32(s>>32) == u {
			return uint32(s) - m.base, true
		}
	}
}

// seed appends the seeds to nodes, numbered in the order given. It reports ids
// that are out of range of n nodes, or given twice.
func (m *idMap) seed(seeds, nodes []uint32, n int) ([]uint32, error) {
	m.reserve(nodes, len(seeds))
	nodes = reserve(nodes, len(seeds))
	for i, u := range seeds {
		if uint64(u) >= uint64(n) {
			return nodes, fmt.Errorf("sampling: seed %d is node %d; it is out of range [0, %d)", i, u, n)
		}
		if j, ok := m.get(u); ok {
			return nodes, fmt.Errorf("sampling: seeds %d and %d are both node %d; give each node once", j, i, u)
		}
		m.put(u)
		nodes = append(nodes, u)
	}
	return nodes, nil
}
