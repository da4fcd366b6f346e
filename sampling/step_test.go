package sampling

import (
	"math"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// Steps of any number of walks are those of one walk after another, also at nodes without neighbours.
func TestStepsEqualTheirTwins(t *testing.T) {
	g := skewed(500, 40, 8)
	for n := range 40 {
		key := rng.New(9, uint64(n))
		padded := (n + 7) &^ 7
		at, keys := make([]uint32, n), make([]rng.Key, padded)
		for i := range at {
			at[i] = uint32(key.Uintn(uint64(i), 500))
			keys[i] = key.With(uint64(i))
		}
		ends, pos := make([]int64, 2*padded), make([]int64, padded)
		wantEnds, wantPos, wantAt := slices.Clone(ends), slices.Clone(pos), slices.Clone(at)
		rowEnds(ends, g.Indptr, at)
		rowEndsGo(wantEnds, g.Indptr, wantAt)
		if !slices.Equal(ends, wantEnds) {
			t.Fatalf("%d walks: the rows end at %v, want %v", n, ends, wantEnds)
		}
		places(pos, ends, keys, 5)
		placesGo(wantPos, ends, keys, 5)
		if !slices.Equal(pos, wantPos) {
			t.Fatalf("%d walks: the places are %v, want %v", n, pos, wantPos)
		}
		follow(at, g.Indices, pos)
		followGo(wantAt, g.Indices, pos)
		if !slices.Equal(at, wantAt) {
			t.Fatalf("%d walks: they are at %v, want %v", n, at, wantAt)
		}
	}
}

// Rows may begin anywhere and have any length.
func TestPlacesOfLongRows(t *testing.T) {
	key := rng.New(10)
	const n = 1 << 12
	ends, pos, want, keys := make([]int64, 2*n), make([]int64, n), make([]int64, n), make([]rng.Key, n)
	for i := range keys {
		k := key.With(uint64(i))
		keys[i] = k
		ends[2*i] = int64(k.Uint64(0) >> (2 + k.Uintn(1, 62)))
		ends[2*i+1] = ends[2*i] + int64(k.Uint64(2)>>(2+k.Uintn(3, 62)))
	}
	ends[1] = ends[0] + math.MaxUint32
	ends[3] = ends[2] + math.MaxUint32 + 1
	for draw := range uint64(3) {
		places(pos, ends, keys, draw)
		placesGo(want, ends, keys, draw)
		for i, p := range pos {
			if p != want[i] {
				t.Fatalf("draw %d of the row from %d to %d: entry %d, want %d", draw, ends[2*i], ends[2*i+1], p, want[i])
			}
		}
	}
}

func TestWalksInAnEmptyGraph(t *testing.T) {
	g := fromRows(nil, nil, nil)
	var b Batch
	if err := mustPrepare(t, Spec{Name: "pinsage", Fanouts: []int{2}}, g).NewSampler().Sample(&b, 1, []uint32{2, 0}); err != nil {
		t.Fatal(err)
	}
	if b.NumEdges() != 0 || !slices.Equal(b.Inputs(), []uint32{2, 0}) {
		t.Errorf("%d edges, inputs %v; want none, and the seeds", b.NumEdges(), b.Inputs())
	}
}
