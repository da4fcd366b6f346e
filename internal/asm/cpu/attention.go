package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// attention emits the kernels of attention but for the weighted sum of heads,
// which is weightedSum with coefficients that lie apart. Both sets use them.
func attention() {
	for _, heads := range []int{4, 8} {
		scores(heads, false)
		scores(heads, true)
	}
	maxLanes()
	expLanes()
	scaleLanes()
	dotLanes()
	softmaxBackward()
	headDots(false)
	headDots(true)
	headGradients(false)
	headGradients(true)
}

func broadcast(name string, to reg.VecVirtual) {
	param, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(param.Addr, to)
}

// leaky emits to = v if its sign is positive, else v·slope: the same value at
// both zeros. The slope itself, which differs there, is taken by a comparison.
func leaky(v, slope, to reg.VecVirtual) {
	VMULPS(slope, v, to)
	VBLENDVPS(v, to, v, to)
}

// scores emits the additive scores of one destination, or their backward step,
// for as many heads as a vector has lanes.
func scores(heads int, backward bool) {
	s, vec := avx2, func() reg.VecVirtual { return YMM() }
	if heads == 4 {
		vec = func() reg.VecVirtual { return XMM() }
	}
	name, what := "scores", "a[k] = LeakyReLU(row(offsets[k]) + d + edge[k])"
	if backward {
		name, what = "scoresBackward", "a[k] *= LeakyReLU'(row(offsets[k]) + d + edge[k]) and adds a[k] to sum"
	}
	name = fmt.Sprintf("%s%d%s", name, heads, s.name)
	TEXT(name, NOSPLIT, "func(a, edge, d *float32, offsets *uint64, n int, base *byte, slope float32, sum *float32)")
	Pragma("noescape")
	Doc(name+" computes "+what+" for n > 0 entries",
		fmt.Sprintf("of %d heads. A nil edge is 0.", heads))
	a, edge, offsets, n, base := load64("a"), load64("edge"), load64("offsets"), load64("n"), load64("base")
	d, slope, sum, v, t := vec(), vec(), vec(), vec(), vec()
	broadcast("slope", slope)
	p, off := load64("d"), GP64()
	VMOVUPS(Mem{Base: p}, d)
	q, zero := load64("sum"), vec()
	if backward {
		VXORPS(zero, zero, zero)
		VMOVUPS(Mem{Base: q}, sum)
	}
	Label("loop")
	MOVQ(Mem{Base: offsets, Disp: 8 * ahead}, off)
	PREFETCHT0(Mem{Base: base, Index: off, Scale: 1})
	MOVQ(Mem{Base: offsets}, off)
	VADDPS(Mem{Base: base, Index: off, Scale: 1}, d, v)
	TESTQ(edge, edge)
	JZ(LabelRef("plain"))
	VADDPS(Mem{Base: edge}, v, v)
	ADDQ(Imm(uint64(4*heads)), edge)
	Label("plain")
	if backward {
		VMOVUPS(Mem{Base: a}, t)
		u := vec()
		VMULPS(slope, t, u)
		VCMPPS(Imm(cmpNotLessEqual), zero, v, v)
		VBLENDVPS(v, t, u, t)
		VADDPS(t, sum, sum)
	} else {
		leaky(v, slope, t)
	}
	VMOVUPS(t, Mem{Base: a})
	ADDQ(Imm(uint64(4*heads)), a)
	ADDQ(Imm(8), offsets)
	DECQ(n)
	JNZ(LabelRef("loop"))
	if backward {
		VMOVUPS(sum, Mem{Base: q})
	}
	VZEROUPPER()
	RET()
}

// flat emits a loop over n > 0 values in whole vectors and a masked rest. mask
// is nil for a whole vector.
func flat(n reg.GPVirtual, pointers []reg.GPVirtual, body func(mask reg.VecVirtual)) {
	Label("loop")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	body(nil)
	for _, p := range pointers {
		ADDQ(Imm(32), p)
	}
	SUBQ(Imm(8), n)
	JMP(LabelRef("loop"))
	Label("rest")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	m := avx2.newMask(n, 1)
	body(m.v[0])
	Label("done")
}

