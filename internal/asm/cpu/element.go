package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The element-wise kernels wait for memory, not for arithmetic: they exist for
// AVX2 only, and both sets use them. They round every product, as their
// portable twins do, so that all sets agree bit by bit.

func elements() {
	s := avx2
	element("add", "d = a + b", false, func(_, a, b, _ reg.VecVirtual) reg.VecVirtual {
		VADDPS(b, a, a)
		return a
	})
	element("multiply", "d = a∘b", false, func(_, a, b, _ reg.VecVirtual) reg.VecVirtual {
		VMULPS(b, a, a)
		return a
	})
	element("axpy", "d += f·a", true, func(d, a, _, f reg.VecVirtual) reg.VecVirtual {
		VMULPS(f, a, a)
		VADDPS(a, d, d)
		return d
	})
	element("scale", "d = f·a", false, func(_, a, _, f reg.VecVirtual) reg.VecVirtual {
		VMULPS(f, a, a)
		return a
	})
	element("relu", "d = max(a, 0)", false, func(_, a, _, _ reg.VecVirtual) reg.VecVirtual {
		z := s.vec()
		s.zero(z)
		VMAXPS(a, z, a) // a if it is NaN
		return a
	})
	element("reluBackward", "d = a where not b <= 0, else 0", false, func(_, a, b, _ reg.VecVirtual) reg.VecVirtual {
		z := s.vec()
		s.zero(z)
		VCMPPS(Imm(cmpNotLessEqual), z, b, b)
		VANDPS(b, a, a)
		return a
	})
	element("leaky", "d = a where not a <= 0, else f·a", false, func(_, a, _, f reg.VecVirtual) reg.VecVirtual {
		z, t := s.vec(), s.vec()
		s.zero(z)
		VCMPPS(Imm(cmpNotLessEqual), z, a, z)
		VMULPS(f, a, t)
		VBLENDVPS(z, a, t, a)
		return a
	})
	element("leakyBackward", "d = a where not b <= 0, else f·a", false, func(_, a, b, f reg.VecVirtual) reg.VecVirtual {
		z, t := s.vec(), s.vec()
		s.zero(z)
		VCMPPS(Imm(cmpNotLessEqual), z, b, z)
		VMULPS(f, a, t)
		VBLENDVPS(z, a, t, a)
		return a
	})
	element("elu", "d = a where not a <= 0, else e^a-1", false, func(_, a, _, _ reg.VecVirtual) reg.VecVirtual {
		x, t := s.vec(), s.vec()
		s.zero(t)
		VMINPS(t, a, x)
		VMAXPS(constant(expLow), x, x)
		q, scale := expParts(x)
		VMULPS(scale, q, q)
		VADDPS(constant(-1), scale, scale)
		VADDPS(scale, q, q)
		VCMPPS(Imm(cmpNotLessEqual), t, a, t)
		VBLENDVPS(t, a, q, a)
		return a
	})
	element("eluBackward", "d = a where not b <= 0, else a·(b+1)", false, func(_, a, b, _ reg.VecVirtual) reg.VecVirtual {
		z, t := s.vec(), s.vec()
		s.zero(z)
		VCMPPS(Imm(cmpNotLessEqual), z, b, z)
		VADDPS(constant(1), b, t)
		VMULPS(t, a, t)
		VBLENDVPS(z, a, t, a)
		return a
	})
	dropout(s)
	adam(s)
}

