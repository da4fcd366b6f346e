// Command cpu generates the assembly kernels of package compute/cpu, one family
// at a time: every kernel from one description that is parametrised by the
// instruction set.
package main

import (
	"flag"
	"log"
	"maps"
	"slices"

	. "github.com/mmcloughlin/avo/build"
)

// families emit the kernels of a file each.
var families = map[string]func(){
	"gemm":      gemms,
	"aggregate": aggregates,
	"attention": attention,
	"bf16":      bf16,
	"element":   elements,
	"norm":      norms,
}

func main() {
	family := flag.String("family", "", "kernels to generate")
	flag.Parse()
	emit := families[*family]
	if emit == nil {
		log.Fatalf("-family is %q; it must be one of %q", *family, slices.Sorted(maps.Keys(families)))
	}
	ConstraintExpr("amd64")
	emit()
	Generate()
}
