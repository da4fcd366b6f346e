package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// What a killed run imported is removed by the next one, however soon that begins; what a run uses, what is about to be used, and what is
// not a run's, are not.
func TestImportDirSweeps(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	made := func(name string) string {
		dir := filepath.Join(temp, name)
		if err := os.MkdirAll(filepath.Join(dir, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	killed, used, young, other := made(importPrefix+"1"), made(importPrefix+"2"), made(unheldPrefix+"3"), made("gnnactor-mine")
	unlock, err := dirlock.Try(used)
	if err != nil {
		t.Skip(err)
	}
	dir, remove, err := importDir()
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := importDir() // beside the first
	if err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{killed: false, used: true, young: true, other: true, dir: true} {
		if _, err := os.Stat(path); stays != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	if err := errors.Join(remove(), second(), unlock()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was given back: %v", err)
	}
}
