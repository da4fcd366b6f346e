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

// A copy of a store's files without the features' values opens as the same
// data, says what the rows are like, and finds damage to what it has.
func TestOpenTopology(t *testing.T) {
	want := graphtest.Everything(t)
	dir, to := created(t, want), t.TempDir()
	whole := opened(t, dir)
	for _, name := range whole.Files(false) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store without features was opened as whole: %v", err)
	}
	s, err := OpenTopology(to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, f := s.Dataset(), s.Dataset().NodeFeatures
	if got.Fingerprint != graphtest.Hash(t, want) || !reflect.DeepEqual(got.Graph, want.Graph) || !reflect.DeepEqual(got.Labels, want.Labels) || !reflect.DeepEqual(got.Train, want.Train) {
		t.Errorf("the topology differs: %+v", got)
	}
	if f.Data != nil || f.Rows != 5 || f.Cols != 3 || f.DType != graph.Int8 || len(f.RowScale) != 5 || !reflect.DeepEqual(f.ColScale, want.NodeFeatures.ColScale) {
		t.Errorf("features without values: %+v", f)
	}
	if _, _, ok := s.NodeFeaturesFile(); ok || s.Whole() || !whole.Whole() {
		t.Error("it says that it has features")
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
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
		t.Errorf("damage was not found: %v", err)
	}
	if n := len(whole.Files(true)) - len(whole.Files(false)); n != 2 {
		t.Errorf("%d files are the features' values, not 2", n)
	}
}
