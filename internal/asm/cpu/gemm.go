package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The heights of the register tiles: the first is the main one, the others
// make up what is left of the rows.
var heights = map[string][]int{"AVX2": {6, 5, 4, 3, 2, 1}, "AVX512": {14, 11, 8, 6, 4, 3, 2, 1}}

// The heights of the tiles of three vectors, which only AVX-512 has registers for.
var heights3 = []int{9, 6, 5, 4, 3, 2, 1}

// gemms emits the kernels of dense products.
func gemms() {
	for _, s := range []isa{avx2, avx512} {
		gemm(s)
	}
	fetch()
	packRows()
}

func gemm(s isa) {
	for _, rows := range heights[s.name] {
		tile(s, rows, 2, false)
		tile(s, rows, 2, true)
		tile(s, rows, 1, true)
	}
	if s.wide {
		for _, rows := range heights3 {
			tile(s, rows, 3, true)
		}
	}
	pack(s)
	packPart(s)
	for _, tiles := range []int{1, 2, 4} {
		packColumns(s, heights[s.name][0], tiles)
	}
}

// packRows emits the copy of eight rows into eight neighbouring columns of a panel.
func packRows() {
	name := "packRows" + avx2.name
	TEXT(name, NOSPLIT, "func(dst, src *float32, ldd, ld, blocks int)")
	Pragma("noescape")
	Doc(name + " copies the first 8·blocks > 0 values of 8 rows, ld bytes apart, into 8 columns of rows that are ldd bytes apart.")
	dst, src, ldd, ld, n := load64("dst"), load64("src"), load64("ldd"), load64("ld"), load64("blocks")
	from := []reg.GPVirtual{src, GP64(), GP64()} // rows 0, 3 and 6
	for i := range 2 {
		LEAQ(Mem{Base: from[i], Index: ld, Scale: 2}, from[i+1])
		ADDQ(ld, from[i+1])
	}
	var in, pairs, fours [8]reg.VecVirtual
	for i := range 8 {
		in[i], pairs[i], fours[i] = YMM(), YMM(), YMM()
	}
	Label("block")
	for i, v := range in {
		row := Mem{Base: from[i/3]}
		if i%3 > 0 {
			row.Index, row.Scale = ld, uint8(i%3)
		}
		VMOVUPS(row, v)
	}
	for i := 0; i < 8; i += 2 { // lanes of two rows
		VUNPCKLPS(in[i+1], in[i], pairs[i])
		VUNPCKHPS(in[i+1], in[i], pairs[i+1])
	}
	for i := 0; i < 8; i += 4 { // of four
		for j := range 2 {
			VSHUFPS(Imm(0x44), pairs[i+2+j], pairs[i+j], fours[i+2*j])
			VSHUFPS(Imm(0xee), pairs[i+2+j], pairs[i+j], fours[i+2*j+1])
		}
	}
	for i := range 8 {
		VPERM2F128(Imm(uint64(0x20+0x11*(i/4))), fours[4+i%4], fours[i%4], in[i])
		VMOVUPS(in[i], Mem{Base: dst})
		ADDQ(ldd, dst)
	}
	for _, p := range from {
		ADDQ(Imm(32), p)
	}
	DECQ(n)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// fetch emits the prefetch of rows into the second-level cache, for what packs
// them next: it costs the products around it nothing, and hides the memory's
// latency.
func fetch() {
	TEXT("fetchRows", NOSPLIT, "func(p *float32, ld, rows, lines int)")
	Pragma("noescape")
	Doc("fetchRows prefetches lines > 0 cache lines of each of rows > 0 rows, ld bytes apart.")
	p, ld, rows, lines := load64("p"), load64("ld"), load64("rows"), load64("lines")
	at, n := GP64(), GP64()
	Label("row")
	MOVQ(p, at)
	MOVQ(lines, n)
	Label("line")
	PREFETCHT1(Mem{Base: at})
	ADDQ(Imm(64), at)
	DECQ(n)
	JNZ(LabelRef("line"))
	ADDQ(ld, p)
	DECQ(rows)
	JNZ(LabelRef("row"))
	RET()
}

// tile emits the micro-kernel
//
//	c[rows][w] = act(a[rows][kc]·b[kc][nv vectors] + bias + (c if accumulate))
//
// a is read in place through its strides, broadcasting one value at a time; b is
// a packed panel, two vectors wide whatever nv is, and for a third vector the panel
// behind it; sums stay in registers.
// Without masks w is all columns. The tallest tiles of AVX-512 prefetch what next says,
// a stream of package compute/cpu; the others do not read it.
func tile(s isa, rows, nv int, masked bool) {
	name := fmt.Sprintf("tile%dx%d%s", rows, nv*s.lanes(), s.name)
	width := fmt.Sprintf("%d columns", nv*s.lanes())
	if masked {
		name = fmt.Sprintf("tile%dx%dm%s", rows, nv*s.lanes(), s.name)
		width = fmt.Sprintf("the first w of %d columns", nv*s.lanes())
	}
	TEXT(name, NOSPLIT, "func(kc int, a *float32, rs, cs int, b, c *float32, ldc, w int, bias *float32, flags int, next *int64)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s computes %d rows and %s of a product; rs, cs and ldc are in bytes.", name, rows, width))
	a := Load(Param("a"), GP64())
	rs := Load(Param("rs"), GP64())
	cs := Load(Param("cs"), GP64())
	b := Load(Param("b"), GP64())
	ahead := s.wide && (rows == heights[s.name][0] || rows == heights3[0])

	// Row i of a is at bases[i/3] + (i%3)·rs.
	bases := []reg.GPVirtual{GP64()}
	MOVQ(a, bases[0])
	for i := 3; i < rows; i += 3 {
		p := GP64()
		LEAQ(Mem{Base: bases[len(bases)-1], Index: rs, Scale: 2}, p)
		ADDQ(rs, p)
		bases = append(bases, p)
	}
	at := func(i int) Mem {
		if i%3 == 0 {
			return Mem{Base: bases[i/3]}
		}
		return Mem{Base: bases[i/3], Index: rs, Scale: uint8(i % 3)}
	}
	var third reg.GPVirtual // the next panel
	if nv > 2 {
		third = load64("kc")
		IMUL3Q(U32(uint32(2*s.bytes)), third, third)
		ADDQ(b, third)
	}
	// Fetch the lines of c early: they are needed last.
	c, ldc := load64("c"), load64("ldc")
	pc := GP64()
	MOVQ(c, pc)
	sums := make([][]reg.VecVirtual, rows)
	for i := range sums {
		PREFETCHT0(Mem{Base: pc})
		for at := 64; at < nv*s.bytes; at += 64 {
			PREFETCHT0(Mem{Base: pc, Disp: at})
		}
		if i+1 < rows {
			ADDQ(ldc, pc)
		}
		sums[i] = s.vecs(nv)
		for _, v := range sums[i] {
			s.zero(v)
		}
	}
	bv, av := s.vecs(nv), s.vecs(2)
	step := func(d int) {
		for j, v := range bv {
			from := Mem{Base: b, Disp: (2*d + j) * s.bytes}
			if j > 1 {
				from = Mem{Base: third, Disp: 2 * d * s.bytes}
			}
			VMOVUPS(from, v)
		}
		for i := range rows {
			x := av[i%2]
			VBROADCASTSS(at(i), x)
			for j, v := range bv {
				VFMADD231PS(v, x, sums[i][j])
			}
		}
		for _, p := range bases {
			ADDQ(cs, p)
		}
	}
	// behind goes on behind so many terms of b.
	behind := func(terms int) {
		ADDQ(U32(uint32(2*terms*s.bytes)), b)
		if nv > 2 {
			ADDQ(U32(uint32(2*terms*s.bytes)), third)
		}
	}
	const unroll = 4
	k := Load(Param("kc"), GP64())
	SUBQ(Imm(unroll), k)
	JLT(LabelRef("rest"))
	round := func() {
		for u := range unroll {
			step(u)
		}
		behind(unroll)
		SUBQ(Imm(unroll), k)
	}
	if ahead { // rounds that fetch two lines each, as long as there are any
		next := load64("next")
		p, left, budget := GP64(), GP64(), GP64()
		MOVQ(Mem{Base: next, Disp: streamP}, p)
		MOVQ(Mem{Base: next, Disp: streamLeft}, left)
		MOVQ(Mem{Base: next, Disp: streamBudget}, budget)
		TESTQ(budget, budget)
		JZ(LabelRef("loop"))
		Label("ahead")
		PREFETCHT1(Mem{Base: p})
		PREFETCHT1(Mem{Base: p, Disp: 64})
		ADDQ(U32(linePair), p)
		DECQ(left)
		JNZ(LabelRef("same"))
		MOVQ(Mem{Base: next, Disp: streamPairs}, left)
		ADDQ(Mem{Base: next, Disp: streamWrap}, p)
		Label("same")
		round()
		JLT(LabelRef("fetched"))
		DECQ(budget)
		JNZ(LabelRef("ahead"))
		Label("fetched")
		MOVQ(p, Mem{Base: next, Disp: streamP})
		MOVQ(left, Mem{Base: next, Disp: streamLeft})
		TESTQ(k, k)
		JLT(LabelRef("rest"))
	}
	Label("loop")
	round()
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(unroll), k)
	JZ(LabelRef("done"))
	Label("one")
	step(0)
	behind(1)
	DECQ(k)
	JNZ(LabelRef("one"))
	Label("done")

	// From here the registers of a and b are free.
	c, ldc = load64("c"), load64("ldc")
	var m mask
	if masked {
		m = s.newMask(load64("w"), nv)
	}
	flags := Load(Param("flags"), GP64())
	BTQ(Imm(flagAccumulate), flags)
	JCC(LabelRef("bias"))
	MOVQ(c, pc)
	t := s.vec()
	for i := range sums {
		for j, v := range sums[i] {
			from := Mem{Base: pc, Disp: j * s.bytes}
			if masked {
				m.load(j, from, t)
				VADDPS(v, t, v)
			} else {
				VADDPS(from, v, v)
			}
		}
		if i+1 < rows {
			ADDQ(ldc, pc)
		}
	}
	Label("bias")
	bias := Load(Param("bias"), GP64())
	TESTQ(bias, bias)
	JZ(LabelRef("act"))
	for j := range nv {
		from := Mem{Base: bias, Disp: j * s.bytes}
		if masked {
			m.load(j, from, t)
		} else {
			VMOVUPS(from, t)
		}
		for i := range sums {
			VADDPS(t, sums[i][j], sums[i][j])
		}
	}
	Label("act")
	BTQ(Imm(flagReLU), flags)
	JCC(LabelRef("store"))
	s.zero(t)
	for i := range sums {
		for _, v := range sums[i] {
			VMAXPS(v, t, v) // the second source, v, if it is NaN
		}
	}
	Label("store")
	var w reg.GPVirtual
	for i := range sums {
		for j, v := range sums[i] {
			to := Mem{Base: c, Disp: j * s.bytes}
			switch {
			case !masked:
				VMOVUPS(v, to)
			case s.wide:
				m.store(j, v, to)
			default:
				if i+j == 0 {
					w = load64("w")
				}
				storeFirst(v, to, w, j*s.lanes(), fmt.Sprintf("r%dv%d", i, j))
			}
		}
		if i+1 < rows {
			ADDQ(ldc, c)
		}
	}
	VZEROUPPER()
	RET()
}

