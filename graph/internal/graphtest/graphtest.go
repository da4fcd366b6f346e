// Package graphtest has what the tests of graph and of the packages below it share.
package graphtest

import (
	"os"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Everything returns a small dataset that has every array a store can hold.
func Everything(t testing.TB) *graph.Dataset {
	t.Helper()
	g, err := graph.FromEdges(5, []uint32{4, 0, 1, 1, 3}, []uint32{0, 1, 0, 0, 2}, []float32{.5, 1, 2, 3, -4})
	if err != nil {
		t.Fatal(err)
	}
	return &graph.Dataset{
		Name:  "everything",
		Graph: g,
		NodeFeatures: &graph.Features{Rows: 5, Cols: 3, DType: graph.Int8, Stride: 3, Data: []byte("abcdefghijklmno"),
			RowScale: []float32{1, 2, 3, 4, 5}, ColScale: []float32{.5, .25, 2}},
		EdgeFeatures: &graph.Features{Rows: 5, Cols: 1, DType: graph.Int8, Stride: 2, Data: []byte{1, 9, 2, 9, 3, 9, 4, 9, 5, 9},
			RowScale: []float32{1, 1, 1, 1, 2}, ColScale: []float32{3}},
		Labels: &graph.Labels{NumClasses: 3, Class: []int32{2, 0, 1, graph.Unlabeled, 2}},
		Train:  []uint32{0, 2}, Valid: []uint32{1}, Test: []uint32{4},
		NodeTimes: []int64{5, -3, 0, 1 << 40, 2}, EdgeTimes: []int64{9, 8, 7, 6, 5},
	}
}

// OnlyContains fails when dir has other entries than the named ones.
func OnlyContains(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, names)
	}
}
