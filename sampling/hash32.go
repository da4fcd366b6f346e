package sampling

import "github.com/gnnactor/gnnactor/rng"

// hash32 maps x to 32 bits under a 64-bit key, given in two halves: two rounds of
// a 32-bit mixing function (the low-bias constants of Wellons, 2018), which
// eight lanes can do at once. For one key it is a bijection.
func hash32(x, k1, k2 uint32) uint32 { return mix32(mix32(x^k1) ^ k2) }

func mix32(x uint32) uint32 {
	x = (x ^ x>>16) * 0x21f0aaad
	x = (x ^ x>>15) * 0xd35a2d97
	return x ^ x>>15
}

// halves returns a key as hash32 takes it.
func halves(k rng.Key) (k1, k2 uint32) { return uint32(k), uint32(k >> 32) }

// below writes the positions of the entries of row whose hash is at most limit
// to dst, which has room for 8 more than row is long, and returns how many there
// are.
func below(dst, row []uint32, k1, k2, limit uint32) int {
	n := 0
	if simd {
		// A call is kept to microseconds: assembly cannot be preempted.
		const most = 4096
		whole := len(row) &^ 7
		for begin := 0; begin < whole; begin += most {
			end := min(begin+most, whole)
			found := belowAVX2(&dst[n], &row[begin], end-begin, k1, k2, limit)
			if begin > 0 {
				for i := range dst[n : n+found] {
					dst[n+i] += uint32(begin)
				}
			}
			n += found
		}
		return n + belowGo(dst[n:], row[whole:], uint32(whole), k1, k2, limit)
	}
	return belowGo(dst, row, 0, k1, k2, limit)
}

// below512 is below by AVX-512, which may find some more, hashes whose upper 15
// bits are those of limit. It writes the hashes but for their last step, too.
// Both have room for 16 more than row is long.
func below512(dst, hash, row []uint32, k1, k2, limit uint32) int {
	const most = 4096 // entries a call: assembly cannot be preempted
	n := 0
	for begin := 0; begin < len(row); begin += most {
		n += belowAVX512(&dst[n], &hash[n], &row[begin], min(most, len(row)-begin), uint32(begin), k1, k2, limit)
	}
	return n
}

func belowGo(dst, row []uint32, first, k1, k2, limit uint32) int {
	n := 0
	for i, u := range row {
		if hash32(u, k1, k2) <= limit {
			dst[n] = first + uint32(i)
			n++
		}
	}
	return n
}

// probe draws positions in [0, used), draw t by hash32(t), until one holds a
// live pin, and returns that. There must be one.
func probe(pins []uint32, used, k1, k2 uint32) uint32 {
	if simd {
		return probeAVX2(&pins[0], used, k1, k2)
	}
	return probeGo(pins, used, k1, k2)
}

func probeGo(pins []uint32, used, k1, k2 uint32) uint32 {
	for t := uint32(0); ; t++ {
		if p := pins[uint64(hash32(t, k1, k2))*uint64(used)>>32]; p != deadPin {
			return p
		}
	}
}
