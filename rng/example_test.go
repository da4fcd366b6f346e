package rng_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/rng"
)

// A draw depends on its key and counter alone, not on the draws before it.
func ExampleKey() {
	batch := rng.New(42, 3, 17) // seed, epoch, batch
	for _, node := range []uint64{5, 7} {
		k := batch.With(node)
		fmt.Println(k.Uintn(0, 100), k.Uintn(1, 100))
	}
	fmt.Println(rng.New(42, 3, 17, 7).Uintn(1, 100))
	// Output:
	// 69 2
	// 14 16
	// 16
}
