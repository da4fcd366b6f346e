package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// copied returns a copy of a store that may be changed.
func copied(t testing.TB, from string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// flip changes a bit of a file, and leaves its time as it is if asked to.
func flip(t testing.TB, path string, at int64, keepTime bool) {
	t.Helper()
	state, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 4
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if keepTime {
		if err := os.Chtimes(path, time.Time{}, state.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

// large returns a store whose indices have a little over three blocks.
func large(t testing.TB) string {
	t.Helper()
	const edges = 3*blockBytes/4 + 100
	src, dst := make([]uint32, edges), make([]uint32, edges)
	for i := range src {
		src[i], dst[i] = uint32(i%7), uint32(i%5)
	}
	g, err := graph.FromEdges(7, src, dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	return created(t, &graph.Dataset{Name: "large", Graph: g})
}

func TestCheckNamesFileAndBlock(t *testing.T) {
	dir := large(t)
	s := opened(t, dir)
	if err := s.Check(context.Background(), CheckOptions{}); err != nil || s.Lacks() != "" {
		t.Fatal(err, s.Lacks())
	}
	end := headerSize + s.m.array(arrays.Indices).Bytes
	for _, c := range []struct {
		at, from, to int64
	}{
		{headerSize, headerSize, blockBytes}, {blockBytes - 1, headerSize, blockBytes}, {blockBytes, blockBytes, 2 * blockBytes},
		{3*blockBytes - 1, 2 * blockBytes, 3 * blockBytes}, {end - 1, 3 * blockBytes, end}, {end, end, end + 16}, {end + 15, end, end + 16},
	} {
		dir := copied(t, dir)
		flip(t, filepath.Join(dir, "indices.bin"), c.at, false)
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Check(context.Background(), CheckOptions{})
		s.Close()
		if err == nil || !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), "indices.bin: damaged: the b") ||
			!strings.Contains(err.Error(), fmt.Sprintf("offsets [%d, %d)", c.from, c.to)) || !strings.Contains(err.Error(), "import the data again") {
			t.Errorf("byte %d: %v", c.at, err)
		}
	}
}

// Each file that a store may have, edge features only where they are used.
func TestCheckReadsEveryFile(t *testing.T) {
	whole := created(t, graphtest.Everything(t))
	if err := SavePartition(t.Context(), whole, graph.Partition{Method: "metis", Parts: 2, Cluster: []uint32{0, 1, 1, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	names := opened(t, whole).Files(Whole)
	if len(names) != 17 {
		t.Fatalf("%d files", len(names))
	}
	for _, name := range names[:len(names)-1] {
		dir := copied(t, whole)
		flip(t, filepath.Join(dir, name), headerSize, false)
		s, err := Open(dir)
		if err == nil {
			err = s.Check(context.Background(), CheckOptions{})
			if e := s.Check(context.Background(), CheckOptions{WithoutEdgeFeatures: true}); (e == nil) != strings.HasPrefix(name, "edge-features") {
				t.Errorf("%s, without edge features: %v", name, e)
			}
			s.Close()
		}
		if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range names { // they are known to be sound then
		if err := os.Chtimes(filepath.Join(whole, name), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	if err := opened(t, whole).Check(ctx, CheckOptions{}); !errors.Is(err, why) {
		t.Errorf("a cancelled check: %v", err)
	}
}

// What was read and found good is not read again until it changes; Verify reads
// it all the same.
func TestCheckRemembers(t *testing.T) {
	dir := large(t)
	s := opened(t, dir)
	path := filepath.Join(dir, "indices.bin")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, time.Time{}, old); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(context.Background(), CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	flip(t, path, 5000, true)
	if err := s.Check(context.Background(), CheckOptions{}); err != nil {
		t.Errorf("it was read again: %v", err)
	}
	if err := s.Verify(t.Context()); !errors.Is(err, graph.ErrFormat) {
		t.Errorf("Verify did not read it: %v", err)
	}
	if err := os.Chtimes(path, time.Time{}, old.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(context.Background(), CheckOptions{}); !errors.Is(err, graph.ErrFormat) {
		t.Errorf("a changed file was not read again: %v", err)
	}
}

// testdata/version1 was written by a program that knew that version alone: 80
// nodes of `generate sbm`, and a partition.
func TestVersion1(t *testing.T) {
	const fingerprint = "96a37d4b42ca466b415bbc4f0bd76766865084efea043ad4849412d6d9d66643"
	dir := copied(t, filepath.Join("testdata", "version1"))
	s := opened(t, dir)
	if s.Dataset().Fingerprint != fingerprint {
		t.Errorf("fingerprint %s", s.Dataset().Fingerprint)
	}
	if err := errors.Join(s.Check(context.Background(), CheckOptions{}), s.Verify(t.Context())); err != nil {
		t.Error(err)
	}
	if l := s.Lacks(); !strings.Contains(l, "8 files") || !strings.Contains(l, "import") {
		t.Errorf("lacks %q", l)
	}
	for _, name := range s.Files(Whole)[:8] {
		bad := copied(t, dir)
		flip(t, filepath.Join(bad, name), headerSize+9, false)
		s, err := Open(bad)
		if err == nil {
			err = s.Check(context.Background(), CheckOptions{})
			s.Close()
		}
		if !errors.Is(err, graph.ErrFormat) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is added has what the rest lacks.
	if err := SavePartition(t.Context(), dir, graph.Partition{Method: "metis", Parts: 3, Cluster: make([]uint32, 80)}); err != nil {
		t.Fatal(err)
	}
	both := opened(t, dir)
	if err := both.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if l := both.Lacks(); !strings.Contains(l, "8 files") || both.Dataset().Fingerprint != fingerprint || both.Dataset().Partition("metis", 3) == nil || both.Dataset().Partition("contiguous", 2) == nil {
		t.Errorf("with another partition: lacks %q, fingerprint %s", l, both.Dataset().Fingerprint)
	}
}

// Whatever becomes of a file: it is refused, or its values are what they were.
func FuzzCheck(f *testing.F) {
	dir := created(f, graphtest.Everything(f))
	path := filepath.Join(dir, "weights.bin")
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join("testdata", "version1", "train.bin"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-4])
	f.Add(old)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err != nil {
			return
		}
		defer s.Close()
		if s.Check(context.Background(), CheckOptions{}) == nil && !bytes.Equal(b[:len(good)], good) {
			t.Error("other bytes than those that were written were accepted")
		}
	})
}

// What is mapped is read, whatever file has its name by then.
func TestCheckOfReplacedFile(t *testing.T) {
	dir := copied(t, large(t))
	path := filepath.Join(dir, "indices.bin")
	whole := filepath.Join(t.TempDir(), "whole")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, b, 0o666); err != nil {
		t.Fatal(err)
	}
	sound := opened(t, dir)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sound.Check(context.Background(), CheckOptions{}), sound.CheckFiles()); err != nil {
		t.Errorf("a mapped file was removed: %v", err)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	flip(t, path, 5000, false)
	damaged, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer damaged.Close()
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
	if err := damaged.Check(context.Background(), CheckOptions{}); !errors.Is(err, graph.ErrFormat) {
		t.Errorf("a sound file took the place of a damaged one: %v", err)
	}
}
