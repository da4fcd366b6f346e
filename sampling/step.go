package sampling

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/rng"
)

// A step of many walks is three loops. Two do nothing but load, from places that are known before and without a branch that
// a load decides, so that the loads of many walks overlap; the one between them does nothing but compute.

// rowEnds sets ends[2i] and ends[2i+1] to where the row of at[i] begins and ends.
func rowEnds(ends, indptr []int64, at []uint32) {
	if simd && len(at) > 0 {
		rowEndsSSE(&ends[0], &indptr[0], &at[0], len(at))
		return
	}
	rowEndsGo(ends, indptr, at)
}

func rowEndsGo(ends, indptr []int64, at []uint32) {
	for i, u := range at {
		ends[2*i], ends[2*i+1] = indptr[u], indptr[u+1]
	}
}

// places draws an entry of each row, from ends[2i] to ends[2i+1], by a draw of keys[i]: pos[i] is its position, -1 if the
// row is empty. There are a multiple of 8 rows.
func places(pos, ends []int64, keys []rng.Key, draw uint64) {
	if simd512 && len(pos) > 0 {
		placesAVX512(&pos[0], &ends[0], (*uint64)(&keys[0]), len(pos), draw)
		return
	}
	placesGo(pos, ends, keys, draw)
}

func placesGo(pos, ends []int64, keys []rng.Key, draw uint64) {
	for i, k := range keys {
		pos[i] = -1
		if d := ends[2*i+1] - ends[2*i]; d != 0 {
			pos[i] = ends[2*i] + int64(k.Uintn(draw, uint64(d)))
		}
	}
}

// follow sets at[i] to the entry at pos[i], unless that is -1.
func follow(at, indices []uint32, pos []int64) {
	if simd && len(at) > 0 {
		followCMOV(&at[0], unsafe.SliceData(indices), &pos[0], len(at))
		return
	}
	followGo(at, indices, pos)
}

func followGo(at, indices []uint32, pos []int64) {
	for i := range at {
		if p := pos[i]; p >= 0 {
			at[i] = indices[p]
		}
	}
}
