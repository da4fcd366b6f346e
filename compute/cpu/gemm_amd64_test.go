package cpu

import (
	"testing"
	"unsafe"
)

// TestStream checks that tiles go on in a stream where the one before stopped: after
// all fetches it stands where a row after the last would begin, and has been given no
// fetch more than there are lines.
func TestStream(t *testing.T) {
	if !AVX512.Supported() {
		t.Skip("this processor has no AVX-512")
	}
	const ld, rows, bytes = 1000, 9, 500
	data := make([]float32, 1<<16) // too large for a stack, which may move
	// From 40 bytes into a line on, a row of 500 touches one pair of lines more.
	for uintptr(unsafe.Pointer(&data[0]))%64 != 40 {
		data = data[1:]
	}
	b, c := make([]float32, 32*256), make([]float32, 14*32)
	for _, kc := range []int{3, 4, 64, 255, 256} {
		for _, tiles := range []int{1, 3, 50} {
			var l lookahead
			l.fetchA(&data[0], rows, ld, bytes, tiles)
			start, total := l.a, l.a.total
			first := uintptr(unsafe.Pointer(&data[0]))
			if off := int(first - start.p); off < 0 || off > 63 || start.p%64 != 0 || total != rows*ceilDiv(off+bytes, 128) {
				t.Fatalf("%d fetches from %#x on, of rows from %#x on", total, start.p, first)
			}
			if l.next(false) != (*int64)(unsafe.Pointer(&l.none)) || l.none.budget != 0 || l.a.total != total {
				t.Errorf("a tile that does not fetch was given some of the stream")
			}
			fetched := 0
			for range tiles {
				given := l.next(true)
				if given == (*int64)(unsafe.Pointer(&l.a)) {
					fetched += min(l.a.budget, kc/4)
				}
				tile14x32AVX512(kc, &data[0], 4, 0, &b[0], &c[0], 128, 32, nil, 0, given)
			}
			if l.a.total != 0 || l.next(true) != (*int64)(unsafe.Pointer(&l.none)) || l.none.budget != 0 {
				t.Errorf("%d tiles: %d fetches left", tiles, l.a.total)
			}
			at, left := start.p, start.pairs
			for range fetched {
				at += linePair
				if left--; left == 0 {
					left = start.pairs
					at += uintptr(start.wrap)
				}
			}
			if l.a.p != at || l.a.left != left {
				t.Errorf("%d tiles of %d terms: the stream is at %+d with %d left of a row, not at %+d with %d", tiles, kc, l.a.p-start.p, l.a.left, at-start.p, left)
			}
			if fetched == total && at != start.p+rows*ld {
				t.Errorf("all was fetched, and the stream stands %d bytes from its start", at-start.p)
			}
		}
	}
}

// TestTiling checks that tiles fill any number of rows, at no more than what the
// tallest that fit would cost, and that tall counts those that next gives.
func TestTiling(t *testing.T) {
	for _, l := range []*tiling{&tilesAVX2, &tilesAVX512, &thirdsAVX512} {
		leastRows := 4
		if l == &thirdsAVX512 {
			leastRows = 3
		}
		most := l.heights[0].rows
		for i, h := range l.heights[1:] {
			if h.rows >= l.heights[i].rows {
				t.Errorf("a tile of %d rows after one of %d", h.rows, l.heights[i].rows)
			}
		}
		for rows := 1; rows < 5*most; rows++ {
			cost, greedy := 0, 0
			for left := rows; left > 0; {
				n := 0
				for at := left; at > 0 && n < packedTiles && l.next(at).rows == most; at -= most {
					n++
				}
				if got := l.tall(left, packedTiles); got != n {
					t.Fatalf("%d rows of tiles of %d: %d tall ones, not %d", left, most, n, got)
				}
				h := l.next(left).rows
				if h > left {
					t.Fatalf("%d rows: a tile of %d", left, h)
				}
				cost, left = cost+max(h, leastRows), left-h
			}
			for left, h := rows, 0; left > 0; {
				if r := l.heights[h].rows; r <= left {
					greedy, left = greedy+max(r, leastRows), left-r
				} else {
					h++
				}
			}
			if cost > greedy {
				t.Errorf("%d rows cost %d, and %d with the tallest tiles that fit", rows, cost, greedy)
			}
			if most > 6 && rows >= 2*most && cost > rows {
				t.Errorf("%d rows in tiles of at most %d cost %d", rows, most, cost)
			}
		}
	}
}
