package attack

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/gnnactor/gnnactor/rng"
)

// Mutator is a way to damage a file.
type Mutator string

// The mutators. Positions are drawn from the whole file and, in half of the
// cases, from its first 512 bytes, where headers are.
const (
	Bit      Mutator = "bit"      // one bit is flipped
	Byte     Mutator = "byte"     // one to eight bytes are set
	Word     Mutator = "word"     // four bytes become a number that is at some limit
	Zero     Mutator = "zero"     // a page is zero, or what there is of one
	Swap     Mutator = "swap"     // two blocks change places
	Splice   Mutator = "splice"   // a block is taken out, or put in twice
	Truncate Mutator = "truncate" // the end is missing
	Extend   Mutator = "extend"   // something follows the end
)

// Mutators lists all of them.
func Mutators() []Mutator { return []Mutator{Bit, Byte, Word, Zero, Swap, Splice, Truncate, Extend} }

// draws hands out draws of a key one by one.
type draws struct {
	key rng.Key
	i   uint64
}

// below returns a number in [0, n).
func (d *draws) below(n int) int {
	d.i++
	return int(d.key.Uintn(d.i, uint64(n)))
}

// at returns a position in a file of n bytes.
func (d *draws) at(n int) int {
	if d.below(2) == 0 {
		n = min(n, 512)
	}
	return d.below(n)
}

// Apply returns a damaged copy of content; it differs from content unless that
// is all zero, or empty and not to be extended.
func (m Mutator) Apply(key rng.Key, content []byte) []byte {
	d := &draws{key: key}
	for range 64 { // a byte may be set to what it was, or two equal blocks swapped
		if out := m.once(d, slices.Clone(content)); !bytes.Equal(out, content) {
			return out
		}
	}
	return Bit.once(d, slices.Clone(content))
}

var limits = []uint32{0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x7f800000, 0x7fc00000} // the last two: ∞, NaN

func (m Mutator) once(d *draws, b []byte) []byte {
	if len(b) == 0 && m != Extend {
		return b
	}
	switch m {
	case Bit:
		b[d.at(len(b))] ^= 1 << d.below(8)
	case Byte:
		for range 1 << d.below(4) {
			b[d.at(len(b))] = byte(d.below(256))
		}
	case Word:
		word := binary.LittleEndian.AppendUint32(nil, limits[d.below(len(limits))])
		copy(b[d.at(len(b))&^3:], word)
	case Zero:
		const page = 4096
		at := d.below(len(b))
		if len(b) > page {
			at &^= page - 1
		}
		clear(b[at:min(at+page, len(b))])
	case Swap:
		n := 1 << d.below(8)
		i, j := d.at(len(b)), d.at(len(b))
		if i > j {
			i, j = j, i
		}
		n = min(n, j-i, len(b)-j)
		first := slices.Clone(b[i : i+n])
		copy(b[i:], b[j:j+n])
		copy(b[j:], first)
	case Splice:
		at := d.at(len(b))
		block := slices.Clone(b[at:min(at+1<<d.below(10), len(b))])
		if d.below(2) == 0 {
			return slices.Delete(b, at, at+len(block))
		}
		return slices.Insert(b, at, block...)
	case Truncate:
		return b[:d.at(len(b))]
	case Extend:
		more := make([]byte, 1<<d.below(14))
		if d.below(2) == 0 && len(b) > 0 {
			for i := range more { // as if a second one followed
				more[i] = b[i%len(b)]
			}
		}
		return append(b, more...)
	}
	return b
}
