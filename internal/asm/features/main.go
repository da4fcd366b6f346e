// Command features generates the kernels of package graph/features: rows copied
// from where they lie to their slots, and prefetching for the slab's tables.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ahead is how many rows before its turn a row is prefetched.
const ahead = 12

func main() {
	ConstraintExpr("amd64")
	rows("copyRowsAVX2", "copyRowsAVX2 copies size >= 32 bytes of row ids[i] of src to row slots[i] of dst, for i in [0, n), and prefetches the rows of ids[0:m], m >= n > 0. Rows are lds and ldd bytes apart.", false)
	rows("streamRowsAVX2", "streamRowsAVX2 is copyRowsAVX2 past the caches: size, ldd and dst are multiples of 32.", true)
	fetch()
	Generate()
}

// fetch emits the loop that prefetches elements by their index.
func fetch() {
	TEXT("fetch", NOSPLIT, "func(base *byte, index *uint32, n, size, less int)")
	Pragma("noescape")
	Doc("fetch prefetches the cache line of byte index[i]*size-less of base, for i in [0, n), n > 0.")
	base, index := Load(Param("base"), GP64()), Load(Param("index"), GP64())
	n, size, less := Load(Param("n"), GP64()), Load(Param("size"), GP64()), Load(Param("less"), GP64())
	SUBQ(less, base)
	at := GP64()
	Label("loop")
	MOVL(Mem{Base: index}, at.As32())
	IMULQ(size, at)
	PREFETCHT0(Mem{Base: base, Index: at, Scale: 1})
	ADDQ(Imm(4), index)
	DECQ(n)
	JNZ(LabelRef("loop"))
	RET()
}

func rows(name, doc string, stream bool) {
	TEXT(name, NOSPLIT, "func(dst *byte, ldd int, src *byte, lds int, slots, ids *uint32, n, m, size int)")
	Pragma("noescape")
	Doc(doc)
	dst, ldd := Load(Param("dst"), GP64()), Load(Param("ldd"), GP64())
	src, lds := Load(Param("src"), GP64()), Load(Param("lds"), GP64())
	slots, ids := Load(Param("slots"), GP64()), Load(Param("ids"), GP64())
	n, m, size := Load(Param("n"), GP64()), Load(Param("m"), GP64()), Load(Param("size"), GP64())
	DECQ(m) // the last row to prefetch
	i := GP64()
	XORQ(i, i)

	Label("row")
	p, at := GP64(), GP64()
	LEAQ(Mem{Base: i, Disp: ahead}, at)
	CMPQ(at, m)
	CMOVQGT(m, at)
	MOVL(Mem{Base: ids, Index: at, Scale: 4}, p.As32())
	IMULQ(lds, p)
	ADDQ(src, p)
	XORQ(at, at)
	Label("fetch")
	PREFETCHT0(Mem{Base: p, Index: at, Scale: 1})
	ADDQ(Imm(64), at)
	CMPQ(at, size)
	JLT(LabelRef("fetch"))

	from, to := GP64(), GP64()
	MOVL(Mem{Base: ids, Index: i, Scale: 4}, from.As32())
	IMULQ(lds, from)
	ADDQ(src, from)
	MOVL(Mem{Base: slots, Index: i, Scale: 4}, to.As32())
	IMULQ(ldd, to)
	ADDQ(dst, to)
	left := GP64()
	MOVQ(size, left)
	store := func(v reg.Register, to Mem) {
		if stream {
			VMOVNTDQ(v, to)
		} else {
			VMOVDQU(v, to)
		}
	}
	move := func(disp int) {
		v := YMM()
		VMOVDQU(Mem{Base: from, Disp: disp}, v)
		store(v, Mem{Base: to, Disp: disp})
	}
	SUBQ(Imm(128), left)
	JLT(LabelRef("rest"))
	Label("block")
	for d := 0; d < 128; d += 32 {
		move(d)
	}
	ADDQ(Imm(128), from)
	ADDQ(Imm(128), to)
	SUBQ(Imm(128), left)
	JGE(LabelRef("block"))
	Label("rest")
	ADDQ(Imm(128), left)
	Label("vector")
	CMPQ(left, Imm(32))
	JLT(LabelRef("tail"))
	move(0)
	ADDQ(Imm(32), from)
	ADDQ(Imm(32), to)
	SUBQ(Imm(32), left)
	JMP(LabelRef("vector"))
	Label("tail")
	if !stream { // the last 32 bytes of the row, some of them again
		TESTQ(left, left)
		JZ(LabelRef("next"))
		v := YMM()
		VMOVDQU(Mem{Base: from, Index: left, Scale: 1, Disp: -32}, v)
		VMOVDQU(v, Mem{Base: to, Index: left, Scale: 1, Disp: -32})
	}
	Label("next")
	INCQ(i)
	CMPQ(i, n)
	JLT(LabelRef("row"))
	if stream {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}
