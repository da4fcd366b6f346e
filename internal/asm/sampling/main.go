// Command sampling generates the prefetch kernels of package sampling.
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
