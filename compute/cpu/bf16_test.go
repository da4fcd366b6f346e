package cpu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// oddities are values that roundings go wrong at.
var oddities = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-126, -0x1p-126, 0x1.fffffep-127, 0x1p-133, -0x1p-149, 0x1.01p0, 0x1.03p0, 0x1.00ffp0, 0x1.0101p0,
	math.MaxFloat32, -math.MaxFloat32, 0x1.fep127, 0x1.fefffep127, 0x1.ffp127, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 3e-39, 1e20, -1e-20}

// anyFloat returns an oddity or a value with all bits drawn.
func anyFloat(r *rand.Rand) float32 {
	if r.IntN(4) == 0 {
		return oddities[r.IntN(len(oddities))]
	}
	return math.Float32frombits(r.Uint32())
}

// roundBig returns x with an exponent without bounds rounded to prec bits, ties to
// even, denormals to zero, and what is too large to infinity.
func roundBig(x *big.Float, prec uint) float64 {
	y := new(big.Float).SetPrec(prec).SetMode(big.ToNearestEven).Set(x)
	v, _ := y.Float64()
	switch size := math.Abs(v); {
	case size < 0x1p-126:
		return math.Copysign(0, v)
	case size >= 0x1p128:
		return math.Inf(int(math.Copysign(1, v)))
	}
	return v
}

func TestBFloat16Rounding(t *testing.T) {
	r := source(31)
	for i := range 200000 {
		v := anyFloat(r)
		if i < len(oddities) {
			v = oddities[i]
		}
		got := math.Float32frombits(bfloat16(v) << 16)
		switch x := float64(v); {
		case math.IsNaN(x):
			if !math.IsNaN(float64(got)) {
				t.Fatalf("NaN becomes %v", got)
			}
		case math.IsInf(x, 0):
			if got != v {
				t.Fatalf("%v becomes %v", v, got)
			}
		case math.Abs(x) < 0x1p-126: // before rounding, unlike the tile's results
			if got != 0 || math.Signbit(float64(got)) != math.Signbit(x) {
				t.Fatalf("%v becomes %v", v, got)
			}
		default:
			if want := roundBig(big.NewFloat(x), 8); float64(got) != want {
				t.Fatalf("%v becomes %v, want %v", v, got, want)
			}
		}
	}
}

// TestFusedNearest compares with exact sums, near the least values too.
func TestFusedNearest(t *testing.T) {
	r := source(32)
	near := func(exp int) float64 {
		return math.Ldexp(float64(int(r.Uint32N(1<<24))-1<<23), exp-22+r.IntN(9)-4)
	}
	for i := range 200000 {
		a, b := float64(math.Float32frombits(bfloat16(float32(near(-60)))<<16)), float64(math.Float32frombits(bfloat16(float32(near(-66)))<<16))
		c := float64(nearest(near(-126)))
		if i%2 == 0 {
			a, c = a*0x1p60, c*0x1p60
		}
		if i%3 == 0 {
			b *= 0x1p-40
		}
		exact := new(big.Float).SetPrec(2000).SetFloat64(a)
		exact.Mul(exact, new(big.Float).SetPrec(2000).SetFloat64(b))
		exact.Add(exact, new(big.Float).SetPrec(2000).SetFloat64(c))
		if got, want := float64(nearest(a*b+c)), roundBig(exact, 24); got != want {
			t.Fatalf("%x·%x + %x = %x, want %x", a, b, c, got, want)
		}
	}
	for _, v := range []struct{ in, want float64 }{{tiny, 0x1p-126}, {math.Nextafter(tiny, 0), 0}, {-tiny, -0x1p-126}, {math.Nextafter(-tiny, 0), 0}} {
		if got := float64(nearest(v.in)); got != v.want {
			t.Errorf("%x becomes %x, want %x", v.in, got, v.want)
		}
	}
}

// bf16Reference computes one element as SetPrecision's documentation says it.
func bf16Reference(k int, a, b func(k int) float32) float32 {
	round := func(v float32) float64 { return float64(math.Float32frombits(bfloat16(v) << 16)) }
	sum, first := float32(0), true
	for k0 := 0; k0 < k; k0 += kBlock {
		c := float32(0)
		for q := k0; q < min(k, k0+kBlock); q += 2 {
			hi, hj := 0.0, 0.0
			if q+1 < k {
				hi, hj = round(a(q+1)), round(b(q+1))
			}
			c = nearest(math.FMA(hi, hj, float64(c)))
			c = nearest(math.FMA(round(a(q)), round(b(q)), float64(c)))
		}
		if first {
			sum, first = c, false
		} else {
			sum += c
		}
	}
	return sum
}

