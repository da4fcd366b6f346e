package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

func created(t testing.TB, ds *graph.Dataset) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	return dir
}

func opened(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoreGivesBackWhatWasCreated(t *testing.T) {
	multi := graphtest.Everything(t)
	multi.Labels = &graph.Labels{NumClasses: 2, Multi: []uint8{1, 1, 0, 1, 0, 0, 1, 0, 0, 1}}
	numbers := graphtest.Everything(t)
	numbers.Labels = &graph.Labels{NumClasses: 1, Values: []float32{-1.5, 0, 2e6, 3, 0.25}}
	bare := &graph.Dataset{Graph: &graph.Graph{Indptr: []int64{0}, Indices: []uint32{}}}
	for _, want := range []*graph.Dataset{graphtest.Everything(t), multi, numbers, bare} {
		s := opened(t, created(t, want))
		got := s.Dataset()
		if got.Fingerprint != graphtest.Hash(t, want) {
			t.Errorf("%s: the fingerprint is not the content's hash", want.Name)
		}
		if got.Graph.NumNodes() != want.Graph.NumNodes() || got.Summary().Bytes != want.Summary().Bytes {
			t.Errorf("%s: sizes differ", want.Name)
		}
		if !reflect.DeepEqual(got.Graph, want.Graph) || !reflect.DeepEqual(got.Labels, want.Labels) ||
			!reflect.DeepEqual(got.Train, want.Train) || !reflect.DeepEqual(got.Valid, want.Valid) || !reflect.DeepEqual(got.Test, want.Test) ||
			!reflect.DeepEqual(got.NodeTimes, want.NodeTimes) || !reflect.DeepEqual(got.EdgeTimes, want.EdgeTimes) {
			t.Errorf("%s: got %+v, want %+v", want.Name, got, want)
		}
		for _, f := range [][2]*graph.Features{{got.NodeFeatures, want.NodeFeatures}, {got.EdgeFeatures, want.EdgeFeatures}} {
			if f[1] == nil {
				continue
			}
			a, b := make([]float32, f[1].Cols), make([]float32, f[1].Cols)
			for i := range f[1].Rows {
				f[0].Row(a, i)
				f[1].Row(b, i)
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%s: row %d is %v, want %v", want.Name, i, a, b)
				}
			}
			if f[0].Stride != f[0].Cols*f[0].DType.Size() {
				t.Errorf("%s: stride %d", want.Name, f[0].Stride)
			}
		}
	}
}

func TestVerifyFindsAFlippedByteAnywhere(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 16 {
		t.Fatalf("%d files, %v; want one for each array and the manifest", len(files), err)
	}
	for _, file := range files {
		path := filepath.Join(dir, file.Name())
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			// Every byte of a payload, some of the longer parts.
			if file.Name() == Manifest && i%11 != 0 || i < headerSize && i%5 != 0 {
				continue
			}
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(path, bad, 0o666); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err == nil {
				err = s.Verify(t.Context())
				s.Close()
			}
			if !errors.Is(err, graph.ErrFormat) {
				t.Fatalf("%s, byte %d flipped: %v", file.Name(), i, err)
			}
			if !strings.Contains(err.Error(), file.Name()) {
				t.Errorf("%s, byte %d flipped: the error does not name the file: %v", file.Name(), i, err)
			}
		}
		if err := os.WriteFile(path, good, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	opened(t, dir)
}

func TestVerifyFindsDamageWhileOpen(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	s := opened(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, "labels.bin"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1}, headerSize); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context()); !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), "labels.bin") {
		t.Error(err)
	}
}