// storeFirst emits the store of the first w-skip values of v, which may be all
// or none. A masked store of AVX2 takes several times as long.
func storeFirst(v reg.VecVirtual, to Mem, w reg.GPVirtual, skip int, label string) {
	n, p, x := GP64(), GP64(), v.AsX()
	LEAQ(Mem{Base: w, Disp: -skip}, n)
	CMPQ(n, Imm(8))
	JLT(LabelRef(label + "part"))
	VMOVUPS(v, to)
	JMP(LabelRef(label + "end"))
	Label(label + "part")
	if skip > 0 {
		TESTQ(n, n)
		JLE(LabelRef(label + "end"))
	}
	LEAQ(to, p)
	BTQ(Imm(2), n)
	JCC(LabelRef(label + "two"))
	VMOVUPS(x, Mem{Base: p})
	VEXTRACTF128(Imm(1), v, x)
	ADDQ(Imm(16), p)
	Label(label + "two")
	BTQ(Imm(1), n)
	JCC(LabelRef(label + "one"))
	VMOVLPS(x, Mem{Base: p})
	VMOVHLPS(x, x, x)
	ADDQ(Imm(8), p)
	Label(label + "one")
	BTQ(Imm(0), n)
	JCC(LabelRef(label + "end"))
	VMOVSS(x, Mem{Base: p})
	Label(label + "end")
}