func loadLanes(mask reg.VecVirtual, from Mem, to reg.VecVirtual) {
	if mask == nil {
		VMOVUPS(from, to)
	} else {
		VMASKMOVPS(from, mask, to)
	}
}

func storeLanes(mask, from reg.VecVirtual, to Mem) {
	if mask == nil {
		VMOVUPS(from, to)
	} else {
		VMASKMOVPS(from, mask, to)
	}
}

// text begins a kernel over n > 0 values, lane l of which are those whose number
// is l modulo 8.
func text(name, arguments, doc string) {
	name += avx2.name
	TEXT(name, NOSPLIT, "func("+arguments+")")
	Pragma("noescape")
	Doc(name+" computes "+doc, "over n > 0 values; lane l has those whose number is l modulo 8.")
}

func maxLanes() {
	text("maxLanes", "p *float32, n int, most *float32", "most[l] = max(most[l], p[8k+l])")
	p, n, out := load64("p"), load64("n"), load64("most")
	most := YMM()
	VMOVUPS(Mem{Base: out}, most)
	flat(n, []reg.GPVirtual{p}, func(mask reg.VecVirtual) {
		v := YMM()
		loadLanes(mask, Mem{Base: p}, v)
		if mask != nil {
			VBLENDVPS(mask, v, most, v)
		}
		VMAXPS(most, v, most)
	})
	VMOVUPS(most, Mem{Base: out})
	VZEROUPPER()
	RET()
}

func expLanes() {
	text("expLanes", "p *float32, n int, shift, sums *float32", "p = e^(p-shift[l]), 0 where that is no normal number, and adds p to sums[l]")
	p, n, ps, out := load64("p"), load64("n"), load64("shift"), load64("sums")
	shift, sums, low := YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: ps}, shift)
	VMOVUPS(Mem{Base: out}, sums)
	VMOVUPS(constant(expLow), low)
	flat(n, []reg.GPVirtual{p}, func(mask reg.VecVirtual) {
		v, keep := YMM(), YMM()
		loadLanes(mask, Mem{Base: p}, v)
		VSUBPS(shift, v, v)
		VCMPPS(Imm(cmpNotLess), low, v, keep)
		VMAXPS(v, low, v) // v if it is NaN
		q, s := expParts(v)
		VMULPS(s, q, q)
		VADDPS(s, q, q)
		VANDPS(keep, q, q)
		storeLanes(mask, q, Mem{Base: p})
		if mask != nil {
			VANDPS(mask, q, q)
		}
		VADDPS(q, sums, sums)
	})
	VMOVUPS(sums, Mem{Base: out})
	VZEROUPPER()
	RET()
}

func scaleLanes() {
	text("scaleLanes", "p *float32, n int, by *float32", "p *= by[l]")
	p, n, pb := load64("p"), load64("n"), load64("by")
	by := YMM()
	VMOVUPS(Mem{Base: pb}, by)
	flat(n, []reg.GPVirtual{p}, func(mask reg.VecVirtual) {
		v := YMM()
		loadLanes(mask, Mem{Base: p}, v)
		VMULPS(by, v, v)
		storeLanes(mask, v, Mem{Base: p})
	})
	VZEROUPPER()
	RET()
}

func dotLanes() {
	text("dotLanes", "a, b *float32, n int, sums *float32", "sums[l] += Σ_k a[8k+l]·b[8k+l]")
	a, b, n, out := load64("a"), load64("b"), load64("n"), load64("sums")
	sums := YMM()
	VMOVUPS(Mem{Base: out}, sums)
	flat(n, []reg.GPVirtual{a, b}, func(mask reg.VecVirtual) {
		v, u := YMM(), YMM()
		loadLanes(mask, Mem{Base: a}, v)
		loadLanes(mask, Mem{Base: b}, u)
		VFMADD231PS(u, v, sums)
	})
	VMOVUPS(sums, Mem{Base: out})
	VZEROUPPER()
	RET()
}

