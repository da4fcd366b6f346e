package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ahead is how many rows in advance of their use rows are fetched. The arrays
// of offsets that kernels read are that much longer than their entries. farAhead is
// that of kernels for tables that lie in memory.
const (
	ahead    = 16
	farAhead = 48
)

// The flags of weightedSum.
const (
	flagAdd    = 1
	flagStream = 2
)

// dtype is a stored type: its name and the bytes of a value.
type dtype struct {
	name string
	size int
}

var dtypes = []dtype{{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"U8", 1}, {"I8", 1}}

// aggregates emits the kernels of sums and maxima over neighbours.
func aggregates() {
	for _, s := range []isa{avx2, avx512} {
		aggregate(s)
	}
	offsets()
}

func aggregate(s isa) {
	for _, t := range dtypes {
		weightedSum(s, t, false, false)
		if s.wide {
			weightedSum(s, t, false, true)
		}
	}
	weightedSum(s, dtypes[0], true, false)
	rowMax(s)
	maxBackward(s)
}

// offsets emits the step from row indices to byte offsets.
func offsets() {
	name := "offsets" + avx2.name
	TEXT(name, NOSPLIT, "func(d *uint64, indices *uint32, n int, stride uint64) (most uint32)")
	Pragma("noescape")
	Doc(name + " computes d[i] = indices[i]·stride, stride < 2^32, for n > 0 indices, and the largest index.")
	d, in, n, stride := load64("d"), load64("indices"), load64("n"), load64("stride")
	by, most := YMM(), YMM()
	VMOVQ(stride, by.AsX())
	VPBROADCASTQ(by.AsX(), by)
	VPXOR(most, most, most)
	u, lo, hi := YMM(), YMM(), YMM()
	Label("loop")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	VMOVDQU(Mem{Base: in}, u)
	VPMAXUD(u, most, most)
	VPMOVZXDQ(u.AsX(), lo)
	VEXTRACTI128(Imm(1), u, hi.AsX())
	VPMOVZXDQ(hi.AsX(), hi)
	VPMULUDQ(by, lo, lo)
	VPMULUDQ(by, hi, hi)
	VMOVDQU(lo, Mem{Base: d})
	VMOVDQU(hi, Mem{Base: d, Disp: 32})
	ADDQ(Imm(32), in)
	ADDQ(Imm(64), d)
	SUBQ(Imm(8), n)
	JMP(LabelRef("loop"))
	Label("rest")
	// Lanes of most to one.
	VEXTRACTI128(Imm(1), most, u.AsX())
	VPMAXUD(u.AsX(), most.AsX(), most.AsX())
	VPSHUFD(Imm(0x4e), most.AsX(), u.AsX())
	VPMAXUD(u.AsX(), most.AsX(), most.AsX())
	VPSHUFD(Imm(0xb1), most.AsX(), u.AsX())
	VPMAXUD(u.AsX(), most.AsX(), most.AsX())
	m, x := GP32(), GP64()
	VMOVD(most.AsX(), m)
	Label("one")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	MOVL(Mem{Base: in}, x.As32())
	CMPL(x.As32(), m)
	CMOVLHI(x.As32(), m)
	IMULQ(stride, x)
	MOVQ(x, Mem{Base: d})
	ADDQ(Imm(4), in)
	ADDQ(Imm(8), d)
	DECQ(n)
	JMP(LabelRef("one"))
	Label("done")
	VZEROUPPER()
	Store(m, ReturnIndex(0))
	RET()
}

// widen emits the conversion of a vector of stored values to float32.
func (t dtype) widen(s isa, from Mem, to reg.VecVirtual) {
	switch t.name {
	case "F32":
		VMOVUPS(from, to)
	case "F16":
		VCVTPH2PS(from, to)
	case "BF16":
		VPMOVZXWD(from, to)
		VPSLLD(Imm(16), to, to)
	case "U8":
		VPMOVZXBD(from, to)
		VCVTDQ2PS(to, to)
	case "I8":
		VPMOVSXBD(from, to)
		VCVTDQ2PS(to, to)
	}
}

// widenMasked is widen for the first values of a vector; it touches no others.
func (t dtype) widenMasked(m mask, from Mem, to reg.VecVirtual) {
	if t.name == "F32" {
		m.load(0, from, to)
		return
	}
	k := m.k[0]
	switch t.name {
	case "F16":
		VCVTPH2PS_Z(from, k, to)
	case "BF16":
		VPMOVZXWD_Z(from, k, to)
		VPSLLD(Imm(16), to, to)
	case "U8":
		VPMOVZXBD_Z(from, k, to)
		VCVTDQ2PS(to, to)
	case "I8":
		VPMOVSXBD_Z(from, k, to)
		VCVTDQ2PS(to, to)
	}
}