// The layout of a stream of package compute/cpu.
const (
	streamP = 8 * iota
	streamLeft
	streamPairs
	streamWrap
	streamBudget
)

// linePair is how many bytes a tile fetches at a time.
const linePair = 128

// The bits of a tile's flags.
const (
	flagAccumulate = 0
	flagReLU       = 1
)

// pack emits the copy of kc rows, ld bytes apart, into panels of two vectors.
func pack(s isa) {
	name := "pack" + s.name
	TEXT(name, NOSPLIT, "func(dst, src *float32, ld, kc, panels int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies panels > 0 groups of %d columns of kc > 0 rows, ld bytes apart, into panels of kc rows.", name, 2*s.lanes()))
	dst, src, ld, kc, panels := load64("dst"), load64("src"), load64("ld"), load64("kc"), load64("panels")
	far := GP64() // 16 rows ahead, with the scale
	MOVQ(ld, far)
	SHLQ(Imm(1), far)
	size, k := GP64(), GP64() // bytes of a panel
	MOVQ(kc, size)
	IMUL3Q(U32(uint32(2*s.bytes)), size, size)
	MOVQ(kc, k)
	from, to, n, u, v := GP64(), GP64(), GP64(), s.vec(), s.vec()
	Label("row")
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(panels, n)
	Label("panel")
	PREFETCHT0(Mem{Base: from, Index: far, Scale: 8})
	VMOVUPS(Mem{Base: from}, u)
	VMOVUPS(Mem{Base: from, Disp: s.bytes}, v)
	VMOVUPS(u, Mem{Base: to})
	VMOVUPS(v, Mem{Base: to, Disp: s.bytes})
	ADDQ(U32(uint32(2*s.bytes)), from)
	ADDQ(size, to)
	DECQ(n)
	JNZ(LabelRef("panel"))
	ADDQ(ld, src)
	ADDQ(U32(uint32(2*s.bytes)), dst)
	DECQ(k)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// packPart emits the copy of the first columns of kc rows into one panel.
