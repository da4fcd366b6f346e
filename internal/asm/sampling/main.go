// Command sampling generates the kernels of package sampling: prefetching, and
// its 32-bit hash eight lanes at a time.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	ids("prefetch8", "prefetch8 fetches the cache line of base[ids[i]], values of 8 bytes, for i in [0, n).", 8)
	positions()
	slots()
	below()
	probe()
	members()
	Generate()
}

// each emits a loop over n > 0 items that lie size bytes apart.
func each(ptr reg.Register, n reg.Register, size uint64, body func()) {
	TESTQ(n, n)
	JZ(LabelRef("done"))
	Label("loop")
	body()
	ADDQ(Imm(size), ptr)
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("done")
	RET()
}

func ids(name, doc string, size uint8) {
	TEXT(name, NOSPLIT, "func(base *int64, ids *uint32, n int)")
	Pragma("noescape")
	Doc(doc)
	base := Load(Param("base"), GP64())
	ptr := Load(Param("ids"), GP64())
	n := Load(Param("n"), GP64())
	id := GP32()
	each(ptr, n, 4, func() {
		MOVL(Mem{Base: ptr}, id)
		PREFETCHT0(Mem{Base: base, Index: id.As64(), Scale: size})
	})
}

func positions() {
	TEXT("prefetch4", NOSPLIT, "func(base *uint32, pos *int64, n int)")
	Pragma("noescape")
	Doc("prefetch4 fetches the cache line of base[pos[i]], values of 4 bytes, for i in [0, n).")
	base := Load(Param("base"), GP64())
	ptr := Load(Param("pos"), GP64())
	n := Load(Param("n"), GP64())
	p := GP64()
	each(ptr, n, 8, func() {
		MOVQ(Mem{Base: ptr}, p)
		PREFETCHT0(Mem{Base: base, Index: p, Scale: 4})
	})
}

func slots() {
	TEXT("prefetchHash", NOSPLIT, "func(slots *uint64, ids *uint32, n int, shift uint32)")
	Pragma("noescape")
	Doc("prefetchHash fetches the cache line of slots[ids[i]*hashMultiplier>>shift] for i in [0, n).")
	base := Load(Param("slots"), GP64())
	ptr := Load(Param("ids"), GP64())
	n := Load(Param("n"), GP64())
	Load(Param("shift"), reg.ECX)
	h := GP32()
	each(ptr, n, 4, func() {
		IMUL3L(U32(0x9e3779b1), Mem{Base: ptr}, h)
		SHRL(reg.CL, h)
		PREFETCHT0(Mem{Base: base, Index: h.As64(), Scale: 8})
	})
}

// broadcast returns v in all lanes.
func broadcast(v Op) reg.VecVirtual {
	r, x, y := GP32(), XMM(), YMM()
	MOVL(v, r)
	VMOVD(r, x)
	VPBROADCASTD(x, y)
	return y
}

// hasher emits hash32 of the lanes of x, in place.
type hasher struct{ k1, k2, a, b, t reg.VecVirtual }

func newHasher(k1, k2 reg.Register) hasher {
	return hasher{broadcast(k1), broadcast(k2), broadcast(U32(0x21f0aaad)), broadcast(U32(0xd35a2d97)), YMM()}
}

func (h hasher) emit(x reg.VecVirtual) {
	for _, k := range []reg.VecVirtual{h.k1, h.k2} {
		VPXOR(k, x, x)
		VPSRLD(Imm(16), x, h.t)
		VPXOR(h.t, x, x)
		VPMULLD(h.a, x, x)
		VPSRLD(Imm(15), x, h.t)
		VPXOR(h.t, x, x)
		VPMULLD(h.b, x, x)
		VPSRLD(Imm(15), x, h.t)
		VPXOR(h.t, x, x)
	}
}

func below() {
	TEXT("belowAVX2", NOSPLIT, "func(dst *uint32, row *uint32, n int, k1, k2, limit uint32) int")
	Pragma("noescape")
	Doc("belowAVX2 is below for a multiple of 8 entries.")
	dst := Load(Param("dst"), GP64())
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	h := newHasher(Load(Param("k1"), GP32()), Load(Param("k2"), GP32()))
	limit := broadcast(Load(Param("limit"), GP32()))
	i, out, mask, bit := GP64(), GP64(), GP32(), GP32()
	x, low := YMM(), YMM()
	XORQ(i, i)
	XORQ(out, out)
	Label("loop")
	CMPQ(i, n)
	JGE(LabelRef("done"))
	VMOVDQU(Mem{Base: row, Index: i, Scale: 4}, x)
	h.emit(x)
	VPMINUD(limit, x, low)
	VPCMPEQD(low, x, low) // x <= limit
	VMOVMSKPS(low, mask)
	TESTL(mask, mask)
	JZ(LabelRef("next"))
	Label("bits")
	TZCNTL(mask, bit)
	ADDL(i.As32(), bit)
	MOVL(bit, Mem{Base: dst, Index: out, Scale: 4})
	INCQ(out)
	BLSRL(mask, mask)
	JNZ(LabelRef("bits"))
	Label("next")
	ADDQ(Imm(8), i)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	Store(out, ReturnIndex(0))
	RET()
}

