// Command limits generates the kernels of package limits: the loops of a
// machine's limits, with nothing in them that the limit is not about.
package main

import (
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	chains = 12  // independent sums: more than a multiply-add's latency times its rate
	row    = 512 // bytes of a row
)

func main() {
	ConstraintExpr("amd64")
	fma("fma256", 8, YMM)
	fma("fma512", 16, ZMM)
	read()
	rows("gatherRows", "gatherRows adds up rows ids[0:n] of table, rows of 512 bytes", false)
	rows("copyRows", "copyRows copies rows ids[0:n] of table, rows of 512 bytes, to dense", true)
	Generate()
}

// fma emits iterations of one multiply-add in every chain.
func fma(name string, lanes int, vector func() reg.VecVirtual) {
	TEXT(name, NOSPLIT, "func(sink, factors *float32, n int)")
	Pragma("noescape")
	Doc(name + " takes n > 0 steps a = a*factors[0] + factors[1], from a = factors[1], in 12 vectors, and writes their sum to sink[0:" + strconv.Itoa(lanes) + "].")
	sink, factors, n := Load(Param("sink"), GP64()), Load(Param("factors"), GP64()), Load(Param("n"), GP64())
	m, c := vector(), vector()
	VBROADCASTSS(Mem{Base: factors}, m)
	VBROADCASTSS(Mem{Base: factors, Disp: 4}, c)
	a := make([]reg.VecVirtual, chains)
	for i := range a {
		a[i] = vector()
		VMOVAPS(c, a[i])
	}
	Label("loop")
	for i := range a {
		VFMADD213PS(c, m, a[i])
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	store(a, sink)
}

// store adds the sums up and writes them.
func store(a []reg.VecVirtual, sink reg.Register) {
	for _, v := range a[1:] {
		VADDPS(v, a[0], a[0])
	}
	VMOVUPS(a[0], Mem{Base: sink})
	VZEROUPPER()
	RET()
}

func zeros(n int) []reg.VecVirtual {
	s := make([]reg.VecVirtual, n)
	for i := range s {
		s[i] = YMM()
		VXORPS(s[i], s[i], s[i])
	}
	return s
}

func read() {
	TEXT("readBlocks", NOSPLIT, "func(sink, p *float32, n int)")
	Pragma("noescape")
	Doc("readBlocks adds n > 0 blocks of 128 bytes from p on up, column by column, and writes sums to sink[0:8].")
	sink, p, n := Load(Param("sink"), GP64()), Load(Param("p"), GP64()), Load(Param("n"), GP64())
	s := zeros(4)
	Label("loop")
	for i, v := range s {
		VADDPS(Mem{Base: p, Disp: 32 * i}, v, v)
	}
	ADDQ(Imm(128), p)
	DECQ(n)
	JNZ(LabelRef("loop"))
	store(s, sink)
}

// rows emits the loop over rows that are fetched 16 ahead.
func rows(name, doc string, dense bool) {
	const ahead = 16
	to, ends := "sink", ", and writes sums to sink[0:8]"
	if dense {
		to, ends = "dense", ""
	}
	TEXT(name, NOSPLIT, "func("+to+", table *float32, ids *uint32, n int)")
	Pragma("noescape")
	Doc(doc+ends+".", "It reads ids[0:n+16], fetches these rows ahead of their use, and needs n > 0.")
	dst, table := Load(Param(to), GP64()), Load(Param("table"), GP64())
	ids, n := Load(Param("ids"), GP64()), Load(Param("n"), GP64())
	var s []reg.VecVirtual
	if !dense {
		s = zeros(8)
	}
	v := YMM()
	next, now := GP64(), GP64()
	Label("loop")
	MOVL(Mem{Base: ids, Disp: 4 * ahead}, next.As32())
	SHLQ(Imm(9), next)
	MOVL(Mem{Base: ids}, now.As32())
	SHLQ(Imm(9), now)
	for i := 0; i < row; i += 64 {
		PREFETCHT0(Mem{Base: table, Index: next, Scale: 1, Disp: i})
	}
	for i := range row / 32 {
		from := Mem{Base: table, Index: now, Scale: 1, Disp: 32 * i}
		if dense {
			VMOVUPS(from, v)
			VMOVUPS(v, Mem{Base: dst, Disp: 32 * i})
		} else {
			VADDPS(from, s[i%8], s[i%8])
		}
	}
	if dense {
		ADDQ(U32(row), dst)
	}
	ADDQ(Imm(4), ids)
	DECQ(n)
	JNZ(LabelRef("loop"))
	if dense {
		VZEROUPPER()
		RET()
		return
	}
	store(s, dst)
}
