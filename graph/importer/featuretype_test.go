package importer_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/rng"
)

// A store imported with a feature type holds what Encode gives, verifies, and
// is whole or absent.
func TestImportWithFeatureType(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	x := make([]float32, 40*9)
	k := rng.New(3)
	for i := range x {
		if i/9 != 1 && i%9 != 2 { // a row and a column are 0
			x[i] = float32(k.Float64(uint64(i))*2 - 1)
		}
	}
	f := graph.NewFeatures(40, 9, x)
	g := &graph.Graph{Indptr: make([]int64, 41)}
	if err := store.Create(t.Context(), src, &graph.Dataset{Name: "t", Graph: g, NodeFeatures: f}); err != nil {
		t.Fatal(err)
	}
	for _, name := range graph.Encodings() {
		e, _ := graph.ParseEncoding(name)
		dst := filepath.Join(dir, name)
		if err := importer.Import(t.Context(), src, dst, importer.Options{FeatureType: e}); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		want, _ := f.Encode(t.Context(), e)
		got := s.Dataset().NodeFeatures
		if got.DType != want.DType || string(got.Data) != string(want.Data) || !slices.Equal(got.RowScale, want.RowScale) || !slices.Equal(got.ColScale, want.ColScale) {
			t.Errorf("%s: the store does not hold what Encode gives", name)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	// Another import keeps what is stored, to the bit, or gives the type that it is told.
	stored := func(from, to string, o importer.Options) *graph.Features {
		dst := filepath.Join(dir, to)
		if err := importer.Import(t.Context(), filepath.Join(dir, from), dst, o); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dst)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s.Dataset().NodeFeatures
	}
	for _, name := range graph.Encodings() {
		e, _ := graph.ParseEncoding(name)
		want, _ := f.Encode(t.Context(), e)
		for _, o := range []importer.Options{{}, {FeatureType: e}} {
			got := stored(name, name+"-again-"+o.FeatureType.String(), o)
			if got.DType != want.DType || string(got.Data) != string(want.Data) || !slices.Equal(got.RowScale, want.RowScale) || !slices.Equal(got.ColScale, want.ColScale) {
				t.Errorf("%s again as %+v: the store does not hold what Encode gives", name, o.FeatureType)
			}
		}
	}
	rows, _ := f.Encode(t.Context(), graph.Encoding{DType: graph.Int8})
	want, _ := rows.Encode(t.Context(), graph.Encoding{DType: graph.Int8, PerColumn: true})
	if got := stored("int8", "columns", importer.Options{FeatureType: graph.Encoding{DType: graph.Int8, PerColumn: true}}); got.RowScale != nil || string(got.Data) != string(want.Data) || !slices.Equal(got.ColScale, want.ColScale) {
		t.Error("scales of rows did not become scales of columns")
	}
	if got := stored("int8", "normalized", importer.Options{NormalizeFeatures: true}); got.DType != graph.Float32 || got.RowScale != nil {
		t.Errorf("normalized features are %v", got.DType)
	}
	big := filepath.Join(dir, "big")
	if err := store.Create(t.Context(), big, &graph.Dataset{Name: "t", Graph: g, NodeFeatures: graph.NewFeatures(40, 1, append(make([]float32, 39), 1e9))}); err != nil {
		t.Fatal(err)
	}
	if err := importer.Import(t.Context(), big, filepath.Join(dir, "half"), importer.Options{FeatureType: graph.Encoding{DType: graph.Float16}}); !errors.Is(err, graph.ErrFormat) {
		t.Errorf("1e9 as float16: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*half*")); left != nil {
		t.Errorf("a failed import left %v", left)
	}
}
