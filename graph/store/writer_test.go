package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// What does not make a store is refused, at the latest when it would appear, and
// leaves nothing behind.
func TestWriterRefuses(t *testing.T) {
	indptr, indices := arrays.Bytes([]int64{0, 1, 2}), arrays.Bytes([]uint32{1, 0})
	whole := func(w *Writer) error {
		return errors.Join(w.Put("indptr", graph.Int64, 1, indptr), w.Put("indices", graph.Uint32, 1, indices))
	}
	for want, write := range map[string]func(w *Writer) error{
		"must be there":   func(w *Writer) error { return w.Put("indptr", graph.Int64, 1, indptr) },
		"may not have":    func(w *Writer) error { return errors.Join(whole(w), w.Put("indices", graph.Int32, 1, indices)) },
		"does not fit 2":  func(w *Writer) error { return errors.Join(whole(w), w.Put("weights", graph.Float32, 1, indices[:4])) },
		"not whole rows":  func(w *Writer) error { return errors.Join(whole(w), w.Put("labels", graph.Int32, 1, indices[:7])) },
		`no array "edge"`: func(w *Writer) error { return errors.Join(whole(w), w.Put("edge", graph.Uint32, 1, indices)) },
		"1 labels for 2": func(w *Writer) error {
			return w.PutLabels(2, &graph.Labels{NumClasses: 1, Class: []int32{0}}, nil, nil, nil)
		},
		"in the split twice": func(w *Writer) error {
			return w.PutLabels(2, nil, []uint32{1, 1}, nil, nil)
		},
		"no node features": func(w *Writer) error { return w.EncodeFeatures(t.Context(), graph.Encoding{DType: graph.Float16}) },
	} {
		parent := t.TempDir()
		w, err := NewWriter(filepath.Join(parent, "store"))
		if err != nil {
			t.Fatal(err)
		}
		if err = write(w); err == nil {
			err = w.Commit(t.Context())
		}
		w.Abort()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		graphtest.OnlyContains(t, parent)
	}
}

// What is written to a scratch array is read back, and is no part of the store.
func TestScratchArray(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	w, err := NewWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	kept, err := w.Table("spool", 2, TableOptions{Wide: graph.Float32, Scratch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := errors.Join(kept.Row([]float32{1, 2}), kept.Row([]float32{3, 0.5})); err != nil { // the second is no uint8
		t.Fatal(err)
	}
	err = kept.Map(func(b []byte) error {
		if x := arrays.View[float32](b); kept.DType() != graph.Float32 || len(x) != 4 || x[0] != 1 || x[1] != 2 || x[2] != 3 || x[3] != 0.5 {
			t.Errorf("%v of %v was read back", x, kept.DType())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(kept.Drop(), w.Put("indptr", graph.Int64, 1, arrays.Bytes([]int64{0})), w.Put("indices", graph.Uint32, 1, nil), w.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	graphtest.OnlyContains(t, dir, "indices.bin", "indptr.bin", "store.json")
	if err := View(dir, func(s *Store) error { return s.Verify(t.Context()) }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.Scratch()); !errors.Is(err, os.ErrNotExist) {
		t.Error("scratch is left")
	}
}