func softmaxBackward() {
	text("softmaxBackward", "d, a *float32, n int, sums *float32", "d = a·(d-sums[l])")
	d, a, n, ps := load64("d"), load64("a"), load64("n"), load64("sums")
	sums := YMM()
	VMOVUPS(Mem{Base: ps}, sums)
	flat(n, []reg.GPVirtual{d, a}, func(mask reg.VecVirtual) {
		v, u := YMM(), YMM()
		loadLanes(mask, Mem{Base: d}, v)
		loadLanes(mask, Mem{Base: a}, u)
		VSUBPS(sums, v, v)
		VMULPS(u, v, v)
		storeLanes(mask, v, Mem{Base: d})
	})
	VZEROUPPER()
	RET()
}

// headDots emits, for one destination, the dot products per head of its row
// with the rows of its entries; if dynamic, GATv2's scores.
func headDots(dynamic bool) {
	name, what := "headDots", "row_h·v_h"
	signature := "out, row *float32, offsets *uint64, n int, base *byte, heads, cols int"
	if dynamic {
		name, what = "dynamicScores", "att_h·LeakyReLU(row_h + v_h)"
		signature += ", att *float32, slope float32"
	}
	name += avx2.name
	TEXT(name, NOSPLIT, "func("+signature+")")
	Pragma("noescape")
	Doc(name+" computes out[k][h] = "+what+" for the rows v at offsets[k] of n > 0 entries",
		"and every head h, cols > 0 columns each.")
	out, g, offsets, n, base := load64("out"), load64("row"), load64("offsets"), load64("n"), load64("base")
	p, next, pg, h, c := GP64(), GP64(), GP64(), GP64(), GP64()
	pointers := []reg.GPVirtual{p, next, pg}
	var patt reg.GPVirtual
	slope := YMM()
	if dynamic {
		patt = GP64()
		pointers = append(pointers, patt)
		broadcast("slope", slope)
	}
	MOVQ(load64("cols"), c)
	ANDQ(Imm(7), c)
	mask := avx2.newMask(c, 1).v[0]
	sums := avx2.vecs(2)
	body := func(mask reg.VecVirtual, i int) {
		v, u := YMM(), YMM()
		loadLanes(mask, Mem{Base: p, Disp: 32 * i}, v)
		loadLanes(mask, Mem{Base: pg, Disp: 32 * i}, u)
		if dynamic {
			VADDPS(u, v, v)
			leaky(v, slope, u)
			loadLanes(mask, Mem{Base: patt, Disp: 32 * i}, v)
		}
		VFMADD231PS(u, v, sums[i])
	}
	advance := func(bytes int) {
		for _, p := range pointers {
			ADDQ(U32(uint32(bytes)), p)
		}
	}
	Label("entry")
	MOVQ(Mem{Base: offsets}, p)
	ADDQ(base, p)
	MOVQ(Mem{Base: offsets, Disp: 8 * ahead}, next)
	ADDQ(base, next)
	MOVQ(g, pg)
	if dynamic {
		MOVQ(load64("att"), patt)
	}
	MOVQ(load64("heads"), h)
	Label("head")
	for _, v := range sums {
		VXORPS(v, v, v)
	}
	MOVQ(load64("cols"), c)
	Label("two")
	CMPQ(c, Imm(16))
	JLT(LabelRef("one"))
	PREFETCHT0(Mem{Base: next})
	body(nil, 0)
	body(nil, 1)
	advance(64)
	SUBQ(Imm(16), c)
	JMP(LabelRef("two"))
	Label("one")
	CMPQ(c, Imm(8))
	JLT(LabelRef("rest"))
	PREFETCHT0(Mem{Base: next})
	body(nil, 0)
	advance(32)
	SUBQ(Imm(8), c)
	Label("rest")
	TESTQ(c, c)
	JZ(LabelRef("fold"))
	PREFETCHT0(Mem{Base: next})
	body(mask, 0)
	SHLQ(Imm(2), c)
	for _, p := range pointers {
		ADDQ(c, p)
	}
	Label("fold")
	VADDPS(sums[1], sums[0], sums[0])
	x, y := sums[0].AsX(), sums[1].AsX()
	VEXTRACTF128(Imm(1), sums[0].AsY(), y)
	VADDPS(y, x, x)
	VMOVHLPS(x, x, y)
	VADDPS(y, x, x)
	VMOVSHDUP(x, y)
	VADDSS(y, x, x)
	VMOVSS(x, Mem{Base: out})
	ADDQ(Imm(4), out)
	DECQ(h)
	JNZ(LabelRef("head"))
	ADDQ(Imm(8), offsets)
	DECQ(n)
	JNZ(LabelRef("entry"))
	VZEROUPPER()
	RET()
}

