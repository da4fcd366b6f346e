package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// On a disk that is full the old file stays, and what was written of the new one goes.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "f")
	if err := Write(path, 0o644, text("old")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, 0o644, text(string(make([]byte, 1<<20)))); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want a disk that is full", err)
	}
	holds(t, dir, "f")
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("holds %q, %v", b, err)
	}
}