func packPart(s isa) {
	name := "packPart" + s.name
	TEXT(name, NOSPLIT, "func(dst, src *float32, ld, kc, w int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies the first 1 <= w <= %d columns of kc > 0 rows, ld bytes apart, into a panel that is padded with zeros.", name, 2*s.lanes()))
	dst, src, ld, k := load64("dst"), load64("src"), load64("ld"), load64("kc")
	m := s.newMask(load64("w"), 2)
	u, v := s.vec(), s.vec()
	Label("row")
	m.load(0, Mem{Base: src}, u)
	m.load(1, Mem{Base: src, Disp: s.bytes}, v)
	VMOVUPS(u, Mem{Base: dst})
	VMOVUPS(v, Mem{Base: dst, Disp: s.bytes})
	ADDQ(ld, src)
	ADDQ(U32(uint32(2*s.bytes)), dst)
	DECQ(k)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// kBlock is the number of terms that a tile sums; see package compute/cpu.
const kBlock = 256

// packColumns emits the copy of kc rows, ld bytes apart, of the columns of a
// number of tiles: a transposed A, which in place would fall into few sets of
// the cache. Several tiles at a time read each line once.
func packColumns(s isa, columns, tiles int) {
	name := fmt.Sprintf("pack%dx%d%s", tiles, columns, s.name)
	TEXT(name, NOSPLIT, "func(dst, src *float32, ld, kc int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s copies %d groups of %d columns of kc > 0 rows, ld bytes apart: each group without gaps, %d values after the one before.",
		name, tiles, columns, kBlock*columns))
	dst, src, ld, n := load64("dst"), load64("src"), load64("ld"), load64("kc")
	far := GP64()
	MOVQ(ld, far)
	SHLQ(Imm(1), far)
	bytes := 4 * columns
	var m reg.OpmaskVirtual
	if s.wide {
		m = K()
		w := GP32()
		MOVL(U32(1<<columns-1), w)
		KMOVW(w, m)
	}
	Label("loop")
	for line := 0; line < tiles*bytes; line += 64 {
		PREFETCHT0(Mem{Base: src, Index: far, Scale: 8, Disp: line})
	}
	for t := range tiles {
		if s.wide {
			v := ZMM()
			VMOVUPS_Z(Mem{Base: src, Disp: t * bytes}, m, v)
			VMOVUPS(v, m, Mem{Base: dst, Disp: t * kBlock * bytes})
			continue
		}
		v, off := XMM(), 0
		for ; bytes-off >= 16; off += 16 {
			VMOVUPS(Mem{Base: src, Disp: t*bytes + off}, v)
			VMOVUPS(v, Mem{Base: dst, Disp: t*kBlock*bytes + off})
		}
		VMOVSD(Mem{Base: src, Disp: t*bytes + off}, v) // two of six columns
		VMOVSD(v, Mem{Base: dst, Disp: t*kBlock*bytes + off})
	}
	ADDQ(ld, src)
	ADDQ(Imm(uint64(bytes)), dst)
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