// widenOne emits the conversion of one stored value to float32.
func (t dtype) widenOne(from Mem, to reg.VecVirtual) {
	r := GP32()
	switch t.name {
	case "F16":
		MOVWLZX(from, r)
		VMOVD(r, to)
		VCVTPH2PS(to, to)
	case "BF16":
		MOVWLZX(from, r)
		SHLL(Imm(16), r)
		VMOVD(r, to)
	case "U8":
		MOVBLZX(from, r)
		VMOVD(r, to)
		VCVTDQ2PS(to, to)
	case "I8":
		MOVBLSX(from, r)
		VMOVD(r, to)
		VCVTDQ2PS(to, to)
	}
}

func load64(name string) reg.GPVirtual {
	return Load(Param(name), GP64()).(reg.GPVirtual)
}

// weightedSum emits
//
//	dst[r] = scale[r]·(Σ_k coef[k]·row(offsets[k]) + (dst[r] if flagAdd))
//
// for consecutive rows r of counts[r] entries each. If apart, coefficients are a
// stride apart, as those of one head among several. If far, rows are fetched earlier,
// into the second-level cache: more of them are then under way.
func weightedSum(s isa, t dtype, apart, far bool) {
	name, stride, fetched := "sum"+t.name+s.name, "", ahead
	if far {
		name, fetched = "far"+t.name+s.name, farAhead
	}
	if apart {
		name, stride = "sumHead"+s.name, ", stride"
	}
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, counts *int32, rows int, offsets *uint64, coef, scale *float32, base *byte, column *float32, cols, flags"+stride+" int)")
	Pragma("noescape")
	Doc(name+" adds up weighted rows: for each of rows > 0 rows of dst, ldd bytes apart, it takes",
		"the next counts[r] offsets and coefficients. Row k lies offsets[k] bytes from base.",
		"A nil scale is 1. column scales columns (int8 only). Flag 1 adds to dst; flag 2 stores past",
		"the caches: whole vectors only, and dst and ldd are multiples of a vector.",
		fmt.Sprintf("offsets has %d readable values more than entries, which are prefetched.", fetched))
	dst := load64("dst")
	offsets := load64("offsets")
	coef := load64("coef")
	r, left, pd, pb, n := GP64(), GP64(), GP64(), GP64(), GP64()
	XORQ(r, r)
	po, pc, k, off := GP64(), GP64(), GP64(), GP64()
	var pcol reg.GPVirtual
	scaled := t.name == "I8"
	if scaled {
		pcol = GP64()
	}
	var cv, tv reg.VecVirtual = s.vec(), s.vec()
	var m mask

	// entries emits the loop over a row's entries for one group of columns.
	entries := func(l string, lines int, one func()) {
		MOVQ(offsets, po)
		MOVQ(coef, pc)
		MOVQ(n, k)
		TESTQ(k, k)
		JZ(LabelRef(l + "none"))
		Label(l + "loop")
		MOVQ(Mem{Base: po, Disp: 8 * fetched}, off)
		for i := range lines {
			if row := (Mem{Base: pb, Index: off, Scale: 1, Disp: 64 * i}); far {
				PREFETCHT1(row)
			} else {
				PREFETCHT0(row)
			}
		}
		MOVQ(Mem{Base: po}, off)
		one()
		ADDQ(Imm(8), po)
		if apart {
			ADDQ(load64("stride"), pc)
		} else {
			ADDQ(Imm(4), pc)
		}
		DECQ(k)
		JNZ(LabelRef(l + "loop"))
		Label(l + "none")
	}
	// start emits the initial values of the sums, from dst if acc.
	start := func(l string, sums []reg.VecVirtual, load func(i int, v reg.VecVirtual)) {
		for _, v := range sums {
			s.zero(v)
		}
		q := load64("flags")
		TESTQ(U32(flagAdd), q)
		JZ(LabelRef(l + "start"))
		for i, v := range sums {
			load(i, v)
		}
		Label(l + "start")
	}
	// scale emits the multiplication by the row's scale.
	scale := func(l string, sums []reg.VecVirtual) {
		q := load64("scale")
		TESTQ(q, q)
		JZ(LabelRef(l + "scale"))
		VBROADCASTSS(Mem{Base: q, Index: r, Scale: 4}, cv)
		for _, v := range sums {
			VMULPS(cv, v, v)
		}
		Label(l + "scale")
	}

	Label("row")
	counts := load64("counts")
	MOVLQSX(Mem{Base: counts, Index: r, Scale: 4}, n)
	MOVQ(load64("cols"), left)
	MOVQ(dst, pd)
	MOVQ(load64("base"), pb)
	if scaled {
		MOVQ(load64("column"), pcol)
	}
	columns{
		left: left, lanes: s.lanes(), widest: 8,
		advance: func(c int) {
			ADDQ(U32(uint32(4*c)), pd)
			ADDQ(U32(uint32(t.size*c)), pb)
			if scaled {
				ADDQ(U32(uint32(4*c)), pcol)
			}
		},
		group: func(l string, g int) {
			sums := s.vecs(g)
			start(l, sums, func(i int, v reg.VecVirtual) { VMOVUPS(Mem{Base: pd, Disp: i * s.bytes}, v) })
			step := s.lanes() * t.size
			entries(l, (g*step+63)/64, func() {
				VBROADCASTSS(Mem{Base: pc}, cv)
				for i, v := range sums {
					from := Mem{Base: pb, Index: off, Scale: 1, Disp: i * step}
					if t.name == "F32" {
						VFMADD231PS(from, cv, v)
						continue
					}
					t.widen(s, from, tv)
					if scaled {
						VMULPS(Mem{Base: pcol, Disp: i * s.bytes}, tv, tv)
					}
					VFMADD231PS(tv, cv, v)
				}
			})
			scale(l, sums)
			q := load64("flags")
			TESTQ(U32(flagStream), q)
			JNZ(LabelRef(l + "stream"))
			for i, v := range sums {
				VMOVUPS(v, Mem{Base: pd, Disp: i * s.bytes})
			}
			JMP(LabelRef(l + "stored"))
			Label(l + "stream")
			for i, v := range sums {
				VMOVNTPS(v, Mem{Base: pd, Disp: i * s.bytes})
			}
			Label(l + "stored")
		},
		restLoop: !s.wide && t.name != "F32",
		rest: func() {
			sums := s.vecs(1)
			v := sums[0]
			if !s.wide && t.name != "F32" {
				x := v.AsX()
				VXORPS(x, x, x)
				q := load64("flags")
				TESTQ(U32(flagAdd), q)
				JZ(LabelRef("reststart"))
				VMOVSS(Mem{Base: pd}, x)
				Label("reststart")
				entries("rest", 1, func() {
					VMOVSS(Mem{Base: pc}, cv.AsX())
					t.widenOne(Mem{Base: pb, Index: off, Scale: 1}, tv.AsX().(reg.VecVirtual))
					if scaled {
						VMULSS(Mem{Base: pcol}, tv.AsX(), tv.AsX())
					}
					VFMADD231SS(tv.AsX(), cv.AsX(), x)
				})
				scale("rest", sums)
				VMOVSS(x, Mem{Base: pd})
				return
			}
			m = s.newMask(left, 1)
			start("rest", sums, func(_ int, v reg.VecVirtual) { m.load(0, Mem{Base: pd}, v) })
			entries("rest", 1, func() {
				VBROADCASTSS(Mem{Base: pc}, cv)
				t.widenMasked(m, Mem{Base: pb, Index: off, Scale: 1}, tv)
				if scaled {
					u := s.vec()
					m.load(0, Mem{Base: pcol}, u)
					VMULPS(u, tv, tv)
				}
				VFMADD231PS(tv, cv, v)
			})
			scale("rest", sums)
			m.store(0, v, Mem{Base: pd})
		},
	}.emit()
	LEAQ(Mem{Base: offsets, Index: n, Scale: 8}, offsets)
	if apart {
		IMULQ(load64("stride"), n)
		ADDQ(n, coef)
	} else {
		LEAQ(Mem{Base: coef, Index: n, Scale: 4}, coef)
	}
	ADDQ(load64("ldd"), dst)
	INCQ(r)
	CMPQ(r, load64("rows"))
	JLT(LabelRef("row"))
	flags := load64("flags")
	TESTQ(U32(flagStream), flags)
	JZ(LabelRef("done"))
	SFENCE()
	Label("done")
	VZEROUPPER()
	RET()
}

