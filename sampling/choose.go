package sampling

import (
	"math/bits"

	"github.com/gnnactor/gnnactor/rng"
)

// chooser draws k of d without replacement in O(k), for any d.
type chooser struct {
	set   []uint64 // for large k: stamp<<32 | value
	stamp uint32
}

const (
	filterBits = 512
	scanLimit  = 64 // up to this k a possible repetition is looked up by scanning
)

// choose writes base plus a uniform k-subset of [0, d) to dst[:k] by Floyd's
// method ("A sample of brilliance", CACM 30, 1987): draw i is uniform in
// [0, d-k+i], and d-k+i takes its place if it was drawn before. d must exceed
// k and be below 2^32.
func (c *chooser) choose(dst []int64, key rng.Key, base int64, k, d int) {
	if k > scanLimit {
		c.chooseMany(dst, key, base, k, d)
		return
	}
	// One bit per residue of the values drawn: exact for d up to filterBits;
	// above, a bit that is set only means that the value has to be looked for.
	var filter [filterBits / 64]uint64
	dst = dst[:k]
	for i := range dst {
		j := uint64(d - k + i)
		t := key.Uintn(uint64(i), j+1)
		w, bit := &filter[t/64%(filterBits/64)], uint64(1)<<(t%64)
		if *w&bit != 0 && (d <= filterBits || contains(dst[:i], base+int64(t))) {
			t = j
			w, bit = &filter[t/64%(filterBits/64)], uint64(1)<<(t%64)
		}
		*w |= bit
		dst[i] = base + int64(t)
	}
}

func contains(s []int64, v int64) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

// chooseMany is choose with a hash set in place of the filter.
func (c *chooser) chooseMany(dst []int64, key rng.Key, base int64, k, d int) {
	if len(c.set) < 2*k {
		c.set = make([]uint64, 1<<bits.Len(uint(2*k-1)))
		c.stamp = 0
	}
	if c.stamp++; c.stamp == 0 {
		clear(c.set)
		c.stamp = 1
	}
	for i := range k {
		j := uint64(d - k + i)
		t := key.Uintn(uint64(i), j+1)
		if !c.add(uint32(t)) {
			t = j
			c.add(uint32(t))
		}
		dst[i] = base + int64(t)
	}
}

// add puts v into the set and reports whether it was new.
func (c *chooser) add(v uint32) bool {
	mask := uint32(len(c.set) - 1)
	shift := 32 - bits.Len32(mask)
	want := uint64(c.stamp)<<32 | uint64(v)
	for h := v * hashMultiplier >> shift; ; h++ {
		switch s := &c.set[h&mask]; {
		case uint32(*s>>32) != c.stamp:
			*s = want
			return true
		case *s == want:
			return false
		}
	}
}
