package store

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// A copy of a part of a store's files opens as what there is of the same data, whether the other
// files are there or not, says what the rows of features are like, and finds damage to what it has.
func TestOpenPart(t *testing.T) {
	want := graphtest.Everything(t)
	dir := created(t, want)
	whole := opened(t, dir)
	for parts, files := range map[Part]int{Topology | EdgeValues: 2, NodeValues: 3 + 4, NodeValues | EdgeValues: 3, 0: 3 + 4 + 2} {
		to := t.TempDir()
		for _, name := range whole.Files(parts) {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(to, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(whole.Files(Whole)) - len(whole.Files(parts)); n != files {
			t.Errorf("%b: %d files are of other parts, not %d", parts, n, files)
		}
		if _, err := Open(to); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%b: a part of a store was opened as whole: %v", parts, err)
		}
		s, err := OpenPart(to, parts)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, f := s.Dataset(), s.Dataset().NodeFeatures
		if got.Fingerprint != graphtest.Hash(t, want) || !reflect.DeepEqual(got.Labels, want.Labels) || !reflect.DeepEqual(got.Train, want.Train) || !reflect.DeepEqual(got.NodeTimes, want.NodeTimes) {
			t.Errorf("%b: the data differs: %+v", parts, got)
		}
		if g := got.Graph; g.NumNodes() != want.Graph.NumNodes() || g.NumEdges() != want.Graph.NumEdges() || g.Away() != !s.Has(Topology) ||
			(g.Indices == nil) != g.Away() || (g.Indptr == nil) != g.Away() || (got.EdgeTimes == nil) != g.Away() {
			t.Errorf("%b: the graph is %+v", parts, g)
		}
		if edges := s.Has(EdgeValues); (got.Graph.Weights != nil) != edges || (got.EdgeFeatures != nil) != edges {
			t.Errorf("%b: the edges have weights %v, features %v", parts, got.Graph.Weights, got.EdgeFeatures)
		}
		if (f.Data != nil) != s.Has(NodeValues) || f.Rows != 5 || f.Cols != 3 || f.DType != graph.Int8 || len(f.RowScale) != 5 || !reflect.DeepEqual(f.ColScale, want.NodeFeatures.ColScale) {
			t.Errorf("%b: features: %+v", parts, f)
		}
		if _, _, ok := s.NodeFeaturesFile(); ok != s.Has(NodeValues) || s.Has(Whole) || !whole.Has(Whole) {
			t.Errorf("%b: it says that it has others", parts)
		}
		if err := errors.Join(s.Verify(t.Context()), s.CheckSplits(), s.CheckGraph(t.Context()), s.damage()); err != nil {
			t.Errorf("%b: %v", parts, err)
		}
		path := filepath.Join(to, "labels.bin")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context()); !errors.Is(err, graph.ErrFormat) {
			t.Errorf("%b: damage was not found: %v", parts, err)
		}
	}
}
