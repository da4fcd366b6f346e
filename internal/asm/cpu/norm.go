package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// norms emits the kernels of batch norm: AVX2 for both sets, every step rounded
// on its own, so that all sets agree bit by bit.
func norms() {
	columnSums("squares", "d[j] = Σ_i (a[i][j]-mean[j])²", false)
	columnSums("dots", "sum[j] = Σ_i dy[i][j] and d[j] = Σ_i dy[i][j]·(a[i][j]-mean[j])", true)
	perColumn("normalize", "d = (a-mean)∘scale + shift", false)
	perColumn("normalizeBackward", "d = dy∘scale + (a-mean)∘slope + shift", true)
}

// columnSums emits a kernel that sums over the rows of one matrix or two.
func columnSums(name, doc string, two bool) {
	s := avx2
	name += s.name
	signature := "func(d *float32, a *float32, lda int, mean *float32, rows, cols int)"
	if two {
		signature = "func(sum, d *float32, dy *float32, ldy int, a *float32, lda int, mean *float32, rows, cols int)"
	}
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(name+" computes "+doc, "over rows > 0 rows, lda or ldy bytes apart.")
	d, a, mean, left := load64("d"), load64("a"), load64("mean"), load64("cols")
	lda := load64("lda")
	pointers := []reg.GPVirtual{d, a, mean}
	var sum, g, ldg, pg reg.GPVirtual
	if two {
		sum, g, ldg, pg = load64("sum"), load64("dy"), load64("ldy"), GP64()
		pointers = append(pointers, sum, g)
	}
	pa, n := GP64(), GP64()
	body := func(l string, w int, load func(i int, from Mem, to reg.VecVirtual), store func(i int, from reg.VecVirtual, to Mem)) {
		dots, means := s.vecs(w), s.vecs(w)
		var sums []reg.VecVirtual
		if two {
			sums = s.vecs(w)
		}
		for i := range w {
			s.zero(dots[i])
			if two {
				s.zero(sums[i])
			}
			load(i, Mem{Base: mean, Disp: 32 * i}, means[i])
		}
		MOVQ(a, pa)
		if two {
			MOVQ(g, pg)
		}
		MOVQ(load64("rows"), n)
		Label(l + "loop")
		for i := range w {
			v, u := s.vec(), s.vec()
			load(i, Mem{Base: pa, Disp: 32 * i}, v)
			VSUBPS(means[i], v, v)
			if two {
				load(i, Mem{Base: pg, Disp: 32 * i}, u)
				VADDPS(u, sums[i], sums[i])
				VMULPS(u, v, v)
			} else {
				VMULPS(v, v, v)
			}
			VADDPS(v, dots[i], dots[i])
		}
		ADDQ(lda, pa)
		if two {
			ADDQ(ldg, pg)
		}
		DECQ(n)
		JNZ(LabelRef(l + "loop"))
		for i := range w {
			store(i, dots[i], Mem{Base: d, Disp: 32 * i})
			if two {
				store(i, sums[i], Mem{Base: sum, Disp: 32 * i})
			}
		}
	}
	floatColumns(s, left, 4, pointers, body)
	VZEROUPPER()
	RET()
}

// perColumn emits a kernel for one row whose coefficients differ by column.
func perColumn(name, doc string, backward bool) {
	s := avx2
	name += s.name
	names := []string{"d", "a", "mean", "scale", "shift"}
	if backward {
		names = append(names, "dy", "slope")
	}
	list := ""
	for _, p := range names {
		list += p + ", "
	}
	TEXT(name, NOSPLIT, "func("+list[:len(list)-2]+" *float32, n int)")
	Pragma("noescape")
	Doc(name + " computes " + doc + " over n > 0 columns.")
	at := map[string]reg.GPVirtual{}
	for _, p := range names {
		at[p] = load64(p)
	}
	n := load64("n")
	body := func(load func(from Mem, to reg.VecVirtual), store func(from reg.VecVirtual, to Mem)) {
		v, t := s.vec(), s.vec()
		get := func(name string, to reg.VecVirtual) { load(Mem{Base: at[name]}, to) }
		get("a", v)
		get("mean", t)
		VSUBPS(t, v, v)
		if backward {
			u := s.vec()
			get("slope", t)
			VMULPS(t, v, v)
			get("dy", u)
			get("scale", t)
			VMULPS(t, u, u)
			VADDPS(v, u, v)
		} else {
			get("scale", t)
			VMULPS(t, v, v)
		}
		get("shift", t)
		VADDPS(t, v, v)
		store(v, Mem{Base: at["d"]})
	}
	Label("loop")
	CMPQ(n, Imm(8))
	JLT(LabelRef("rest"))
	body(func(from Mem, to reg.VecVirtual) { VMOVUPS(from, to) }, func(from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
	for _, p := range names {
		ADDQ(Imm(32), at[p])
	}
	SUBQ(Imm(8), n)
	JMP(LabelRef("loop"))
	Label("rest")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	m := s.newMask(n, 1)
	body(func(from Mem, to reg.VecVirtual) { m.load(0, from, to) }, func(from reg.VecVirtual, to Mem) { m.store(0, from, to) })
	Label("done")
	VZEROUPPER()
	RET()
}