// rowMax emits the maximum over rows and the entries that hold it.
func rowMax(s isa) {
	name := "max" + s.name
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, arg *uint32, lda int, counts *int32, rows int, offsets *uint64, base *byte, cols, entry, acc int)")
	Pragma("noescape")
	Doc(name+" takes, for each of rows > 0 rows of counts[r] > 0 entries, the maximum of each",
		"column and the number of its first entry, counted from entry; a NaN wins. acc != 0",
		"goes on from dst and arg.",
		fmt.Sprintf("offsets has %d readable values more than entries, which are prefetched.", ahead))
	dst, arg, offsets, entry := load64("dst"), load64("arg"), load64("offsets"), load64("entry")
	r, left, pd, pa, pb, n := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	XORQ(r, r)
	po, k, off := GP64(), GP64(), GP64()
	id, v, t, u := s.vec(), s.vec(), s.vec(), s.vec()
	one := s.vec()
	splat := func(x reg.GPVirtual, to reg.VecVirtual) {
		VMOVD(x.As32(), to.AsX())
		VPBROADCASTD(to.AsX(), to)
	}
	MOVQ(U32(1), k)
	splat(k, one)
	body := func(l string, g int, load func(i int, from Mem, to reg.VecVirtual), store func(i int, from reg.VecVirtual, to Mem)) {
		best, win := s.vecs(g), s.vecs(g)
		splat(entry, id)
		MOVQ(offsets, po)
		MOVQ(n, k)
		q := load64("acc")
		TESTQ(q, q)
		JZ(LabelRef(l + "first"))
		for i := range best {
			load(i, Mem{Base: pd, Disp: i * s.bytes}, best[i])
			load(i, Mem{Base: pa, Disp: i * s.bytes}, win[i])
		}
		JMP(LabelRef(l + "loop"))
		Label(l + "first")
		MOVQ(Mem{Base: po}, off)
		for i := range best {
			load(i, Mem{Base: pb, Index: off, Scale: 1, Disp: i * s.bytes}, best[i])
			if s.wide {
				VMOVDQA32(id, win[i])
			} else {
				VMOVDQA(id, win[i])
			}
		}
		VPADDD(one, id, id)
		ADDQ(Imm(8), po)
		DECQ(k)
		JZ(LabelRef(l + "store"))
		Label(l + "loop")
		MOVQ(Mem{Base: po, Disp: 8 * ahead}, off)
		for i := range (g*s.bytes + 63) / 64 {
			PREFETCHT0(Mem{Base: pb, Index: off, Scale: 1, Disp: 64 * i})
		}
		MOVQ(Mem{Base: po}, off)
		for i := range best {
			load(i, Mem{Base: pb, Index: off, Scale: 1, Disp: i * s.bytes}, v)
			// Better: not v <= best, and best is not NaN.
			if s.wide {
				k1 := K()
				VCMPPS(Imm(cmpNotLessEqual), best[i], v, k1)
				VCMPPS(Imm(cmpOrdered), best[i], best[i], k1, k1)
				VMOVAPS(v, k1, best[i])
				VMOVDQA32(id, k1, win[i])
				continue
			}
			VCMPPS(Imm(cmpNotLessEqual), best[i], v, t)
			VCMPPS(Imm(cmpOrdered), best[i], best[i], u)
			VANDPS(t, u, t)
			VBLENDVPS(t, v, best[i], best[i])
			VBLENDVPS(t, id, win[i], win[i])
		}
		VPADDD(one, id, id)
		ADDQ(Imm(8), po)
		DECQ(k)
		JNZ(LabelRef(l + "loop"))
		Label(l + "store")
		for i := range best {
			store(i, best[i], Mem{Base: pd, Disp: i * s.bytes})
			store(i, win[i], Mem{Base: pa, Disp: i * s.bytes})
		}
	}
	Label("row")
	MOVLQSX(Mem{Base: load64("counts"), Index: r, Scale: 4}, n)
	MOVQ(load64("cols"), left)
	MOVQ(dst, pd)
	MOVQ(arg, pa)
	MOVQ(load64("base"), pb)
	columns{
		left: left, lanes: s.lanes(), widest: 4,
		advance: func(c int) {
			for _, p := range []reg.GPVirtual{pd, pa, pb} {
				ADDQ(U32(uint32(4*c)), p)
			}
		},
		group: func(l string, g int) {
			body(l, g, func(_ int, from Mem, to reg.VecVirtual) { VMOVUPS(from, to) },
				func(_ int, from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
		},
		rest: func() {
			m := s.newMask(left, 1)
			body("rest", 1, m.load, m.store)
		},
	}.emit()
	LEAQ(Mem{Base: offsets, Index: n, Scale: 8}, offsets)
	ADDQ(n, entry)
	ADDQ(load64("ldd"), dst)
	ADDQ(load64("lda"), arg)
	INCQ(r)
	CMPQ(r, load64("rows"))
	JLT(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// The predicates of VCMPPS.
const (
	cmpNotLess      = 5 // not <, true if unordered
	cmpNotLessEqual = 6 // not <=, true if unordered
	cmpOrdered      = 7
)

// maxBackward emits the sum of those values whose entry won the maximum.
func maxBackward(s isa) {
	name := "maxBackward" + s.name
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, counts *int32, rows int, offsets *uint64, entries *uint32, base, arg *byte, cols, acc int)")
	Pragma("noescape")
	Doc(name+" adds up, for each of rows > 0 rows of dst, the values of the next counts[r] rows,",
		"offsets[k] bytes from base, where the word at the same offset from arg is entries[k].",
		fmt.Sprintf("offsets has %d readable values more than entries, which are prefetched.", ahead))
	dst, offsets, entries := load64("dst"), load64("offsets"), load64("entries")
	r, left, pd, pa, pb, n := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	XORQ(r, r)
	po, pe, k, off := GP64(), GP64(), GP64(), GP64()
	id, v, t := s.vec(), s.vec(), s.vec()
	body := func(l string, g int, load func(i int, from Mem, to reg.VecVirtual), store func(i int, from reg.VecVirtual, to Mem)) {
		sums := s.vecs(g)
		for _, v := range sums {
			s.zero(v)
		}
		q := load64("acc")
		TESTQ(q, q)
		JZ(LabelRef(l + "start"))
		for i, v := range sums {
			load(i, Mem{Base: pd, Disp: i * s.bytes}, v)
		}
		Label(l + "start")
		MOVQ(offsets, po)
		MOVQ(entries, pe)
		MOVQ(n, k)
		TESTQ(k, k)
		JZ(LabelRef(l + "none"))
		Label(l + "loop")
		MOVQ(Mem{Base: po, Disp: 8 * ahead}, off)
		for i := range (g*s.bytes + 63) / 64 {
			PREFETCHT0(Mem{Base: pb, Index: off, Scale: 1, Disp: 64 * i})
			PREFETCHT0(Mem{Base: pa, Index: off, Scale: 1, Disp: 64 * i})
		}
		MOVQ(Mem{Base: po}, off)
		VPBROADCASTD(Mem{Base: pe}, id)
		for i := range sums {
			load(i, Mem{Base: pa, Index: off, Scale: 1, Disp: i * s.bytes}, t)
			load(i, Mem{Base: pb, Index: off, Scale: 1, Disp: i * s.bytes}, v)
			if s.wide {
				k1 := K()
				VPCMPEQD(t, id, k1)
				VADDPS(v, sums[i], k1, sums[i])
				continue
			}
			VPCMPEQD(t, id, t)
			VANDPS(v, t, t)
			VADDPS(t, sums[i], sums[i])
		}
		ADDQ(Imm(8), po)
		ADDQ(Imm(4), pe)
		DECQ(k)
		JNZ(LabelRef(l + "loop"))
		Label(l + "none")
		for i := range sums {
			store(i, sums[i], Mem{Base: pd, Disp: i * s.bytes})
		}
	}
	Label("row")
	MOVLQSX(Mem{Base: load64("counts"), Index: r, Scale: 4}, n)
	MOVQ(load64("cols"), left)
	MOVQ(dst, pd)
	MOVQ(load64("arg"), pa)
	MOVQ(load64("base"), pb)
	columns{
		left: left, lanes: s.lanes(), widest: 4,
		advance: func(c int) {
			for _, p := range []reg.GPVirtual{pd, pa, pb} {
				ADDQ(U32(uint32(4*c)), p)
			}
		},
		group: func(l string, g int) {
			body(l, g, func(_ int, from Mem, to reg.VecVirtual) { VMOVUPS(from, to) },
				func(_ int, from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
		},
		rest: func() {
			m := s.newMask(left, 1)
			body("rest", 1, m.load, m.store)
		},
	}.emit()
	LEAQ(Mem{Base: offsets, Index: n, Scale: 8}, offsets)
	LEAQ(Mem{Base: entries, Index: n, Scale: 4}, entries)
	ADDQ(load64("ldd"), dst)
	INCQ(r)
	CMPQ(r, load64("rows"))
	JLT(LabelRef("row"))
	VZEROUPPER()
	RET()
}
