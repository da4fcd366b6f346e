// Package rng is the counter-based generator behind every random choice.
//
// A draw is a pure function of a Key and a counter; a Key is folded from
// coordinates such as (seed, epoch, batch, layer, node). No draw depends on
// which worker makes it, nor on how many were made before, so results repeat
// bit for bit whatever the schedule. The mixing function is the finaliser of
// splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014), which passes BigCrush as a counter-based hash.
//
// # Contract
//
// The draws of a key and the keys that are folded from a seed are part of what a run
// can be repeated by, and stay what they are: those of a sampler of your own, too.
// A Key is a value: it may be copied, compared and used from any goroutine, draws
// change nothing in it, and two draws of one key and counter are the same. Who needs
// several independent draws counts them up, or takes a sub-stream (With) for each
// node, layer or purpose. It is no source of secrets.
package rng

import "math/bits"

const golden = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// Key names one stream of draws.
type Key uint64

// New folds seed and the coordinates, in order, into a Key.
func New(seed uint64, coords ...uint64) Key {
	k := Key(mix(seed + golden))
	for _, c := range coords {
		k = k.With(c)
	}
	return k
}

// With returns the key of the sub-stream c of k. The rotation and the constant
// (the fractional digits of √3) keep a key from cancelling against a coordinate
// of the same value.
func (k Key) With(c uint64) Key {
	return Key(mix(bits.RotateLeft64(uint64(k), 23) ^ mix(c^0xbb67ae8584caa73b)))
}

// Skip returns the stream of k without its first n draws.
func (k Key) Skip(n uint64) Key { return k + Key(n*golden) }

// Uint64 returns draw i of the stream: 64 uniform bits.
func (k Key) Uint64(i uint64) uint64 { return mix(uint64(k) + (i+1)*golden) }

// Uintn returns draw i mapped to [0, n), by Lemire's multiplication; its bias
// is below n/2^64. n must not be 0.
func (k Key) Uintn(i, n uint64) uint64 {
	hi, _ := bits.Mul64(k.Uint64(i), n)
	return hi
}

// Float64 returns draw i in [0, 1), on a grid of 2^-53.
func (k Key) Float64(i uint64) float64 { return float64(k.Uint64(i)>>11) * 0x1p-53 }

// Open returns draw i in the open interval (0, 1): safe to take a logarithm of.
func (k Key) Open(i uint64) float64 { return (float64(k.Uint64(i)>>12) + 0.5) * 0x1p-52 }

// Perm fills p with a uniform permutation of [0, len(p)) (Fisher-Yates).
func (k Key) Perm(p []uint32) {
	for i := range p {
		p[i] = uint32(i)
	}
	k.Shuffle(p)
}

// Shuffle permutes p uniformly in place (Fisher-Yates).
func (k Key) Shuffle(p []uint32) {
	for i := len(p) - 1; i > 0; i-- {
		j := k.Uintn(uint64(i), uint64(i)+1)
		p[i], p[j] = p[j], p[i]
	}
}
