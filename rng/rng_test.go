package rng

import (
	"math"
	"testing"
)

// chiSquare returns Σ (o−e)²/e.
func chiSquare(observed []int, expected float64) float64 {
	var s float64
	for _, o := range observed {
		d := float64(o) - expected
		s += d * d / expected
	}
	return s
}

// For k−1 degrees of freedom the statistic is about normal with mean k−1 and
// variance 2(k−1); the bound of 5 standard deviations errs once in 10^6.
func TestUniform(t *testing.T) {
	const bins, draws = 1000, 1_000_000
	for name, draw := range map[string]func(i uint64) uint64{
		"counter":     func(i uint64) uint64 { return New(1).Uintn(i, bins) },
		"coordinates": func(i uint64) uint64 { return New(1, i).Uintn(0, bins) },
		"last of two": func(i uint64) uint64 { return New(1, 7, i).Uintn(3, bins) },
		"seeds":       func(i uint64) uint64 { return New(i).Uintn(0, bins) },
		"float":       func(i uint64) uint64 { return uint64(New(2).Float64(i) * bins) },
		"open":        func(i uint64) uint64 { return uint64(New(3).Open(i) * bins) },
	} {
		seen := make([]int, bins)
		for i := range uint64(draws) {
			seen[draw(i)]++
		}
		if x := chiSquare(seen, draws/bins); math.Abs(x-(bins-1)) > 5*math.Sqrt(2*(bins-1)) {
			t.Errorf("%s: chi-square %.0f for %d degrees of freedom", name, x, bins-1)
		}
	}
}

func TestCoordinatesMatter(t *testing.T) {
	seen := map[Key][]uint64{}
	for _, c := range [][]uint64{{}, {0}, {0, 0}, {1}, {0, 1}, {1, 0}, {1, 1}, {2}, {math.MaxUint64}} {
		k := New(1, c...)
		if other, twice := seen[k]; twice {
			t.Errorf("%v and %v fold to the same key", c, other)
		}
		seen[k] = c
	}
	if New(1, 2, 3) != New(1, 2).With(3) {
		t.Error("New(s, a, b) is not New(s, a).With(b)")
	}
}

// All 24 orders of 4 values are equally likely; same bound as above.
func TestPerm(t *testing.T) {
	const draws = 240_000
	seen := map[[4]uint32]int{}
	for i := range uint64(draws) {
		var p [4]uint32
		New(5, i).Perm(p[:])
		seen[p]++
	}
	counts := make([]int, 0, 24)
	for _, n := range seen {
		counts = append(counts, n)
	}
	if len(counts) != 24 {
		t.Fatalf("%d of 24 orders occur", len(counts))
	}
	if x := chiSquare(counts, draws/24.0); math.Abs(x-23) > 5*math.Sqrt(2*23) {
		t.Errorf("chi-square %.1f for 23 degrees of freedom", x)
	}
}

func TestOpenNeverTouchesTheEnds(t *testing.T) {
	if lo, hi := (0+0.5)*0x1p-52, (float64(1<<52-1)+0.5)*0x1p-52; lo <= 0 || hi >= 1 {
		t.Errorf("Open spans [%v, %v]", lo, hi)
	}
	for i := range uint64(1000) {
		if u := New(9).Open(i); u <= 0 || u >= 1 {
			t.Fatalf("draw %d is %v", i, u)
		}
	}
}

func BenchmarkUintn(b *testing.B) {
	k := New(1)
	var sum uint64
	for i := uint64(0); b.Loop(); i++ {
		sum += k.Uintn(i, 10)
	}
	_ = sum
}

func TestSkip(t *testing.T) {
	for _, n := range []uint64{0, 1, 7, math.MaxUint64 - 2} {
		for i := range uint64(5) {
			if got, want := New(3).Skip(n).Uint64(i), New(3).Uint64(n+i); got != want {
				t.Errorf("draw %d after %d are skipped is %d, want %d", i, n, got, want)
			}
		}
	}
}