// TestBFloat16Gemm checks every set that has the precision against the definition,
// bit by bit.
func TestBFloat16Gemm(t *testing.T) {
	for _, set := range sets() {
		if !set.Has(BFloat16) {
			t.Logf("%v has no bfloat16 products on this processor", set)
			continue
		}
		for _, workers := range []int{1, 2} {
			x := newExec(t, set, workers)
			x.SetPrecision(BFloat16)
			r := source(33)
			for _, s := range [][3]int{{1, 1, 1}, {2, 3, 0}, {5, 7, 3}, {14, 32, 64}, {15, 33, 65}, {29, 65, 513}, {30, 47, 256}, {100, 9, 257}} {
				m, n, k := s[0], s[1], s[2]
				for form := range 3 {
					ta, tb := form == 1, form == 2
					a, b := random[float32](r, m, k, 3), random[float32](r, k, n, 2)
					if ta {
						a = random[float32](r, k, m, 3)
					}
					if tb {
						b = random[float32](r, n, k, 2)
					}
					e := Epilogue[float32]{Bias: random[float32](r, 1, n, 0).Data, Act: ReLU}
					got, want := NewMatrix[float32](m, n), NewMatrix[float32](m, n)
					for i := range m {
						for j := range n {
							v := bf16Reference(k, func(q int) float32 {
								if ta {
									return a.Row(q)[i]
								}
								return a.Row(i)[q]
							}, func(q int) float32 {
								if tb {
									return b.Row(j)[q]
								}
								return b.Row(q)[j]
							})
							want.Row(i)[j] = max(v+e.Bias[j], 0)
						}
					}
					Gemm(x, got, a, ta, b, tb, e)
					sameBits(t, fmt.Sprint(set, workers, s, ta, tb), got, want)
					// Once more, added to a half of what is there.
					half := Matrix[float32]{Rows: m, Cols: n, Stride: n, Data: slices.Clone(want.Data)}
					Gemm(x, half, a, ta, b, tb, Epilogue[float32]{Accumulate: true})
					plain := NewMatrix[float32](m, n)
					Gemm(x, plain, a, ta, b, tb, Epilogue[float32]{})
					if k <= kBlock {
						for i, v := range plain.Data {
							want.Data[i] += v
						}
						sameBits(t, fmt.Sprint("accumulated ", set, workers, s, ta, tb), half, want)
					}
				}
			}
		}
	}
}

// TestBFloat16Split checks that a split K gives the same bits for any number of
// workers and set, and how far it is from the exact product.
func TestBFloat16Split(t *testing.T) {
	r := source(34)
	for _, k := range []int{2047, 2048, 5001} {
		a, b := random[float32](r, k, 19, 0), random[float32](r, k, 37, 1)
		want, size := gemmReference(a, true, b, false, 19, 37, k)
		var first Matrix[float32]
		for _, set := range sets() {
			if !set.Has(BFloat16) {
				t.Logf("%v has no bfloat16 products on this processor", set)
				continue
			}
			for _, workers := range []int{1, 2} {
				x := newExec(t, set, workers)
				x.SetPrecision(BFloat16)
				c := NewMatrix[float32](19, 37)
				Gemm(x, c, a, true, b, false, Epilogue[float32]{})
				if first.Data == nil {
					first = c
					got := NewMatrix[float64](19, 37)
					for i, v := range c.Data {
						got.Data[i] = float64(v)
					}
					near(t, fmt.Sprint("k = ", k), got, want, size, 0x1p-8+1e-5) // two factors off by 2⁻⁹ each
				}
				sameBits(t, fmt.Sprint(set, workers, k), c, first)
			}
		}
	}
}

// TestBFloat16Specials checks that NaN and infinities go through, that denormal
// factors and results are zeros, and that float64 products are left alone.
func TestBFloat16Specials(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, set := range sets() {
		if !set.Has(BFloat16) {
			t.Logf("%v has no bfloat16 products on this processor", set)
			continue
		}
		x := newExec(t, set, 1)
		x.SetPrecision(BFloat16)
		for _, c := range []struct{ a, b, want float32 }{
			{nan, 0, nan}, {inf, 0, nan}, {inf, 2, inf}, {-inf, 2, -inf}, {math.MaxFloat32, math.MaxFloat32, inf},
			{0x1p-127, 0x1p100, 0}, {0x1p-70, 0x1p-60, 0}, {0x1p-63, 0x1p-63, 0x1p-126},
		} {
			for at := range 2 { // as either of a pair
				a, b, d := NewMatrix[float32](1, 2), NewMatrix[float32](2, 1), NewMatrix[float32](1, 1)
				a.Data[at], b.Data[at] = c.a, c.b
				Gemm(x, d, a, false, b, false, Epilogue[float32]{})
				if got := d.Data[0]; got != c.want && (got == got || c.want == c.want) {
					t.Errorf("%v: %v·%v = %v, want %v", set, c.a, c.b, got, c.want)
				}
			}
		}
		a, b, d := Dense(1, 1, []float64{1 + 0x1p-40}), Dense(1, 1, []float64{3}), NewMatrix[float64](1, 1)
		Gemm(x, d, a, false, b, false, Epilogue[float64]{})
		if d.Data[0] != 3*(1+0x1p-40) {
			t.Errorf("%v: a float64 product is %v", set, d.Data[0])
		}
	}
	if AVX2.Has(BFloat16) || !Go.Has(BFloat16) || !AVX2.Has(Float32) {
		t.Error("AVX2 has bfloat16 products, or Go none")
	}
}

// TestBFloat16Pack compares the assembly that rounds and packs with portable Go.
func TestBFloat16Pack(t *testing.T) {
	if !slices.Contains(sets(), AVX512) {
		t.Skip("no AVX-512 here, or another set is asked for")
	}
	r := source(35)
	for range 2000 {
		n, kc := 1+r.IntN(32), 1+r.IntN(kBlock)
		p := pairs{n: n, kc: kc, width: n + r.IntN(33-n), sk: n + 1, sj: 1}
		if r.IntN(2) == 0 {
			p.sk, p.sj = 1, kc+1
		}
		p.src = make([]float32, n*kc+max(n, kc))
		for i := range p.src {
			p.src[i] = anyFloat(r)
		}
		got, want := make([]uint32, p.width*ceilDiv(kc, 2)), make([]uint32, p.width*ceilDiv(kc, 2))
		for i := range got {
			got[i], want[i] = r.Uint32(), r.Uint32()
		}
		p.pack(want)
		p.fast = true
		p.pack(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%d columns of %d values, strides %d and %d: words differ", n, kc, p.sk, p.sj)
		}
	}
}
