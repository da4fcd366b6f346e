package cpu

import "math"

// The exponential in float32: with n = ⌊x·log₂e⌉ and r = x - n·ln 2 in two
// parts, eˣ = 2ⁿ(1 + r + r²p(r)), p the polynomial of Cephes' expf. It errs by
// less than 2 units in the last place. Every step is rounded on its own, so
// the assembly has the same bits; see internal/asm/cpu.
const (
	expLow  = -87.33654 // below it the result is no longer a normal number
	expHigh = 88.37626  // above it 2ⁿ would overflow
	log2e   = 1.44269504088896341
	ln2High = 0.693359375
	ln2Low  = -2.12194440e-4
)

// expTerms are the coefficients of p, the highest power first.
var expTerms = [...]float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

// expParts returns q and s with eˣ = s·(1+q), for x in [expLow, expHigh] or NaN.
func expParts(x float32) (q, s float32) {
	n := float32(math.RoundToEven(float64(x * log2e)))
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := expTerms[0]
	for _, c := range expTerms[1:] {
		p = float32(p*r) + c
	}
	q = float32(float32(p*r)*r) + r
	if n != n {
		return q, 1
	}
	return q, math.Float32frombits(uint32(int32(n)+127) << 23)
}

// exp returns eˣ for x <= 0, and 0 below expLow. In float64 it is math.Exp.
func exp[T Float](x T) T {
	f, ok := any(x).(float32)
	if !ok {
		return T(math.Exp(float64(x)))
	}
	if f < expLow {
		return 0
	}
	q, s := expParts(f)
	return T(s*q) + T(s)
}

// expm1 returns eˣ-1 for x <= 0. In float64 it is math.Expm1.
func expm1[T Float](x T) T {
	f, ok := any(x).(float32)
	if !ok {
		return T(math.Expm1(float64(x)))
	}
	q, s := expParts(max(f, expLow))
	return T(s*q) + T(s-1)
}
