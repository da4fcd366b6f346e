package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("the directory holds %q, want %q", names, want)
	}
}

// A device, here behind a link, is not replaced.
func TestWriteDevice(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "device")
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, 0o640, text("new")); !errors.Is(err, errNoFile) {
		t.Errorf("a device was replaced: %v", err)
	}
	if to, err := os.Readlink(path); err != nil || to != os.DevNull {
		t.Errorf("leads to %q, %v", to, err)
	}
	holds(t, dir, "device")
}

// A file is replaced whole, with its mode, or stays as it was; nothing else is left.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, s := range []string{"old", "new"} {
		if err := Write(path, 0o640, text(s)); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("broken")
	err := Write(path, 0o640, func(w io.Writer) error { return errors.Join(text("half")(w), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("a write that fails: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "new" {
		t.Errorf("holds %q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	holds(t, dir, "f")
	if err := Write(filepath.Join(dir, "no", "f"), 0o640, text("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a directory that is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "d"), 0o640, text("x")); err == nil {
		t.Error("a directory was replaced")
	}
	holds(t, dir, "d", "f")
}

// Of several files none is replaced before all of them are on the disk.
func TestSeveral(t *testing.T) {
	dir := t.TempDir()
	a, err := Create(filepath.Join(dir, "a"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Create(filepath.Join(dir, "b"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Finish(), b.Finish(), a.Replace(), b.Abort()); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "a")
}

// What a killed process left is removed by the next that writes the same file; what
// somebody writes, and what is of other files, stays.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	if release, err := dirlock.Try(dir); errors.Is(err, dirlock.ErrNone) {
		t.Skip("nothing can be locked here")
	} else if err = errors.Join(err, release()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".f.tmp-1", ".g.tmp-1", ".f", "f.tmp-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "f")
	living, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, 0o600, text("x")); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, ".f", filepath.Base(living.temporary()), ".g.tmp-1", "f", "f.tmp-1")
	if err := errors.Join(Clean(dir, ""), living.Abort()); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, ".f", "f", "f.tmp-1")
}
