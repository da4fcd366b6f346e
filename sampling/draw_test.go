package sampling

import (
	"math"
	"slices"
	"testing"
)

// A generation that is drawn piece by piece, or to the end by whoever needs it, is
// the one drawn at once: its nodes are those of smallest keys.
func TestDrawingInPieces(t *testing.T) {
	g := skewed(30_000, 300, 3)
	for _, fraction := range []float64{1e-5, 0.01, 0.5, 1} {
		spec := Spec{Fanouts: []int{5}, CacheFraction: fraction}
		whole := gnsOn(t, spec, g, nil).Caches()
		want := whole.At(3)

		d := whole.begin(3)
		for d.step < 2 {
			d.piece()
		}
		sorted := slices.Clone(d.keys)
		slices.Sort(sorted)
		tau := math.Inf(1)
		if whole.size < len(sorted) {
			tau = sorted[whole.size]
		}
		var least []uint32
		for u, k := range d.keys {
			if k < tau {
				least = append(least, uint32(u))
			}
		}
		if !slices.Equal(want.Nodes, least) {
			t.Errorf("fraction %v: the %d nodes of the cache are not the %d of smallest keys", fraction, len(want.Nodes), len(least))
		}

		pieces := gnsOn(t, spec, g, nil).Caches()
		n := 1
		for ; !pieces.Advance(3); n++ {
		}
		if most := pieces.Pieces(); n > most || n < most/2 || n < 6 {
			t.Errorf("fraction %v: drawn in %d pieces, and Pieces is %d", fraction, n, most)
		}
		if !sameCache(pieces.At(3), want) {
			t.Errorf("fraction %v: drawn in pieces, the cache is another one", fraction)
		}
		begun := gnsOn(t, spec, g, nil).Caches()
		for range n / 2 {
			begun.Advance(3)
		}
		if !sameCache(begun.At(3), want) || !begun.Advance(3) {
			t.Errorf("fraction %v: begun in pieces, the cache is another one", fraction)
		}
	}
}

func sameCache(a, b *Cache) bool {
	return a.Generation == b.Generation && slices.Equal(a.Nodes, b.Nodes) && slices.Equal(a.member, b.member) && slices.Equal(a.chance, b.chance) &&
		slices.Equal(a.rank, b.rank) && slices.Equal(a.indptr, b.indptr) && slices.Equal(a.rows, b.rows)
}
