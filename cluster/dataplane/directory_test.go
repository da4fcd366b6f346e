package dataplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func source(t testing.TB) (dir string, names []string, want map[string][]byte) {
	t.Helper()
	dir, want = t.TempDir(), map[string][]byte{}
	for name, n := range map[string]int{"empty": 0, "small": 5, "exact": ChunkBytes, "large": 2*ChunkBytes + 77} {
		b := bytes.Repeat([]byte(name), n/len(name)+1)[:n]
		want[name] = b
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, names, want
}

func compare(t testing.TB, dir string, want map[string][]byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		t.Errorf("%d files, %v", len(entries), err)
	}
	for name, b := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// A copy that was interrupted goes on where it stopped, from another peer; what
// is damaged, on disk or on the way, is fetched again.
func TestCopy(t *testing.T) {
	p := planes(t, nil, "n0", "n1", "n2")
	dir, names, want := source(t)
	ServeDirectories(p[1]).Add("x", dir, names)
	ServeDirectories(p[2]).Add("x", dir, names)
	to := filepath.Join(t.TempDir(), "new")
	ctx, cancel := context.WithCancel(t.Context())
	err := CopyDirectory(ctx, p[0], []string{"n1"}, "x", to, nil, func(d Progress) {
		if d.Bytes > d.Total/2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("not interrupted: %v", err)
	}
	p[1].Close()
	var last Progress
	if err := CopyDirectory(t.Context(), p[0], []string{"n1", "n2"}, "x", to, nil, func(d Progress) { last = d }); err != nil {
		t.Fatal(err)
	}
	compare(t, to, want)
	if last.Bytes != last.Total || last.Kept == 0 {
		t.Errorf("%+v: nothing was kept", last)
	}
	if err := os.WriteFile(filepath.Join(to, "large"), want["exact"], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CopyDirectory(t.Context(), p[0], []string{"n2"}, "x", to, nil, nil); err != nil {
		t.Fatal(err)
	}
	compare(t, to, want)
	// Of a whole file only the chunk that is damaged.
	bad := bytes.Clone(want["large"])
	bad[ChunkBytes+1] ^= 1
	if err := os.WriteFile(filepath.Join(to, "large"), bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CopyDirectory(t.Context(), p[0], []string{"n2"}, "x", to, nil, func(d Progress) { last = d }); err != nil {
		t.Fatal(err)
	}
	compare(t, to, want)
	if last.Total-last.Kept != ChunkBytes {
		t.Errorf("%+v: want one chunk copied", last)
	}

	// n2's file changes behind its back: its checksum betrays it.
	if err := os.WriteFile(filepath.Join(dir, "small"), []byte("smalL"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(to, "small")); err != nil {
		t.Fatal(err)
	}
	if err := CopyDirectory(t.Context(), p[0], []string{"n2"}, "x", to, nil, nil); err == nil {
		t.Error("damage was not noticed")
	}
}

// Whatever a peer lists, nothing outside the directory is named, and nothing
// panics.
func FuzzListing(f *testing.F) {
	good, err := json.Marshal(&listing{[]file{{"a", 5, [][]byte{make([]byte, 32)}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, name := range []string{"../a", "/a", "a/b", "", ".", ".hidden", "a\\\\b"} {
		f.Add([]byte(`{"files":[{"name":"` + name + `","size":0}]}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseListing(b)
		if err != nil {
			if !errors.Is(err, errListing) {
				t.Fatal(err)
			}
			return
		}
		for i := range l.Files {
			if f := &l.Files[i]; filepath.Dir(filepath.Join("dir", f.Name)) != "dir" {
				t.Fatalf("%q leads elsewhere", f.Name)
			}
		}
	})
}
