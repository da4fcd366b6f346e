package parts

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Pieces are dealt to nodes that hold them, at the least sum of squares that there is of all dealings.
func TestEven(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		holders, nodes := make([][]int, 1+r.IntN(6)), 1+r.IntN(5)
		for i := range holders {
			for n := range nodes {
				if r.IntN(5) < 2 {
					holders[i] = append(holders[i], n)
				}
			}
		}
		cost := func(dealt []int) (sum int) {
			has := make([]int, nodes)
			for i, n := range dealt {
				if n < 0 && len(holders[i]) == 0 {
					continue
				}
				if !slices.Contains(holders[i], n) {
					t.Fatalf("piece %d of %v is dealt to %d", i, holders, n)
				}
				has[n]++
			}
			for _, k := range has {
				sum += k * k
			}
			return sum
		}
		dealt := make([]int, len(holders))
		least := -1
		var try func(i int)
		try = func(i int) {
			if i == len(holders) {
				if c := cost(dealt); least < 0 || c < least {
					least = c
				}
				return
			}
			dealt[i] = -1
			for _, n := range holders[i] {
				dealt[i] = n
				try(i + 1)
			}
			if len(holders[i]) == 0 {
				try(i + 1)
			}
		}
		try(0)
		if got := even(holders, nodes); cost(got) != least {
			t.Fatalf("pieces of %v on %d nodes are dealt %v, of %d; want %d", holders, nodes, got, cost(got), least)
		}
	}
}
