package reduce_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/reduce"
)

// Eight micro-batches among three trainers.
func ExampleDeal() {
	for t := range 3 {
		from, to := reduce.Deal(8, 3, t)
		fmt.Println("trainer", t, "computes", from, "to", to-1)
	}
	// Output:
	// trainer 0 computes 0 to 1
	// trainer 1 computes 2 to 4
	// trainer 2 computes 5 to 7
}
