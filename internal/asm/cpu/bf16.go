package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The kernels of products of bfloat16 pairs. Their results are those of the
// portable twin, bit by bit: the tile needs AVX512_BF16, the rounding AVX-512 F
// and BW alone.
func bf16() {
	tileBF16(heights["AVX512"][0])
	roundRows()
	roundPairs()
}

// vdpbf16ps returns the bytes of VDPBF16PS zmm[acc], zmm[x], zmm[y], which
// neither avo nor Go's assembler knows: EVEX.512.F3.0F38.W0 52 /r.
func vdpbf16ps(acc, x, y int) []byte {
	bit := func(v, i int) byte { return byte(v>>i&1) ^ 1 } // EVEX holds them inverted
	return []byte{
		0x62,
		bit(acc, 3)<<7 | bit(y, 4)<<6 | bit(y, 3)<<5 | bit(acc, 4)<<4 | 2,
		byte(^x&15)<<3 | 1<<2 | 2,
		2<<5 | bit(x, 4)<<3,
		0x52,
		0xc0 | byte(acc&7)<<3 | byte(y&7),
	}
}

func emit(code []byte) {
	for _, b := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{U8(b)}})
	}
}

// tileBF16 emits the micro-kernel of rows and two vectors of columns. Its vectors
// are numbered by hand, for the instruction whose bytes are.
func tileBF16(rows int) {
	const bytes = 64
	TEXT("tile14x32BF16", NOSPLIT, "func(pairs int, a, b *uint32, c *float32, ldc, flags int)")
	Pragma("noescape")
	Doc("tile14x32BF16 computes 14 rows and 32 columns of a product of pairs > 0 pairs of bfloat16 values: a is packed",
		"by 14 rows, b by 32 columns; ldc is in bytes.")
	z := []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}
	bv, av := 2*rows, 2*rows+2
	n, a, b, c, ldc, flags := load64("pairs"), load64("a"), load64("b"), load64("c"), load64("ldc"), load64("flags")
	at := GP64()
	MOVQ(c, at)
	for i := range rows {
		PREFETCHT0(Mem{Base: at})
		PREFETCHT0(Mem{Base: at, Disp: 64})
		ADDQ(ldc, at)
		for j := range 2 {
			VPXORD(z[2*i+j], z[2*i+j], z[2*i+j])
		}
	}
	Label("loop")
	for j := range 2 {
		VMOVUPS(Mem{Base: b, Disp: j * bytes}, z[bv+j])
	}
	for i := range rows {
		x := av + i%2
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, z[x])
		for j := range 2 {
			emit(vdpbf16ps(2*i+j, bv+j, x))
		}
	}
	ADDQ(Imm(2*bytes), b)
	ADDQ(Imm(uint64(4*rows)), a)
	DECQ(n)
	JNZ(LabelRef("loop"))
	BTQ(Imm(flagAccumulate), flags)
	JCC(LabelRef("store"))
	MOVQ(c, at)
	for i := range rows {
		for j := range 2 {
			VADDPS(Mem{Base: at, Disp: j * bytes}, z[2*i+j], z[2*i+j])
		}
		ADDQ(ldc, at)
	}
	Label("store")
	for i := range rows {
		for j := range 2 {
			VMOVUPS(z[2*i+j], Mem{Base: c, Disp: j * bytes})
		}
		ADDQ(ldc, c)
	}
	VZEROUPPER()
	RET()
}

// rounder rounds vectors of float32 values as VCVTNEPS2BF16 does, in integers.
type rounder struct{ low, one, magnitude, normal, inf, quiet, sign reg.VecVirtual }

func newRounder() rounder {
	word := func(v uint32) reg.VecVirtual {
		g, z := GP32(), ZMM()
		MOVL(U32(v), g)
		VPBROADCASTD(g, z)
		return z
	}
	return rounder{low: word(0x7fff), one: word(1), magnitude: word(0x7fffffff), normal: word(0x00800000), inf: word(0x7f800000),
		quiet: word(0x00400000), sign: word(0x80000000)}
}

// round replaces x by the bits of the nearest bfloat16 value, in its upper half;
// the lower half holds anything.
func (r rounder) round(x reg.VecVirtual) {
	size, t := ZMM(), ZMM()
	small, nan := K(), K()
	VPANDD(x, r.magnitude, size)
	VPCMPUD(Imm(1), r.normal, size, small) // size < normal
	VPCMPUD(Imm(6), r.inf, size, nan)      // size > inf
	VPSRLD(Imm(16), x, t)
	VPANDD(t, r.one, t)
	VPADDD(r.low, t, t)
	VPADDD(x, t, t)
	VPORD(x, r.quiet, nan, t)
	VPANDD(x, r.sign, small, t)
	VMOVDQA32(t, x)
}

// roundRows emits the rounding of two rows into pairs.
func roundRows() {
	TEXT("roundRows", NOSPLIT, "func(dst *uint32, lo, hi *float32, n int)")
	Pragma("noescape")
	Doc("roundRows writes 1 <= n <= 32 pairs of the bfloat16 values nearest to lo, in the lower halves, and hi.")
	dst, lo, hi := load64("dst"), load64("lo"), load64("hi")
	m := avx512.newMask(load64("n"), 2)
	r := newRounder()
	for i := range 2 {
		x, y := ZMM(), ZMM()
		m.load(i, Mem{Base: lo, Disp: 64 * i}, x)
		m.load(i, Mem{Base: hi, Disp: 64 * i}, y)
		r.round(x)
		r.round(y)
		VPSRLD(Imm(16), x, x)
		VPSRLD(Imm(16), y, y)
		VPSLLD(Imm(16), y, y)
		VPORD(x, y, x)
		m.store(i, x, Mem{Base: dst, Disp: 64 * i})
	}
	VZEROUPPER()
	RET()
}

// roundPairs emits the rounding of values that follow each other.
func roundPairs() {
	TEXT("roundPairs", NOSPLIT, "func(dst *uint32, src *float32, n int)")
	Pragma("noescape")
	Doc("roundPairs writes the bfloat16 values nearest to the n > 0 pairs of src, a multiple of 8.")
	dst, src, n := load64("dst"), load64("src"), load64("n")
	r := newRounder()
	low, g := ZMM(), GP64()
	MOVQ(U64(0xffff), g)
	VPBROADCASTQ(g, low)
	Label("loop")
	x, y, p := ZMM(), ZMM(), YMM()
	VMOVUPS(Mem{Base: src}, x)
	r.round(x)
	VPSRLQ(Imm(48), x, y)
	VPSLLQ(Imm(16), y, y)
	VPSRLQ(Imm(16), x, x)
	VPANDQ(x, low, x)
	VPORQ(x, y, x)
	VPMOVQD(x, p)
	VMOVDQU(p, Mem{Base: dst})
	ADDQ(Imm(64), src)
	ADDQ(Imm(32), dst)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
