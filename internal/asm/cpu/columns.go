package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns is the loop over the columns of a row, in groups of vectors: the
// widest group as often as it fits, then narrower ones, then the rest.
type columns struct {
	left     reg.GPVirtual // columns to go
	advance  func(columns int)
	group    func(label string, n int)
	rest     func() // the last columns, fewer than a vector
	lanes    int
	widest   int
	restLoop bool // rest does one column
}

func (c columns) emit() {
	for n := c.widest; n > 0; n /= 2 {
		l := fmt.Sprintf("group%d", n)
		w := uint32(n * c.lanes)
		Label(l)
		CMPQ(c.left, U32(w))
		JLT(LabelRef("end" + l))
		c.group(l, n)
		c.advance(n * c.lanes)
		SUBQ(U32(w), c.left)
		if n == c.widest {
			JMP(LabelRef(l))
		}
		Label("end" + l)
	}
	TESTQ(c.left, c.left)
	JZ(LabelRef("endrow"))
	Label("rest")
	c.rest()
	if c.restLoop {
		c.advance(1)
		DECQ(c.left)
		JNZ(LabelRef("rest"))
	}
	Label("endrow")
}

// floatColumns is columns over rows of float32 at pointers, which advance
// together. Body emits a group of w vectors, with what loads and stores one.
func floatColumns(s isa, left reg.GPVirtual, widest int, pointers []reg.GPVirtual, body func(label string, w int, load func(i int, from Mem, to reg.VecVirtual), store func(i int, from reg.VecVirtual, to Mem))) {
	columns{
		left: left, lanes: s.lanes(), widest: widest,
		advance: func(c int) {
			for _, p := range pointers {
				ADDQ(U32(uint32(4*c)), p)
			}
		},
		group: func(l string, w int) {
			body(l, w, func(_ int, from Mem, to reg.VecVirtual) { VMOVUPS(from, to) },
				func(_ int, from reg.VecVirtual, to Mem) { VMOVUPS(from, to) })
		},
		rest: func() {
			m := s.newMask(left, 1)
			body("rest", 1, m.load, m.store)
		},
	}.emit()
}
