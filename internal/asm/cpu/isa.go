package main

import (
	"sync"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: its vectors and how it masks.
type isa struct {
	name  string // suffix of kernel names
	bytes int    // of a vector
	wide  bool   // AVX-512: 32 registers, k masks
}

var (
	avx2   = isa{name: "AVX2", bytes: 32}
	avx512 = isa{name: "AVX512", bytes: 64, wide: true}
)

// lanes is the number of float32 values in a vector.
func (s isa) lanes() int { return s.bytes / 4 }

func (s isa) vec() reg.VecVirtual {
	if s.wide {
		return ZMM()
	}
	return YMM()
}

func (s isa) vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = s.vec()
	}
	return v
}

func (s isa) zero(v reg.VecVirtual) {
	if s.wide {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

// maskTable holds 16 words of ones followed by 16 of zeros: a load that starts
// 4·(16-w) bytes in yields w ones and then zeros. Files without masks have none.
var maskTable = sync.OnceValue(func() Mem {
	table := GLOBL("maskTable", RODATA|NOPTR)
	for i := range 32 {
		v := uint32(0)
		if i < 16 {
			v = 0xffffffff
		}
		DATA(i*4, U32(v))
	}
	return table
})

// mask selects the first columns of a row of up to n vectors.
type mask struct {
	s isa
	v []reg.VecVirtual // AVX2
	k []reg.OpmaskVirtual
}

// newMask emits the mask of the first w columns of n vectors, 1 <= w <=
// n·lanes.
func (s isa) newMask(w reg.GPVirtual, n int) mask {
	m := mask{s: s}
	if !s.wide {
		p, q := GP64(), GP64()
		LEAQ(maskTable(), p)
		MOVQ(U32(16), q)
		SUBQ(w, q)
		for i := range n {
			v := YMM()
			VMOVDQU(Mem{Base: p, Index: q, Scale: 4, Disp: 32 * i}, v)
			m.v = append(m.v, v)
		}
		return m
	}
	bits := GP64()
	MOVQ(U64(0xffffffffffffffff), bits)
	BZHIQ(w, bits, bits)
	for range n {
		k := K()
		KMOVW(bits.As32(), k)
		m.k = append(m.k, k)
		SHRQ(Imm(16), bits)
	}
	return m
}

// load loads vector i of a row, zero where masked out.
func (m mask) load(i int, from Mem, to reg.VecVirtual) {
	if m.s.wide {
		VMOVUPS_Z(from, m.k[i], to)
	} else {
		VMASKMOVPS(from, m.v[i], to)
	}
}

// store stores vector i of a row where it is not masked out.
func (m mask) store(i int, from reg.VecVirtual, to Mem) {
	if m.s.wide {
		VMOVUPS(from, m.k[i], to)
	} else {
		VMASKMOVPS(from, m.v[i], to)
	}
}
