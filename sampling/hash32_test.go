package sampling

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gnnactor/gnnactor/rng"
)

func TestKernelsEqualTheirTwins(t *testing.T) {
	if !simd {
		t.Skip("this processor has no AVX2, or GNNACTOR_SIMD=go is set")
	}
	key := rng.New(5)
	row := make([]uint32, 10000)
	for i := range row {
		row[i] = uint32(key.Uint64(uint64(i)))
	}
	got, want := make([]uint32, len(row)+hitSlack), make([]uint32, len(row))
	hashes := make([]uint32, len(row)+hitSlack)
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 63, 4095, 4096, 4097, 10000} {
		for _, limit := range []uint32{0, 1 << 20, 1 << 29, math.MaxUint32} {
			a := below(got, row[:n], 7, 8, limit)
			b := belowGo(want, row[:n], 0, 7, 8, limit)
			if !slices.Equal(got[:a], want[:b]) {
				t.Fatalf("%d entries, limit %d: %d are found, want %d", n, limit, a, b)
			}
			if !simd512 {
				continue
			}
			a = below512(got, hashes, row[:n], 7, 8, limit)
			b = belowGo(want, row[:n], 0, 7, 8, limit|1<<17-1)
			if !slices.Equal(got[:a], want[:b]) {
				t.Fatalf("AVX-512, %d entries, limit %d: %d are found, want %d", n, limit, a, b)
			}
			for i, h := range hashes[:a] {
				if want := hash32(row[got[i]], 7, 8); h^h>>15 != want {
					t.Fatalf("AVX-512, %d entries: entry %d has hash %d, want %d", n, got[i], h^h>>15, want)
				}
			}
		}
	}
	exact := filter{make([]uint64, 1<<10), 1, 0}
	for i := range exact.bits {
		exact.bits[i] = key.Uint64(uint64(i)) & key.Uint64(uint64(i)*7)
	}
	hashed := filter{exact.bits, hashMultiplier, 16}
	got, want = make([]uint32, len(row)+8), make([]uint32, len(row)+8)
	for n := range 10000 {
		if n > 40 && n%997 != 0 && n&^8 != 4096 {
			continue
		}
		a, b := hashed.members(got, row[:n]), hashed.membersGo(want, row[:n], 0)
		if !slices.Equal(got[:a], want[:b]) {
			t.Fatalf("%d entries: %d are let through, want %d", n, a, b)
		}
	}
	for i := range row {
		row[i] &= 1<<16 - 1
	}
	for n := range 40 {
		a, b := exact.members(got, row[:n]), exact.membersGo(want, row[:n], 0)
		if !slices.Equal(got[:a], want[:b]) {
			t.Fatalf("%d entries: %d are members, want %d", n, a, b)
		}
	}
	for round := range 3000 {
		k := key.With(uint64(round))
		pins := make([]uint32, 1+k.Uintn(0, 200))
		for i := range pins {
			pins[i] = deadPin
			if k.Uintn(uint64(i+1), 20) == 0 {
				pins[i] = uint32(i)
			}
		}
		pins[k.Uintn(300, uint64(len(pins)))] = 77
		k1, k2 := halves(k)
		if got, want := probeAVX2(&pins[0], uint32(len(pins)), k1, k2), probeGo(pins, uint32(len(pins)), k1, k2); got != want {
			t.Fatalf("round %d: pin %d, want %d", round, got, want)
		}
	}
}

// Kernels keep what sorting keeps, and say so when parallel edges are in the way.
func TestLeast(t *testing.T) {
	testLeast(t)
	if simd512 {
		setSIMD512(false)
		defer setSIMD512(true)
		testLeast(t)
	}
}

func testLeast(t *testing.T) {
	l := &labor{}
	key := rng.New(6)
	for round := range 3000 {
		k := key.With(uint64(round))
		d := 2 + int(k.Uintn(0, 140))
		n := 2 + int(k.Uintn(1, uint64(d-1)))
		keep := 1 + int(k.Uintn(2, uint64(n)))
		spread := uint64(1) << 32
		if round%3 == 0 {
			spread = 30 // with parallel edges
		}
		row := make([]uint32, d)
		for i := range row {
			row[i] = uint32(k.Uintn(uint64(10+i), spread))
		}
		k1, k2 := halves(k)
		l.below(row, k1, k2, math.MaxUint32)
		hits := make([]uint32, 0, n)
		for i := 0; i < d && len(hits) < n; i++ {
			if d-i == n-len(hits) || k.Uint64(uint64(500+i))&1 == 0 {
				hits = append(hits, uint32(i))
			}
		}
		copy(l.hits, hits)
		for i, h := range hits {
			l.hashes[i] = l.hashes[h]
		}
		if simd512 && spread == 1<<32 && keep < n {
			pos, hashes := slices.Clone(l.hits[:n+hitSlack]), slices.Clone(l.hashes[:n+hitSlack])
			if kept := leastAVX512(&pos[0], &hashes[0], n, keep); kept != keep {
				t.Fatalf("round %d: the kernel keeps %d of %d, want %d", round, kept, n, keep)
			}
		}
		want := slices.Clone(hits)
		slices.SortStableFunc(want, func(a, b uint32) int { return cmp.Compare(hash32(row[a], k1, k2), hash32(row[b], k1, k2)) })
		want = want[:keep]
		slices.Sort(want)
		if got := l.least(row, n, keep, k1, k2); !slices.Equal(got, want) {
			t.Fatalf("round %d: %d of %d hits: %v, want %v", round, keep, n, got, want)
		}
	}
}

// Low bits, high bits, neighbouring inputs and related keys all look uniform. For
// other keys this would fail with probability 1e-4 a check, 6e-4 in all.
func TestHash32(t *testing.T) {
	const n = 1 << 18
	for name, f := range map[string]func(i uint32) uint32{
		"high bits":        func(i uint32) uint32 { return hash32(i, 11, 12) >> 24 },
		"low bits":         func(i uint32) uint32 { return hash32(i, 11, 12) & 255 },
		"pairs of inputs":  func(i uint32) uint32 { return hash32(i, 3, 4)>>28<<4 | hash32(i+1, 3, 4)>>28 },
		"keys in a row":    func(i uint32) uint32 { return hash32(5, i, 12) >> 24 },
		"pairs of keys":    func(i uint32) uint32 { return hash32(i, 3, 4)>>28<<4 | hash32(i, 3, 5)>>28 },
		"inputs far apart": func(i uint32) uint32 { return hash32(i<<14, 1, 2) >> 24 },
	} {
		counts := make([]int, 256)
		for i := range uint32(n) {
			counts[f(i)]++
		}
		x := 0.0
		for _, c := range counts {
			x += (float64(c) - n/256) * (float64(c) - n/256) / (n / 256)
		}
		p := distuv.ChiSquared{K: 255}.Survival(x)
		// Of a bijection over a part of its domain slightly too regular counts
		// are no surprise: only the upper tail counts.
		if p < 1e-4 {
			t.Errorf("%s: p = %g", name, p)
		}
	}
}