// headGradients emits the backward step of GATv2's scores for one row and one
// head; with att's gradient too if both.
func headGradients(both bool) {
	s := avx2
	name := "headGradients"
	signature := "d, own, att *float32, offsets *uint64, coef *float32, stride, n int, base *byte, slope float32, cols int"
	what := "d += Σ_k coef[k]·att∘LeakyReLU'(row(offsets[k]) + own)"
	if both {
		name += "Att"
		signature += ", datt *float32"
		what += " and datt += Σ_k coef[k]·LeakyReLU(row(offsets[k]) + own)"
	}
	name += s.name
	TEXT(name, NOSPLIT, "func("+signature+")")
	Pragma("noescape")
	Doc(name+" computes "+what, "for n > 0 entries whose coefficients are stride bytes apart, over cols > 0 columns.")
	d, own, att, base, left := load64("d"), load64("own"), load64("att"), load64("base"), load64("cols")
	pointers := []reg.GPVirtual{d, own, att, base}
	var datt reg.GPVirtual
	if both {
		datt = load64("datt")
		pointers = append(pointers, datt)
	}
	po, pc, k, off := GP64(), GP64(), GP64(), GP64()
	slope, f, zero := YMM(), YMM(), YMM()
	broadcast("slope", slope)
	VXORPS(zero, zero, zero)
	body := func(l string, w int, load func(i int, from Mem, to reg.VecVirtual), store func(i int, from reg.VecVirtual, to Mem)) {
		owns, atts, sums := s.vecs(w), s.vecs(w), s.vecs(w)
		var parts []reg.VecVirtual
		if both {
			parts = s.vecs(w)
		}
		for i := range w {
			load(i, Mem{Base: own, Disp: 32 * i}, owns[i])
			load(i, Mem{Base: att, Disp: 32 * i}, atts[i])
			load(i, Mem{Base: d, Disp: 32 * i}, sums[i])
			if both {
				load(i, Mem{Base: datt, Disp: 32 * i}, parts[i])
			}
		}
		MOVQ(load64("offsets"), po)
		MOVQ(load64("coef"), pc)
		MOVQ(load64("n"), k)
		Label(l + "loop")
		MOVQ(Mem{Base: po, Disp: 8 * ahead}, off)
		PREFETCHT0(Mem{Base: base, Index: off, Scale: 1})
		MOVQ(Mem{Base: po}, off)
		VBROADCASTSS(Mem{Base: pc}, f)
		for i := range w {
			z, t := YMM(), YMM()
			load(i, Mem{Base: base, Index: off, Scale: 1, Disp: 32 * i}, z)
			VADDPS(owns[i], z, z)
			if both {
				leaky(z, slope, t)
				VFMADD231PS(t, f, parts[i])
			}
			VMULPS(atts[i], f, t)
			u := YMM()
			VMULPS(slope, t, u)
			VCMPPS(Imm(cmpNotLessEqual), zero, z, z)
			VBLENDVPS(z, t, u, t)
			VADDPS(t, sums[i], sums[i])
		}
		ADDQ(Imm(8), po)
		ADDQ(load64("stride"), pc)
		DECQ(k)
		JNZ(LabelRef(l + "loop"))
		for i := range w {
			store(i, sums[i], Mem{Base: d, Disp: 32 * i})
			if both {
				store(i, parts[i], Mem{Base: datt, Disp: 32 * i})
			}
		}
	}
	floatColumns(s, left, 2, pointers, body)
	VZEROUPPER()
	RET()
}
