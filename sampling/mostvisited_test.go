package sampling

import (
	"cmp"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// The most visited nodes are what sorting finds, in rows that kernels count and in longer ones.
func TestMostVisited(t *testing.T) {
	var c, portable visitCounter
	for round := range 3000 {
		key := rng.New(11, uint64(round))
		n := int(key.Uintn(0, mostVisits+20))
		if round < mostVisits+2 {
			n = round
		}
		k := 1 + int(key.Uintn(1, 20))
		visits := make([]uint32, n)
		spread := 1 + key.Uintn(2, 1<<key.Uintn(3, 9))
		for i := range visits {
			visits[i] = -uint32(key.Uintn(uint64(4+i), spread)) // the largest numbers, too
		}
		home := -uint32(key.Uintn(900, spread))
		var want []visited
		for _, u := range visits {
			if i := slices.IndexFunc(want, func(w visited) bool { return w.node == u }); i >= 0 {
				want[i].times++
			} else if u != home {
				want = append(want, visited{u, 1})
			}
		}
		slices.SortStableFunc(want, func(a, b visited) int { return cmp.Compare(b.times, a.times) })
		want = want[:min(k, len(want))]
		if got := portable.mostGo(slices.Clone(visits), home, k); !slices.Equal(got, want) {
			t.Fatalf("%d most visited of %v but %d: %v without a kernel, want %v", k, visits, home, got, want)
		}
		if got := c.most(visits, home, k); !slices.Equal(got, want) {
			t.Fatalf("%d most visited of %v but %d: %v, want %v", k, visits, home, got, want)
		}
	}
}
