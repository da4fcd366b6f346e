package cpu

import (
	"testing"
	"unsafe"
)

// TestStream checks that tiles go on in a stream where the one before stopped: after
// all fetches it stands at the columns behind the last, in the first row, and has
// been given no fetch more than there are lines.
func TestStream(t *testing.T) {
	if !AVX512.Supported() {
		t.Skip("this processor has no AVX-512")
	}
	const ld, rows, bytes = 1000, 9, 500
	data := make([]float32, 4096)
	b, c := make([]float32, 32*256), make([]float32, 14*32)
	for _, kc := range []int{3, 4, 64, 255, 256} {
		for _, tiles := range []int{1, 3, 50} {
			var l lookahead
			l.fetchA(&data[5], rows, ld, bytes, tiles)
			start, total := l.a, l.a.total
			first := uintptr(unsafe.Pointer(&data[5]))
			if off := int(first - start.p); off < 0 || off > 63 || start.p%64 != 0 || total != rows*ceilDiv(off+bytes, 128) {
				t.Fatalf("%d fetches from %#x on, of rows from %#x on", total, start.p, first)
			}
			fetched := 0
			for range tiles {
				given := l.next()
				if given == (*int64)(unsafe.Pointer(&l.a)) {
					fetched += min(l.a.budget, kc/4)
				}
				tile14x32AVX512(kc, &data[0], 4, 0, &b[0], &c[0], 128, 32, nil, 0, given)
			}
			if l.a.total != 0 || l.next() != (*int64)(unsafe.Pointer(&l.none)) || l.none.budget != 0 {
				t.Errorf("%d tiles: %d fetches left", tiles, l.a.total)
			}
			at, left := start.p, rows
			for range fetched {
				at += ld
				if left--; left == 0 {
					left = rows
					at += uintptr(start.wrap)
				}
			}
			if l.a.p != at || l.a.left != left {
				t.Errorf("%d tiles of %d terms: the stream is at %+d with %d rows left, not at %+d with %d", tiles, kc, l.a.p-start.p, l.a.left, at-start.p, left)
			}
			if fetched == total && at != start.p+uintptr(total/rows*128) {
				t.Errorf("all was fetched, and the stream stands %d bytes from its start", at-start.p)
			}
		}
	}
}
