package graph

import (
	"math/rand/v2"
	"testing"
)

// The most entries of a chunk are counted where chunks begin, and by no more than the stretches at both ends too many.
func TestMostEntries(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		indptr := make([]int64, 5*stretch+77)
		dense := r.IntN(len(indptr))
		for i := 1; i < len(indptr); i++ {
			if indptr[i] = indptr[i-1] + r.Int64N(4); i >= dense && i < dense+50 {
				indptr[i] += 100
			}
		}
		n, before := int64(len(indptr)-1), (&Graph{Indptr: indptr}).Stretches()
		for _, rows := range []int64{1, 100, stretch, stretch + 1, 700, n, 2 * n} {
			var want, room int64
			for i := int64(0); i < n; i += rows {
				end := min(i+rows, n)
				want = max(want, indptr[end]-indptr[i])
				room = max(room, indptr[min((end+stretch-1)/stretch*stretch, n)]-indptr[i/stretch*stretch])
			}
			if got := MostEntries(before, n, rows); got < want || got > room {
				t.Errorf("seed %d: %d entries of %d rows; there are %d, and %d in whole stretches", seed, got, rows, want, room)
			}
		}
	}
}
