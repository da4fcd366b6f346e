package graph

import "testing"

func TestSymmetric(t *testing.T) {
	for _, c := range []struct {
		name    string
		indptr  []int64
		indices []uint32
		want    bool
	}{
		{"no nodes", []int64{0}, nil, true},
		{"no edges", []int64{0, 0, 0}, nil, true},
		{"a triangle", []int64{0, 2, 4, 6}, []uint32{1, 2, 0, 2, 0, 1}, true},
		{"a loop", []int64{0, 1}, []uint32{0}, true},
		{"two parallel edges each way", []int64{0, 2, 4}, []uint32{1, 1, 0, 0}, true},
		{"two one way, one the other", []int64{0, 2, 3}, []uint32{1, 1, 0}, false},
		{"an edge without reverse", []int64{0, 1, 1}, []uint32{1}, false},
		{"a cycle", []int64{0, 1, 2, 3}, []uint32{1, 2, 0}, false},
		{"rows out of order", []int64{0, 2, 4, 6}, []uint32{2, 1, 0, 2, 0, 1}, false},
	} {
		if got := (&Graph{Indptr: c.indptr, Indices: c.indices}).Symmetric(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
