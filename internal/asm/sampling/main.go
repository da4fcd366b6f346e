// Command sampling generates the kernels of package sampling: prefetching, its 32-bit
// hash eight lanes at a time, and the steps and the counting of PinSAGE's walks.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	ids()
	positions()
	slots()
	lines()
	tables()
	below()
	below512()
	least()
	least512()
	probe()
	members()
	rowEnds()
	places()
	follow()
	mostVisited()
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

func ids() {
	TEXT("prefetch8", NOSPLIT, "func(base *int64, ids *uint32, n int)")
	Pragma("noescape")
	Doc("prefetch8 fetches the cache line of base[ids[i]], values of 8 bytes, for i in [0, n).")
	base := Load(Param("base"), GP64())
	ptr := Load(Param("ids"), GP64())
	n := Load(Param("n"), GP64())
	id := GP32()
	each(ptr, n, 4, func() {
		MOVL(Mem{Base: ptr}, id)
		PREFETCHT0(Mem{Base: base, Index: id.As64(), Scale: 8})
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

func lines() {
	TEXT("prefetchLines", NOSPLIT, "func(p *uint32, n int)")
	Pragma("noescape")
	Doc("prefetchLines fetches the cache lines of p[0:n], n > 0.")
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	end := GP64()
	LEAQ(Mem{Base: p, Index: n, Scale: 4}, end)
	ANDQ(I8(-64), p)
	Label("loop")
	PREFETCHT0(Mem{Base: p})
	ADDQ(Imm(64), p)
	CMPQ(p, end)
	JB(LabelRef("loop"))
	RET()
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
// order, one byte each; and the numbers of the lanes, 8 of them as words, 16 as bytes.
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
	GLOBL("bytes", RODATA|NOPTR)
	DATA(0, U64(0x0706050403020100))
	DATA(8, U64(0x0f0e0d0c0b0a0908))
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

// wide returns v in all lanes.
func wide(v Op) reg.VecVirtual {
	r, z := GP32(), ZMM()
	MOVL(v, r)
	VPBROADCASTD(r, z)
	return z
}

// below512 leaves out the last step of the hash, which does not touch its upper
// 15 bits, and takes a limit whose others are set: it finds some more.
func below512() {
	TEXT("belowAVX512", NOSPLIT, "func(dst, hash *uint32, row *uint32, n int, first, k1, k2, limit uint32) int")
	Pragma("noescape")
	Doc(
		"belowAVX512 is below for n > 0 entries, the first of which has position first. It writes the hashes",
		"without their last step, too, and up to 16 values past the last ones.",
	)
	dst := Load(Param("dst"), GP64())
	hash := Load(Param("hash"), GP64())
	row := Load(Param("row"), GP64())
	n := Load(Param("n"), GP64())
	// (x^k1) ^ (x^k1)>>16 is x ^ x>>16 ^ (k1 ^ k1>>16).
	k1, shifted := GP32(), GP32()
	Load(Param("k1"), k1)
	MOVL(k1, shifted)
	SHRL(Imm(16), shifted)
	XORL(shifted, k1)
	key1, key2 := wide(k1), wide(Load(Param("k2"), GP32()))
	a, b := wide(U32(0x21f0aaad)), wide(U32(0xd35a2d97))
	most := GP32()
	Load(Param("limit"), most)
	ORL(U32(1<<17-1), most)
	limit := wide(most)
	at, step := ZMM(), wide(U32(16))
	VPMOVZXBD(NewDataAddr(NewStaticSymbol("bytes"), 0), at)
	VPADDD(wide(Load(Param("first"), GP32())), at, at)
	last, next, out, count := GP64(), GP64(), GP64(), GP64()
	valid, found := K(), K()
	x, t := ZMM(), ZMM()
	LEAQ(Mem{Base: row, Index: n, Scale: 4, Disp: -64}, last)
	XORQ(out, out)

	shift := func(by uint8) {
		VPSRLD(Imm(uint64(by)), x, t)
		VPXORD(t, x, x)
	}
	mix := func() { // but for its first step and its last
		VPMULLD(a, x, x)
		shift(15)
		VPMULLD(b, x, x)
	}
	hashed := func() {
		VPSRLD(Imm(16), x, t)
		VPTERNLOGD(Imm(0x96), key1, t, x)
		mix()
		VPSRLD(Imm(15), x, t)
		VPTERNLOGD(Imm(0x96), key2, t, x)
		shift(16)
		mix()
	}
	pack := func() {
		KMOVW(found, count.As32())
		VPCOMPRESSD_Z(at, found, t)
		VPCOMPRESSD_Z(x, found, x)
		VMOVDQU32(t, Mem{Base: dst, Index: out, Scale: 4})
		VMOVDQU32(x, Mem{Base: hash, Index: out, Scale: 4})
		POPCNTL(count.As32(), count.As32())
		ADDQ(count, out)
	}
	CMPQ(row, last)
	JA(LabelRef("rest"))
	Label("loop")
	LEAQ(Mem{Base: row, Disp: 2048}, next) // scanLines ahead, within the row
	CMPQ(next, last)
	CMOVQHI(last, next)
	PREFETCHT0(Mem{Base: next})
	VMOVDQU32(Mem{Base: row}, x)
	hashed()
	VPCMPUD(Imm(2), limit, x, found) // x <= limit
	pack()
	VPADDD(step, at, at)
	ADDQ(Imm(64), row)
	CMPQ(row, last)
	JBE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(64), last)
	SUBQ(row, last)
	JZ(LabelRef("done"))
	SHRQ(Imm(2), last)
	ones := GP32()
	MOVL(U32(0xffffffff), ones)
	BZHIL(last.As32(), ones, ones)
	KMOVW(ones, valid)
	VMOVDQU32_Z(Mem{Base: row}, valid, x)
	hashed()
	VPCMPUD(Imm(2), limit, x, valid, found)
	pack()
	Label("done")
	VZEROUPPER()
	Store(out, ReturnIndex(0))
	RET()
}

// least512 is least for hashes that are there but for their last step.
func least512() {
	TEXT("leastAVX512", NOSPLIT, "func(pos *uint32, hash *uint32, n, k int) int")
	Pragma("noescape")
	Doc(
		"leastAVX512 keeps those of the n > k positions pos with the k smallest hashes, as belowAVX512 writes",
		"them, in order, more where hashes are equal, and returns how many it kept. It completes the hashes.",
		"Both must have room up to a multiple of 16.",
	)
	pos := Load(Param("pos"), GP64())
	hash := Load(Param("hash"), GP64())
	n := Load(Param("n"), GP64())
	k := wide(Load(Param("k"), GP64()).(reg.GPVirtual).As32())
	x, t, rank, one := ZMM(), ZMM(), ZMM(), wide(U32(1))
	i, j, out, count := GP64(), GP64(), GP64(), GP64()
	above := K()
	XORQ(i, i)
	Label("hash")
	VMOVDQU32(Mem{Base: hash, Index: i, Scale: 4}, x)
	VPSRLD(Imm(15), x, t)
	VPXORD(t, x, x)
	VMOVDQU32(x, Mem{Base: hash, Index: i, Scale: 4})
	ADDQ(Imm(16), i)
	CMPQ(i, n)
	JL(LabelRef("hash"))
	// Past the end lie the largest numbers: of n > k entries at most one is not
	// smaller, and they are never kept.
	VPTERNLOGD(Imm(0xff), x, x, x)
	VMOVDQU32(x, Mem{Base: hash, Index: n, Scale: 4})
	XORQ(i, i)
	XORQ(out, out)
	Label("rank")
	VMOVDQU32(Mem{Base: hash, Index: i, Scale: 4}, x)
	VPXORD(rank, rank, rank)
	XORQ(j, j)
	Label("compare")
	VPCMPUD_BCST(Imm(6), Mem{Base: hash, Index: j, Scale: 4}, x, above) // x > the other
	VPADDD(one, rank, above, rank)
	INCQ(j)
	CMPQ(j, n)
	JL(LabelRef("compare"))
	VPCMPUD(Imm(1), k, rank, above) // rank < k
	KMOVW(above, count.As32())
	VMOVDQU32(Mem{Base: pos, Index: i, Scale: 4}, t)
	VPCOMPRESSD_Z(t, above, t)
	VMOVDQU32(t, Mem{Base: pos, Index: out, Scale: 4}) // out <= i: what follows was read
	POPCNTL(count.As32(), count.As32())
	ADDQ(count, out)
	ADDQ(Imm(16), i)
	CMPQ(i, n)
	JL(LabelRef("rank"))
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

// wide64 returns v in all lanes.
func wide64(v Op) reg.VecVirtual {
	r, z := GP64(), ZMM()
	MOVQ(v, r)
	VPBROADCASTQ(r, z)
	return z
}

func rowEnds() {
	TEXT("rowEndsSSE", NOSPLIT, "func(ends, indptr *int64, at *uint32, n int)")
	Pragma("noescape")
	Doc("rowEndsSSE is rowEnds for n > 0 nodes.")
	ends := Load(Param("ends"), GP64())
	indptr := Load(Param("indptr"), GP64())
	at := Load(Param("at"), GP64())
	n := Load(Param("n"), GP64())
	u, both := GP32(), XMM()
	Label("loop")
	MOVL(Mem{Base: at}, u)
	MOVOU(Mem{Base: indptr, Index: u.As64(), Scale: 8}, both)
	MOVOU(both, Mem{Base: ends})
	ADDQ(Imm(4), at)
	ADDQ(Imm(16), ends)
	DECQ(n)
	JNZ(LabelRef("loop"))
	RET()
}

// follow has no branch that depends on a load, so that a wrong guess never ends the loads after it: where there
// is no neighbour it loads the node itself.
func follow() {
	TEXT("followCMOV", NOSPLIT, "func(at, indices *uint32, pos *int64, n int)")
	Pragma("noescape")
	Doc("followCMOV is follow for n > 0 walks.")
	at := Load(Param("at"), GP64())
	indices := Load(Param("indices"), GP64())
	pos := Load(Param("pos"), GP64())
	n := Load(Param("n"), GP64())
	p, from, u := GP64(), GP64(), GP32()
	Label("loop")
	MOVQ(Mem{Base: pos}, p)
	LEAQ(Mem{Base: indices, Index: p, Scale: 4}, from)
	TESTQ(p, p)
	CMOVQLT(at, from)
	MOVL(Mem{Base: from}, u)
	MOVL(u, Mem{Base: at})
	ADDQ(Imm(8), pos)
	ADDQ(Imm(4), at)
	DECQ(n)
	JNZ(LabelRef("loop"))
	RET()
}

// places draws by the mixing of package rng, and maps a draw x to [0, d) by the upper half of x·d.
func places() {
	TEXT("placesAVX512", NOSPLIT, "func(pos, ends *int64, keys *uint64, n int, draw uint64)")
	Pragma("noescape")
	Doc("placesAVX512 is places for a multiple of 8 rows.")
	pos := Load(Param("pos"), GP64())
	rows := Load(Param("ends"), GP64())
	keys := Load(Param("keys"), GP64())
	n := Load(Param("n"), GP64())
	golden, counter := GP64(), GP64()
	MOVQ(U64(0x9e3779b97f4a7c15), golden)
	Load(Param("draw"), counter)
	INCQ(counter)
	IMULQ(golden, counter)
	add := wide64(counter)
	a, b := wide64(U64(0xbf58476d1ce4e5b9)), wide64(U64(0x94d049bb133111eb))
	low, none := wide64(U64(1<<32-1)), wide64(U64(1<<64-1))
	even, odd := ZMM(), ZMM()
	VPMOVZXBQ(NewDataAddr(NewStaticSymbol("evens"), 0), even)
	VPMOVZXBQ(NewDataAddr(NewStaticSymbol("evens"), 8), odd)
	begin, d, x, t, high, sum := ZMM(), ZMM(), ZMM(), ZMM(), ZMM(), ZMM()
	some := K()
	shift := func(by uint64) {
		VPSRLQ(Imm(by), x, t)
		VPXORQ(t, x, x)
	}
	i := GP64()
	XORQ(i, i)
	Label("loop")
	VMOVDQU64(Mem{Base: rows}, begin)
	VMOVDQA64(begin, d)
	VPERMT2Q(Mem{Base: rows, Disp: 64}, even, begin)
	VPERMT2Q(Mem{Base: rows, Disp: 64}, odd, d)
	VPSUBQ(begin, d, d)
	VPTESTMQ(d, d, some)
	VPADDQ(Mem{Base: keys, Index: i, Scale: 8}, add, x)
	shift(30)
	VPMULLQ(a, x, x)
	shift(27)
	VPMULLQ(b, x, x)
	shift(31)
	// The upper half of x·d from products of halves.
	VPSRLQ(Imm(32), x, high)
	VPMULUDQ(d, x, t)
	VPSRLQ(Imm(32), t, t)
	VPMULUDQ(d, high, sum)
	VPADDQ(t, sum, sum)
	VPSRLQ(Imm(32), d, d)
	VPMULUDQ(d, x, x)
	VPANDQ(low, sum, t)
	VPADDQ(t, x, x)
	VPSRLQ(Imm(32), x, x)
	VPSRLQ(Imm(32), sum, sum)
	VPMULUDQ(d, high, high)
	VPADDQ(sum, x, x)
	VPADDQ(high, x, x)
	VMOVDQA64(none, t)
	VPADDQ(begin, x, some, t)
	VMOVDQU64(t, Mem{Base: pos, Index: i, Scale: 8})
	ADDQ(Imm(128), rows)
	ADDQ(Imm(8), i)
	CMPQ(i, n)
	JL(LabelRef("loop"))
	VZEROUPPER()
	RET()
	GLOBL("evens", RODATA|NOPTR)
	DATA(0, U64(0x0e0c0a0806040200))
	DATA(8, U64(0x0f0d0b0907050301))
}

// mostVisited compares all visits with all: of equal ones the first counts, unless it is one to home. Its key, 1<<16
// times how often and 1<<16-1 less its position, is larger the earlier it stands in the order.
func mostVisited() {
	TEXT("mostVisitedAVX512", NOSPLIT, "func(order, keys, visits *uint32, n int, home uint32, k int) int")
	Pragma("noescape")
	Doc(
		"mostVisitedAVX512 writes the keys of the k most visited nodes but home to order, and returns how many they are. It needs",
		"0 < n <= mostVisits, and room for n and 16 more in order and keys.",
	)
	order := Load(Param("order"), GP64())
	keys := Load(Param("keys"), GP64())
	visits := Load(Param("visits"), GP64())
	n := Load(Param("n"), GP64())
	home, k := GP32(), GP64()
	Load(Param("home"), home)
	Load(Param("k"), k)
	homes, one, step, full := wide(home), wide(U32(1)), wide(U32(16)), wide(U32(1<<16-1))
	at, x, t, count, first, j32 := ZMM(), ZMM(), ZMM(), ZMM(), ZMM(), ZMM()
	last := GP64()
	MOVQ(n, last)
	DECQ(last)
	lasts := wide(last.As32())
	VPMOVZXBD(NewDataAddr(NewStaticSymbol("bytes"), 0), at)
	valid, found := K(), K()
	i, j, m, rest, ones, bits := GP64(), GP64(), GP64(), GP64(), GP32(), GP32()
	MOVL(U32(0xffffffff), ones)
	XORQ(i, i)
	XORQ(m, m)
	Label("visits")
	MOVQ(n, rest)
	SUBQ(i, rest)
	BZHIL(rest.As32(), ones, bits)
	KMOVW(bits, valid)
	VMOVDQU32_Z(Mem{Base: visits, Index: i, Scale: 4}, valid, x)
	VPXORD(count, count, count)
	VMOVDQA32(lasts, j32)
	MOVQ(last, j)
	Label("equal")
	VPCMPEQD_BCST(Mem{Base: visits, Index: j, Scale: 4}, x, found)
	VPADDD(one, count, found, count)
	VMOVDQA32(j32, found, first)
	VPSUBD(one, j32, j32)
	DECQ(j)
	JGE(LabelRef("equal"))
	VPCMPEQD(at, first, valid, found)
	VPCMPUD(Imm(4), homes, x, found, found)
	VPSLLD(Imm(16), count, count)
	VPSUBD(at, full, t)
	VPORD(t, count, t)
	VPCOMPRESSD_Z(t, found, t)
	VMOVDQU32(t, Mem{Base: keys, Index: m, Scale: 4}) // past m zeros
	KMOVW(found, bits)
	POPCNTL(bits, bits)
	ADDQ(bits.As64(), m)
	VPADDD(step, at, at)
	ADDQ(Imm(16), i)
	CMPQ(i, n)
	JL(LabelRef("visits"))

	// A key's place is how many are larger.
	most := wide(k.As32())
	VPXORD(t, t, t)
	VMOVDQU32(t, Mem{Base: keys, Index: m, Scale: 4})
	local := AllocLocal(128)
	places, chosen := Mem{Base: local.Base}, Mem{Base: local.Base, Disp: 64}
	XORQ(i, i)
	TESTQ(m, m)
	JZ(LabelRef("done"))
	Label("keys")
	VMOVDQU32(Mem{Base: keys, Index: i, Scale: 4}, x)
	VPXORD(count, count, count)
	XORQ(j, j)
	Label("larger")
	VPCMPUD_BCST(Imm(1), Mem{Base: keys, Index: j, Scale: 4}, x, found) // x < the other
	VPADDD(one, count, found, count)
	INCQ(j)
	CMPQ(j, m)
	JL(LabelRef("larger"))
	VPCMPUD(Imm(1), most, count, found) // lanes past the last key have place m, which is not read
	VPCOMPRESSD_Z(count, found, count)
	VPCOMPRESSD_Z(x, found, x)
	VMOVDQU32(count, places)
	VMOVDQU32(x, chosen)
	KMOVW(found, bits)
	POPCNTL(bits, bits)
	XORQ(j, j)
	JMP(LabelRef("placed"))
	Label("place")
	place, key := GP32(), GP32()
	MOVL(places.Idx(j, 4), place)
	MOVL(chosen.Idx(j, 4), key)
	MOVL(key, Mem{Base: order, Index: place.As64(), Scale: 4})
	INCQ(j)
	Label("placed")
	CMPQ(j, bits.As64())
	JL(LabelRef("place"))
	ADDQ(Imm(16), i)
	CMPQ(i, m)
	JL(LabelRef("keys"))
	Label("done")
	VZEROUPPER()
	CMPQ(k, m)
	CMOVQLT(k, m)
	Store(m, ReturnIndex(0))
	RET()
}
