// Command cpu generates the assembly kernels of package compute/cpu: every
// kernel once for AVX2 and once for AVX-512, from one description that is
// parametrised by the instruction set.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("amd64")
	tables()
	constantTable()
	for _, s := range []isa{avx2, avx512} {
		gemm(s)
		aggregate(s)
	}
	bf16()
	fetch()
	packRows()
	offsets()
	elements()
	norms()
	attention()
	Generate()
}
