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
	tables()
	below()
	least()
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

// packer emits the packing of the positions of lanes whose mask bit is set.
type packer struct {
	table    reg.GPVirtual
	at, step reg.VecVirtual // positions of the lanes; by what they grow
}

// newPacker begins with positions 0 to 7.
func newPacker() packer {
	p := packer{GP64(), YMM(), broadcast(U32(8))}
	LEAQ(NewDataAddr(NewStaticSymbol("packed"), 0), p.table)
	VMOVDQU(NewDataAddr(NewStaticSymbol("lanes"), 0), p.at)
	return p
}

// emit stores the chosen positions at dst[out], up to 8 values past the last
// one, adds their number to out and steps on. It destroys mask and lane.
func (p packer) emit(dst, out, mask reg.GPVirtual, lane reg.VecVirtual) {
	VPMOVZXBD(Mem{Base: p.table, Index: mask, Scale: 8}, lane)
	VPERMD(p.at, lane, lane)
	VMOVDQU(lane, Mem{Base: dst, Index: out, Scale: 4})
	POPCNTQ(mask, mask)
	ADDQ(mask, out)
	VPADDD(p.step, p.at, p.at)
}

// tables emits the constants: for every mask of 8 bits the lanes that are set, in
// order, one byte each; and the numbers of the lanes.
func tables() {
	GLOBL("packed", RODATA|NOPTR)
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
	GLOBL("lanes", RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(i))
	}
}

func below() {
	TEXT("belowAVX2", NOSPLIT, "func(dst *uint32, row *uint32, n int, k1, k2, limit uint32) int")
	Pragma("noescape")
	Doc("belowAVX2 is below for a multiple of 8 entries; it writes up to 8 values past the last one.")
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	h := newHasher(Load(Param("k1"), GP32()), Load(Param("k2"), GP32()))
	limit := broadcast(Load(Param("limit"), GP32()))
	i, out, mask := GP64(), GP64(), GP64()
	x, low, lane := YMM(), YMM(), YMM()
	pack := newPacker()
	XORQ(i, i)
	XORQ(out, out)
	Label("loop")
	CMPQ(i, n)
	JGE(LabelRef("done"))
	VMOVDQU(Mem{Base: row, Index: i, Scale: 4}, x)
	h.emit(x)
	VPMINUD(limit, x, low)
	VPCMPEQD(low, x, low) // x <= limit
	VMOVMSKPS(low, mask.As32())
	pack.emit(dst, out, mask, lane)
	ADDQ(Imm(8), i)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	Store(out, ReturnIndex(0))
	RET()
}

// least keeps the entries with the smallest hashes: an entry stays if fewer than
// k of them are smaller, which comparing all with all tells without a branch.
func least() {
	TEXT("leastAVX2", NOSPLIT, "func(pos *uint32, hash *uint32, row *uint32, n, k int, k1, k2 uint32) int")
	Pragma("noescape")
	Doc(
		"leastAVX2 keeps those of the n > k positions pos whose entries of row have the k",
		"smallest hashes, in order, more where hashes are equal, and returns how many it",
		"kept. pos must hold valid positions, and hash have room, up to a multiple of 8.",
	)
	pos := Load(Param("pos"), GP64()).(reg.GPVirtual)
	hash := Load(Param("hash"), GP64())
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	k := broadcast(Load(Param("k"), GP64()).(reg.GPVirtual).As32())
	h := newHasher(Load(Param("k1"), GP32()), Load(Param("k2"), GP32()))
	// Hashes with the sign bit flipped, to be compared as signed numbers.
	flip := broadcast(U32(0x80000000))
	i, j := GP64(), GP64()
	x, at, all := YMM(), YMM(), YMM()
	XORQ(i, i)
	Label("hash")
	VMOVDQU(Mem{Base: pos, Index: i, Scale: 4}, at)
	VPCMPEQD(all, all, all)
	VPGATHERDD(all, Mem{Base: row, Index: at, Scale: 4}, x)
	h.emit(x)
	VPXOR(flip, x, x)
	VMOVDQU(x, Mem{Base: hash, Index: i, Scale: 4})
	ADDQ(Imm(8), i)
	CMPQ(i, n)
	JL(LabelRef("hash"))
	// Past the end lie the largest numbers. Nothing is above them but what lies
	// there too, and n > k entries are not: they are never kept.
	last := GP64()
	MOVQ(n, last)
	Label("pad")
	CMPQ(last, i)
	JGE(LabelRef("padded"))
	MOVL(U32(0x7fffffff), Mem{Base: hash, Index: last, Scale: 4})
	INCQ(last)
	JMP(LabelRef("pad"))
	Label("padded")

	out, mask := GP64(), GP64()
	rank, other, lane := YMM(), YMM(), YMM()
	table := GP64()
	LEAQ(NewDataAddr(NewStaticSymbol("packed"), 0), table)
	XORQ(i, i)
	XORQ(out, out)
	Label("rank")
	VMOVDQU(Mem{Base: hash, Index: i, Scale: 4}, x)
	VPXOR(rank, rank, rank)
	XORQ(j, j)
	Label("compare")
	VPBROADCASTD(Mem{Base: hash, Index: j, Scale: 4}, other)
	VPCMPGTD(other, x, other) // -1 where x is above the other
	VPSUBD(other, rank, rank)
	INCQ(j)
	CMPQ(j, n)
	JL(LabelRef("compare"))
	VPCMPGTD(rank, k, rank) // rank < k
	VMOVMSKPS(rank, mask.As32())
	VMOVDQU(Mem{Base: pos, Index: i, Scale: 4}, at)
	VPMOVZXBD(Mem{Base: table, Index: mask, Scale: 8}, lane)
	VPERMD(at, lane, lane)
	VMOVDQU(lane, Mem{Base: pos, Index: out, Scale: 4}) // out <= i: what follows was read
	POPCNTQ(mask, mask)
	ADDQ(mask, out)
	ADDQ(Imm(8), i)
	CMPQ(i, n)
	JL(LabelRef("rank"))
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
	lanes := NewDataAddr(NewStaticSymbol("lanes"), 0)
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
	TEXT("membersAVX2", NOSPLIT, "func(dst *uint32, row *uint32, n int, bits *uint64, multiplier uint32, shift uint32) int")
	Pragma("noescape")
	Doc("membersAVX2 is members for a multiple of 8 entries; it writes up to 8 values past the last one.")
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	words := Load(Param("bits"), GP64())
	i, out, mask := GP64(), GP64(), GP64()
	multiplier, count := GP32(), XMM()
	Load(Param("multiplier"), multiplier)
	times := broadcast(multiplier)
	Load(Param("shift"), multiplier)
	VMOVD(multiplier, count)
	low, all, x, w, lane := broadcast(U32(31)), YMM(), YMM(), YMM(), YMM()
	pack := newPacker()
	XORQ(i, i)
	XORQ(out, out)
	Label("loop")
	CMPQ(i, n)
	JGE(LabelRef("done"))
	VPMULLD(Mem{Base: row, Index: i, Scale: 4}, times, x)
	VPSRLD(count, x, x)
	VPSRLD(Imm(5), x, w)
	VPCMPEQD(all, all, all)
	VPGATHERDD(all, Mem{Base: words, Index: w, Scale: 4}, lane)
	VPANDN(low, x, x) // 31 − x mod 32
	VPSLLVD(x, lane, lane)
	VMOVMSKPS(lane, mask.As32())
	pack.emit(dst, out, mask, lane)
	ADDQ(Imm(8), i)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	Store(out, ReturnIndex(0))
	RET()
}
