package parquet

import (
	"errors"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A structure is walked through as the library writes it, to its end; cut off it is refused.
func TestStructure(t *testing.T) {
	h := format.PageHeader{Type: format.DataPage, UncompressedPageSize: 70000, CompressedPageSize: 300}
	h.DataPageHeader.Valid, h.DataPageHeader.V.NumValues = true, 77
	h.DataPageHeader.V.Statistics.MinValue = []byte("some text")
	b, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
	if err != nil {
		t.Fatal(err)
	}
	got := map[[2]int]int64{}
	n, err := structure(append(b, 1, 2, 3), func(outer, field int, x int64) { got[[2]int{outer, field}] = x })
	if err != nil || n != len(b) || got[[2]int{0, 2}] != 70000 || got[[2]int{0, 3}] != 300 || got[[2]int{5, 1}] != 77 {
		t.Fatalf("%d of %d bytes: %v, %v", n, len(b), got, err)
	}
	for cut := range b {
		if _, err := structure(b[:cut], func(int, int, int64) {}); !errors.Is(err, errShort) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	many := []byte{0x19, 0xfc, 0xff, 0xff, 0x7f, 0} // a list of 2,097,151 structures
	if _, err := structure(many, func(int, int, int64) {}); err == nil || errors.Is(err, errShort) {
		t.Fatal(err)
	}
	deep := make([]byte, 100)
	for i := range deep {
		deep[i] = 0x1c // a structure whose first field is a structure
	}
	if _, err := structure(deep, func(int, int, int64) {}); err == nil || errors.Is(err, errShort) {
		t.Fatal(err)
	}
}
