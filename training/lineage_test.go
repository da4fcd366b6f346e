package training

import (
	"slices"
	"testing"
)

// What is cut of a lineage leaves one that leads to where it was cut.
func TestCut(t *testing.T) {
	whole := []Run{{2, 0, 5}, {7, 5, 6}, {9, 6, 8}}
	for _, c := range []struct {
		next int64
		want []Run
	}{
		{9, whole},
		{8, whole},
		{7, []Run{{2, 0, 5}, {7, 5, 6}, {9, 6, 7}}},
		{5, []Run{{2, 0, 5}}},
		{1, []Run{{2, 0, 1}}},
		{0, nil},
	} {
		got := Cut(slices.Clone(whole), c.next)
		if !slices.Equal(got, c.want) || !Chained(got, min(c.next, 8)) || FirstOf(got, c.next) != 0 {
			t.Errorf("before %d: %v, not %v", c.next, got, c.want)
		}
	}
	if got := Extend(Extend(slices.Clone(whole), 9, 8), 11, 9); !slices.Equal(got, append(slices.Clone(whole[:2]), Run{9, 6, 9}, Run{11, 9, 10})) {
		t.Errorf("two steps more make it %v", got)
	}
	for _, bad := range [][]Run{{{2, -1, 5}}, {{2, 0, 5}, {7, 6, 8}}, {{2, 0, 0}, {7, 0, 8}}, {{2, 0, 7}}} {
		if Chained(bad, 8) {
			t.Errorf("%v leads to step 8", bad)
		}
	}
}
