package sampling

import (
	"github.com/gnnactor/gnnactor/rng"
)

// dashboard is the frontier's queue (Zeng et al., the Dashboard): a node owns as
// many consecutive pins as it weighs, and a pin that is hit at random names its
// node. Popping invalidates pins, pushing appends them; when the array is full,
// the tiles, which are the index of first pins and live flags, tell which pins
// to keep, and dead ones are not looked at.
type dashboard struct {
	pins  []uint32 // tile of each pin, or deadPin
	used  int      // pins in use, dead ones included
	tiles []tile
}

// tile is what the pins of a node share.
type tile struct {
	node  uint32
	first uint32 // first pin
	count uint32 // number of pins; 0: popped
}

const (
	deadPin        = ^uint32(0)
	dashboardSlack = 2.5 // η: pins in the array per pin in use
)

func newDashboard(pins int) *dashboard { return &dashboard{pins: make([]uint32, pins)} }

func (d *dashboard) reset() { d.used, d.tiles = 0, d.tiles[:0] }

func (d *dashboard) push(node uint32, weight int) {
	if d.used+weight > len(d.pins) {
		d.compact()
		if d.used+weight > len(d.pins)*3/4 {
			grown := make([]uint32, int(dashboardSlack*float64(d.used+weight)))
			copy(grown, d.pins[:d.used])
			d.pins = grown
		}
	}
	d.append(node, weight)
}

func (d *dashboard) append(node uint32, weight int) {
	t := uint32(len(d.tiles))
	d.tiles = append(d.tiles, tile{node, uint32(d.used), uint32(weight)})
	fill(d.pins[d.used:d.used+weight], t)
	d.used += weight
}

// compact moves the live pins to the front, in the order of their age.
func (d *dashboard) compact() {
	old := d.tiles
	d.used, d.tiles = 0, d.tiles[:0]
	for _, t := range old {
		if t.count > 0 {
			d.append(t.node, int(t.count))
		}
	}
}

// pop removes a node, chosen in proportion to its pins: of the draws of the
// stream the first that names a live pin wins, however many are looked at at
// once. A draw has 32 bits: the probability of a pin is off by a factor of up to
// 1 ± used/2^32.
func (d *dashboard) pop(key rng.Key) uint32 {
	k1, k2 := halves(key)
	t := &d.tiles[probe(d.pins, uint32(d.used), k1, k2)]
	fill(d.pins[t.first:t.first+t.count], deadPin)
	t.count = 0
	return t.node
}

// fill sets all of s to v, long runs by copying.
func fill(s []uint32, v uint32) {
	const short = 16
	for i := range s[:min(short, len(s))] {
		s[i] = v
	}
	for n := short; n < len(s); n *= 2 {
		copy(s[n:], s[:n])
	}
}
