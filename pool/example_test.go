package pool_test

import (
	"fmt"

	"github.com/gnnactor/gnnactor/pool"
)

func ExamplePool_For() {
	p := pool.New(4)
	defer p.Close()
	sums := make([]int, 3)
	p.For(len(sums), func(_, chunk int) { // each chunk once, by any worker
		for i := range 10 {
			sums[chunk] += 10*chunk + i
		}
	})
	fmt.Println(sums)
	// Output: [45 145 245]
}

// Who stops a worker's panic learns what it was.
func ExampleRecovered() {
	err := pool.Recovered(func() error { panic("no such row") })
	fmt.Println(err)
	// Output: panic: no such row
}