func probe() {
	TEXT("probeAVX2", NOSPLIT, "func(pins *uint32, used uint32, k1, k2 uint32) uint32")
	Pragma("noescape")
	Doc("probeAVX2 is probe, eight draws at a time; one of the pins must be live.")
	pins := Load(Param("pins"), GP64())
	used := broadcast(Load(Param("used"), GP32()))
	h := newHasher(Load(Param("k1"), GP32()), Load(Param("k2"), GP32()))
	lanes := GLOBL("lanes", RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(i))
	}
	t, step, dead := YMM(), broadcast(U32(8)), YMM()
	VMOVDQU(lanes, t)
	VPCMPEQD(dead, dead, dead)
	x, odd, at, pin, all := YMM(), YMM(), YMM(), YMM(), YMM()
	mask := GP32()
	Label("loop")
	VMOVDQA(t, x)
	h.emit(x)
	// The upper halves of the lanes' products with used.
	VPSRLQ(Imm(32), x, odd)
	VPMULUDQ(used, x, at)
	VPMULUDQ(used, odd, odd)
	VPSRLQ(Imm(32), at, at)
	VPBLENDD(Imm(0xaa), odd, at, at)
	VPCMPEQD(all, all, all)
	VPGATHERDD(all, Mem{Base: pins, Index: at, Scale: 4}, pin)
	VPADDD(step, t, t)
	VPCMPEQD(dead, pin, x)
	VMOVMSKPS(x, mask)
	XORL(Imm(0xff), mask)
	JZ(LabelRef("loop"))
	lane, lx, px := GP32(), XMM(), YMM()
	TZCNTL(mask, lane)
	VMOVD(lane, lx)
	VPERMD(pin, lx.AsY(), px)
	VMOVD(px.AsX(), lane)
	VZEROUPPER()
	Store(lane, ReturnIndex(0))
	RET()
}

func members() {
	TEXT("membersAVX2", NOSPLIT, "func(dst *uint32, row *uint32, n int, bits *uint64) int")
	Pragma("noescape")
	Doc("membersAVX2 is members for a multiple of 8 entries; it writes up to 8 values past the last one.")
	dst := Load(Param("dst"), GP64())
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	words := Load(Param("bits"), GP64())
	// For every mask the lanes that are set, in order, one byte each.
	packed := GLOBL("packed", RODATA|NOPTR)
	for m := range 256 {
		lanes, shift := uint64(0), 0
		for i := range 8 {
			if m>>i&1 != 0 {
				lanes |= uint64(i) << shift
				shift += 8
			}
		}
		DATA(8*m, U64(lanes))
	}
	lanes := NewDataAddr(NewStaticSymbol("lanes"), 0)
	table, i, out, mask := GP64(), GP64(), GP64(), GP64()
	LEAQ(packed, table)
	at, step, low, all, x, w, lane := YMM(), broadcast(U32(8)), broadcast(U32(31)), YMM(), YMM(), YMM(), YMM()
	VMOVDQU(lanes, at)
	XORQ(i, i)
	XORQ(out, out)
	Label("loop")
	CMPQ(i, n)
	JGE(LabelRef("done"))
	VMOVDQU(Mem{Base: row, Index: i, Scale: 4}, x)
	VPSRLD(Imm(5), x, w)
	VPCMPEQD(all, all, all)
	VPGATHERDD(all, Mem{Base: words, Index: w, Scale: 4}, lane)
	VPANDN(low, x, x) // 31 − x mod 32
	VPSLLVD(x, lane, lane)
	VMOVMSKPS(lane, mask.As32())
	VPMOVZXBD(Mem{Base: table, Index: mask, Scale: 8}, lane)
	VPERMD(at, lane, lane)
	VMOVDQU(lane, Mem{Base: dst, Index: out, Scale: 4})
	POPCNTQ(mask, mask)
	ADDQ(mask, out)
	VPADDD(step, at, at)
	ADDQ(Imm(8), i)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	Store(out, ReturnIndex(0))
	RET()
}
