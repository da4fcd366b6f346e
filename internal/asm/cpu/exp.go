package main

import (
	"math"
	"slices"
	"sync"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The constants of the exponential; compute/cpu/exp.go has the same and says
// how they are used. Every step is rounded on its own, as it is there.
const (
	expLow  = -87.33654
	log2e   = 1.44269504088896341
	ln2High = 0.693359375
	ln2Low  = -2.12194440e-4
)

var expTerms = []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

const bias127 = 127 // of float32's exponent, as an integer

// tabled are the words that operands of AVX2 instructions are taken from.
var tabled = func() (words []uint32) {
	for _, f := range append([]float32{expLow, log2e, ln2High, ln2Low, 1, -1, 0}, expTerms...) {
		words = append(words, math.Float32bits(f))
	}
	return append(words, bias127)
}()

// constants is a table of tabled, each word 8 times. Files without constants have none.
var constants = sync.OnceValue(func() Mem {
	table := GLOBL("constants", RODATA|NOPTR)
	for i, w := range tabled {
		for lane := range 8 {
			DATA(32*i+4*lane, U32(w))
		}
	}
	return table
})

// constant returns the operand that holds f in every lane.
func constant(f float32) Mem { return constantBits(math.Float32bits(f)) }

func constantBits(b uint32) Mem {
	i := slices.Index(tabled, b)
	if i < 0 {
		panic("the constant is not in the table")
	}
	return constants().Offset(32 * i)
}

// expParts emits the computation of q and s with e^x = s·(1+q), for x in
// [expLow, 88] or NaN.
func expParts(x reg.VecVirtual) (q, s reg.VecVirtual) {
	n, r, p := YMM(), YMM(), YMM()
	s = YMM()
	VMULPS(constant(log2e), x, n)
	VROUNDPS(Imm(0), n, n) // to the nearest, ties to even
	VMULPS(constant(ln2High), n, p)
	VSUBPS(p, x, r)
	VMULPS(constant(ln2Low), n, p)
	VSUBPS(p, r, r)
	VCVTPS2DQ(n, s)
	VPADDD(constantBits(bias127), s, s)
	VPSLLD(Imm(23), s, s)
	VMOVUPS(constant(expTerms[0]), p)
	for _, c := range expTerms[1:] {
		VMULPS(r, p, p)
		VADDPS(constant(c), p, p)
	}
	VMULPS(r, p, p)
	VMULPS(r, p, p)
	VADDPS(r, p, p)
	return p, s
}