// element emits a kernel over n > 0 elements. op combines vectors of d (read
// only if reads), a and b, and f in every lane.
func element(name, doc string, reads bool, op func(d, a, b, f reg.VecVirtual) reg.VecVirtual) {
	s := avx2
	name += s.name
	TEXT(name, NOSPLIT, "func(d, a, b *float32, n int, f float32)")
	Pragma("noescape")
	Doc(name + " computes " + doc + " over n > 0 elements.")
	d, a, b, n := load64("d"), load64("a"), load64("b"), load64("n")
	f := s.vec()
	param, err := Param("f").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(param.Addr, f)
	body := func(i int, load func(from Mem, to reg.VecVirtual), store func(from reg.VecVirtual, to Mem)) {
		vd, va, vb := s.vec(), s.vec(), s.vec()
		at := 32 * i
		load(Mem{Base: a, Disp: at}, va)
		load(Mem{Base: b, Disp: at}, vb)
		if reads {
			load(Mem{Base: d, Disp: at}, vd)
		}
		store(op(vd, va, vb, f), Mem{Base: d, Disp: at})
	}
	whole := func(w int) {
		for i := range w {
			body(i, func(from Mem, to reg.VecVirtual) { VMOVUPS(from, to) }, func(from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
		}
		for _, p := range []reg.GPVirtual{d, a, b} {
			ADDQ(U32(uint32(32*w)), p)
		}
	}
	SUBQ(Imm(32), n)
	JLT(LabelRef("few"))
	Label("loop")
	whole(4)
	SUBQ(Imm(32), n)
	JGE(LabelRef("loop"))
	Label("few")
	ADDQ(Imm(32), n)
	Label("one")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	whole(1)
	SUBQ(Imm(8), n)
	JMP(LabelRef("one"))
	Label("rest")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	m := s.newMask(n, 1)
	body(0, func(from Mem, to reg.VecVirtual) { m.load(0, from, to) }, func(from reg.VecVirtual, to Mem) { m.store(0, from, to) })
	Label("done")
	VZEROUPPER()
	RET()
}

// dropout emits the kernel for one row; the draws are those of package rng.
func dropout(s isa) {
	name := "dropout" + s.name
	TEXT(name, NOSPLIT, "func(d, a *float32, n int, key uint64, threshold uint32, scale float32)")
	Pragma("noescape")
	Doc(name+" computes d = a·scale for n > 0 elements of a row, or 0 where the 16 bits that",
		"belong to the element, in the draws of stream key, are below threshold.")
	d, a, n, key := load64("d"), load64("a"), load64("n"), load64("key")
	golden, c1, c2 := GP64(), GP64(), GP64()
	MOVQ(U64(0x9e3779b97f4a7c15), golden)
	MOVQ(U64(0xbf58476d1ce4e5b9), c1)
	MOVQ(U64(0x94d049bb133111eb), c2)
	t := Load(Param("threshold"), GP32()).(reg.GPVirtual)
	DECL(t)
	below, scale := s.vec(), s.vec()
	VMOVD(t, below.AsX())
	VPBROADCASTD(below.AsX(), below)
	param, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(param.Addr, scale)
	draw := func() reg.GPVirtual {
		z, q := GP64(), GP64()
		ADDQ(golden, key)
		MOVQ(key, z)
		for _, step := range []struct {
			shift uint64
			times reg.GPVirtual
		}{{30, c1}, {27, c2}} {
			MOVQ(z, q)
			SHRQ(Imm(step.shift), q)
			XORQ(q, z)
			IMULQ(step.times, z)
		}
		MOVQ(z, q)
		SHRQ(Imm(31), q)
		XORQ(q, z)
		return z
	}
	// keep returns a mask of the next 8 elements that are kept.
	keep := func() reg.VecVirtual {
		lo, hi := draw(), draw()
		x, y := XMM(), YMM()
		VMOVQ(lo, x)
		VPINSRQ(Imm(1), hi, x, x)
		VPMOVZXWD(x, y)
		VPCMPGTD(below, y, y)
		return y
	}
	v := s.vec()
	Label("loop")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	k := keep()
	VMULPS(Mem{Base: a}, scale, v)
	VANDPS(k, v, v)
	VMOVUPS(v, Mem{Base: d})
	ADDQ(Imm(32), a)
	ADDQ(Imm(32), d)
	SUBQ(Imm(8), n)
	JMP(LabelRef("loop"))
	Label("rest")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	k = keep()
	m := s.newMask(n, 1)
	m.load(0, Mem{Base: a}, v)
	VMULPS(scale, v, v)
	VANDPS(k, v, v)
	m.store(0, v, Mem{Base: d})
	Label("done")
	VZEROUPPER()
	RET()
}

// adam emits the optimiser's step; the order of its settings is that of the
// array that the caller passes.
func adam(s isa) {
	name := "adam" + s.name
	TEXT(name, NOSPLIT, "func(p, m, v, grad *float32, n int, settings *float32)")
	Pragma("noescape")
	Doc(name+" makes an Adam step over n > 0 elements. settings are, in order: beta1, 1-beta1,",
		"beta2, 1-beta2, step, root, epsilon, scale, decay, keep.")
	ptrs := []reg.GPVirtual{load64("p"), load64("m"), load64("v"), load64("grad")}
	n, settings := load64("n"), load64("settings")
	setting := s.vecs(10)
	for i, v := range setting {
		VBROADCASTSS(Mem{Base: settings, Disp: 4 * i}, v)
	}
	beta1, rest1, beta2, rest2, step := setting[0], setting[1], setting[2], setting[3], setting[4]
	root, epsilon, scale, decay, keep := setting[5], setting[6], setting[7], setting[8], setting[9]
	body := func(load func(from Mem, to reg.VecVirtual), store func(from reg.VecVirtual, to Mem)) {
		p, m, v, d, t := s.vec(), s.vec(), s.vec(), s.vec(), s.vec()
		load(Mem{Base: ptrs[0]}, p)
		load(Mem{Base: ptrs[3]}, d)
		VMULPS(keep, p, p)
		VMULPS(scale, d, d)
		VMULPS(decay, p, t)
		VADDPS(t, d, d)
		load(Mem{Base: ptrs[1]}, m)
		VMULPS(beta1, m, m)
		VMULPS(rest1, d, t)
		VADDPS(t, m, m)
		store(m, Mem{Base: ptrs[1]})
		load(Mem{Base: ptrs[2]}, v)
		VMULPS(beta2, v, v)
		VMULPS(d, d, d)
		VMULPS(rest2, d, d)
		VADDPS(d, v, v)
		store(v, Mem{Base: ptrs[2]})
		VSQRTPS(v, v)
		VMULPS(root, v, v)
		VADDPS(epsilon, v, v)
		VMULPS(step, m, m)
		VDIVPS(v, m, m)
		VSUBPS(m, p, p)
		store(p, Mem{Base: ptrs[0]})
	}
	Label("loop")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	body(func(from Mem, to reg.VecVirtual) { VMOVUPS(from, to) }, func(from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
	for _, p := range ptrs {
		ADDQ(Imm(32), p)
	}
	SUBQ(Imm(8), n)
	JMP(LabelRef("loop"))
	Label("rest")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	mk := s.newMask(n, 1)
	body(func(from Mem, to reg.VecVirtual) { mk.load(0, from, to) }, func(from reg.VecVirtual, to Mem) { mk.store(0, from, to) })
	Label("done")
	VZEROUPPER()
	RET()
}