func TestOpenRefusesWrongSizesAndMissingFiles(t *testing.T) {
	for _, change := range []func(path string) error{
		func(p string) error { return os.Truncate(p, 100) },
		func(p string) error { return os.Truncate(p, 130) },
		func(p string) error { return os.Truncate(p, 10000) },
		os.Remove,
	} {
		for _, name := range []string{"indptr.bin", "train.bin", Manifest} {
			dir := created(t, graphtest.Everything(t))
			if err := change(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			_, err := Open(dir)
			if err == nil || !errors.Is(err, graph.ErrFormat) && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A file of another store of the same shape must not be taken for this one's.
func TestOpenRefusesAFileOfAnotherStore(t *testing.T) {
	dir := created(t, graphtest.Everything(t))
	ds := graphtest.Everything(t)
	ds.Labels.Class[0] = 1
	b, err := os.ReadFile(filepath.Join(created(t, ds), "labels.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "labels.bin"), b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, graph.ErrFormat) {
		t.Error(err)
	}
}

// Opening must not depend on the payload: here it is missing from the disk (a
// sparse file of 10 million edges), so opening can have read only the headers
// and the two bounds that it compares.
func TestOpenReadsNoPayload(t *testing.T) {
	const nodes, edges = 1000, 10_000_000
	dir := sparseStore(t, nodes, edges)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, e := s.Dataset().Graph.NumNodes(), s.Dataset().Graph.NumEdges(); n != nodes || e != edges {
		t.Errorf("%d nodes, %d edges", n, e)
	}
	if err := s.Verify(t.Context()); !errors.Is(err, graph.ErrFormat) {
		t.Errorf("Verify did not read the payload: %v", err)
	}
}

func BenchmarkOpen10MillionEdges(b *testing.B) {
	dir := sparseStore(b, 1_000_000, 10_000_000)
	for b.Loop() {
		s, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// sparseStore makes a store whose payloads are holes, except for the last
// bound of indptr; their checksums are wrong.
func sparseStore(t testing.TB, nodes, edges int64) string {
	dir := t.TempDir()
	m := manifest{Version: 1, NumNodes: nodes, NumEdges: edges}
	for _, a := range []struct {
		name string
		h    arrayHeader
	}{{arrays.Indptr, arrayHeader{version: 1, dtype: graph.Int64, rows: nodes + 1, cols: 1}}, {arrays.Indices, arrayHeader{version: 1, dtype: graph.Uint32, rows: edges, cols: 1}}} {
		path := filepath.Join(dir, a.name+arrayFileSuffix)
		if err := os.WriteFile(path, a.h.encode(), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, headerSize+a.h.bytes()); err != nil {
			t.Fatal(err)
		}
		m.Arrays = append(m.Arrays, arrays.Info{Name: a.name, Type: a.h.dtype.String(), Rows: a.h.rows, Cols: 1, Bytes: a.h.bytes(), SHA256: strings.Repeat("0", 64)})
	}
	f, err := os.OpenFile(filepath.Join(dir, "indptr.bin"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(arrays.Bytes([]int64{edges}), headerSize+8*nodes); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Manifest), m.encode(), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCreateNeverReplacesWhatItWasNotAskedTo(t *testing.T) {
	ds := graphtest.Everything(t)
	dir := created(t, ds)
	if err := Create(t.Context(), dir, ds); !errors.Is(err, os.ErrExist) {
		t.Errorf("a store was replaced: %v", err)
	}
	ds.Labels.Class[0] = 1
	if err := Create(t.Context(), dir, ds, Overwrite()); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, dir).Dataset().Labels.Class[0]; got != 1 {
		t.Errorf("the old store is still there: label %d", got)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.MkdirAll(other, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	// A store with a directory in it, which it would take with it, is not replaced.
	kept := filepath.Join(dir, "checkpoints")
	if err := os.Mkdir(kept, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), dir, ds, Overwrite()); err == nil || !strings.Contains(err.Error(), "checkpoints in it is no part of the store") {
		t.Errorf("a store with checkpoints in it: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if err := Create(t.Context(), other, ds, Overwrite()); err == nil {
		t.Error("a directory that is no store was replaced")
	}
	if err := Create(t.Context(), filepath.Join(other, "thesis.txt"), ds, Overwrite()); err == nil {
		t.Error("a file was replaced")
	}
	graphtest.OnlyContains(t, filepath.Dir(dir), "store")
	graphtest.OnlyContains(t, other, "thesis.txt")
	empty := t.TempDir()
	if err := Create(t.Context(), empty, ds); err != nil {
		t.Errorf("an empty directory was refused: %v", err)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	h := arrayHeader{version: 2, dtype: graph.Uint32, rows: 7, cols: 3, sums: 5}
	f.Add(h.encode())
	f.Add(h.encode()[:127])
	f.Add([]byte(arrayMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		if h.bytes() < 0 || !bytes.Equal(h.encode()[:76], b[:76]) {
			t.Errorf("%+v does not encode to what it was read from", h)
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	good, err := os.ReadFile(filepath.Join(created(f, graphtest.Everything(f)), Manifest))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	f.Add(bytes.Replace(good, []byte(`"rows": 5`), []byte(`"rows": 6`), 1), true)
	f.Add([]byte(`{"format":"gnnactor-store","version":1,"arrays":[{}]}`), true)
	f.Fuzz(func(t *testing.T, b []byte, resum bool) {
		m, err := decodeManifest(b)
		if resum { // get past the checksum
			var again manifest
			if !unmarshalManifest(b, &again) {
				return
			}
			m, err = decodeManifest(again.encode())
		}
		if err != nil || m.check() != nil {
			return
		}
		for i := range m.Arrays {
			if m.Arrays[i].Bytes < 0 {
				t.Errorf("negative size in %+v", m.Arrays[i])
			}
		}
	})
}

func unmarshalManifest(b []byte, m *manifest) bool { return json.Unmarshal(b, m) == nil }

// A writer that is killed while it replaces a store leaves, for the next one, a store and
// nothing else: the old one before its second rename, the new one after it.
func TestKilledWhileReplacing(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "store")
	named := func(name string) *graph.Dataset {
		return &graph.Dataset{Name: name, Graph: &graph.Graph{Indptr: make([]int64, 2)}}
	}
	is := func(when, want string) {
		t.Helper()
		s, err := Open(dst)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got := s.Dataset().Name; got != want {
			t.Errorf("%s: the store is %q, want %q", when, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".store.*")); err != nil || left != nil {
			t.Errorf("%s: left are %q, %v", when, left, err)
		}
	}
	if err := Create(t.Context(), dst, named("first")); err != nil {
		t.Fatal(err)
	}
	for _, after := range []int{1, 2} {
		w, err := NewWriter(dst, Overwrite())
		if err != nil {
			t.Fatal(err)
		}
		if w.release == nil {
			t.Skip("this file system does not lock directories")
		}
		if err := w.putDataset(t.Context(), named("second")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dst, w.tmp+suffixOld); err != nil {
			t.Fatal(err)
		}
		if living, err := NewWriter(dst); err != nil {
			t.Error(err)
		} else {
			if _, err := os.Stat(w.tmp + suffixOld); err != nil {
				t.Errorf("what a living writer moved away: %v", err)
			}
			living.Abort()
		}
		if after == 2 { // what it wrote has its name, and the old one not gone yet
			if err := Create(t.Context(), filepath.Join(dir, "other"), named("second")); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.RemoveAll(w.tmp), os.Rename(filepath.Join(dir, "other"), dst)); err != nil {
				t.Fatal(err)
			}
		}
		w.release() // as the end of its process does
		if _, err := NewWriter(dst); !errors.Is(err, os.ErrExist) {
			t.Errorf("killed after rename %d: %v, want that the store is there", after, err)
		}
		is(fmt.Sprint("killed after rename ", after), []string{"first", "second"}[after-1])
	}
}

// What a killed writer left goes when the store is written again; what a living
// one writes into stays.
func TestLeftoversOfKilledWriters(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "store")
	living, err := NewWriter(dst)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := NewWriter(dst)
	if err != nil {
		t.Fatal(err)
	}
	if killed.release == nil {
		t.Skip("this file system does not lock directories")
	}
	killed.release() // as the end of its process does
	next, err := NewWriter(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Abort()
	for path, want := range map[string]bool{living.tmp: true, killed.tmp: false, next.tmp: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", filepath.Base(path), err, want)
		}
	}
	alive := living.tmp
	living.Abort()
	if _, err := os.Stat(alive); err == nil {
		t.Error("an aborted writer left its directory")
	}
}
