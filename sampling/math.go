package sampling

import (
	"cmp"
	"math"
	"math/bits"
)

// kthSmallest returns the element of rank k, counted from 0, and reorders x
// (Hoare's selection with the median of three).
func kthSmallest[T cmp.Ordered](x []T, k int) T {
	lo, hi := 0, len(x)-1
	for lo < hi {
		mid := lo + (hi-lo)/2
		if x[mid] < x[lo] {
			x[mid], x[lo] = x[lo], x[mid]
		}
		if x[hi] < x[lo] {
			x[hi], x[lo] = x[lo], x[hi]
		}
		if x[hi] < x[mid] {
			x[hi], x[mid] = x[mid], x[hi]
		}
		pivot := x[mid]
		i, j := lo, hi
		for i <= j {
			for x[i] < pivot {
				i++
			}
			for pivot < x[j] {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return x[k]
		}
	}
	return x[k]
}

// onesBelow counts the ones of w below bit i.
func onesBelow(w uint64, i uint32) int { return bits.OnesCount64(w & (1<<i - 1)) }

// oneMinusExp returns 1 − e^−x for x ≥ 0, the same on every machine (math.Expm1
// may be fused). Relative error below 1e-15 for x in [0, 1], absolute above.
func oneMinusExp(x float64) float64 {
	if x > 40 {
		return 1
	}
	// Halve until the series is short, then double: 1 − e^−2y = (1 − e^−y)(1 + e^−y)
	// = z(2 − z) with z = 1 − e^−y.
	n := 0
	for x > 0.25 {
		x *= 0.5
		n++
	}
	// z = x − x²/2! + x³/3! − … in Horner's form.
	z := 1.0
	for i := 14.0; i >= 2; i-- {
		z = 1 - float64(float64(x*z)/i)
	}
	z *= x
	for range n {
		z *= 2 - z
	}
	return z
}

// log1m returns ln(1 − p) for p in [0, 1], −Inf for p = 1, the same on
// every machine, by the series of −2·artanh(p/(2−p)).
func log1m(p float64) float64 {
	if p >= 1 {
		return math.Inf(-1)
	}
	if p > 0.25 { // ln(1−p) = 2·ln(√(1−p))
		return 2 * log1m(1-math.Sqrt(1-p))
	}
	s := p / (2 - p)
	s2 := s * s
	sum := 0.0
	for i := 23.0; i >= 1; i -= 2 {
		sum = 1/i + float64(s2*sum)
	}
	return -2 * s * sum
}
