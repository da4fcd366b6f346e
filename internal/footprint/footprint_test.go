package footprint

import (
	"testing"
	"unsafe"
)

type list struct {
	next *list
	data any
	grid [2][]float32
}

func TestBytes(t *testing.T) {
	shared := make([]float64, 3, 5) // 40 bytes
	x := &list{data: [][]int32{make([]int32, 7), nil}, grid: [2][]float32{make([]float32, 4)}}
	header := int64(2 * unsafe.Sizeof([]int32{}))
	x.next = &list{next: x, data: shared}
	seen := Seen{}
	if got, want := seen.Bytes(x), header+7*4+4*4+40; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got := seen.Bytes(&list{data: shared}); got != 0 {
		t.Errorf("%d bytes that were seen before", got)
	}
	if got := (Seen{unsafe.Pointer(x.next): true}).Bytes(x); got != header+7*4+4*4 {
		t.Errorf("%d bytes without those of what is not to be counted", got)
	}
	whole := make([]float32, 10)
	if got, want := (Seen{}).Bytes([2][]float32{whole[2:5], whole}), int64(40); got != want {
		t.Errorf("%d bytes of which some are in two slices, want %d", got, want)
	}
	if got := (Seen{}).Bytes((*list)(nil)); got != 0 {
		t.Errorf("nothing holds %d bytes", got)
	}
}
