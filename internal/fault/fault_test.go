//go:build unix

package fault

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mapped returns a mapping of a new file of the given pages, registered.
func mapped(t *testing.T, pages int) (mem []byte, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "rows.bin")
	if err := os.WriteFile(path, make([]byte, pages*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err = unix.Mmap(int(f.Fd()), 0, pages*os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	Register(mem, path)
	t.Cleanup(func() {
		Forget(mem)
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem, path
}

func TestFaultNamesFileAndOffset(t *testing.T) {
	page := os.Getpagesize()
	_, _ = mapped(t, 1) // another mapping
	mem, path := mapped(t, 3)
	if err := os.Truncate(path, int64(page)); err != nil {
		t.Fatal(err)
	}
	sum := byte(0)
	err := Guard(func() error {
		sum += mem[page-1]
		sum += mem[2*page+17]
		return nil
	})
	var e *Error
	if !errors.As(err, &e) || e.Path != path || e.Offset != int64(2*page+17) {
		t.Fatalf("reading past the end: %v (%d), want %s at offset %d", err, sum, path, 2*page+17)
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "shortened") {
		t.Errorf("the error %q does not say that the file was shortened", err)
	}
	if err := os.Truncate(path, int64(3*page)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(e.Error(), "disk") {
		t.Errorf("the error %q of a file of full length does not tell of the disk", e)
	}
}

func TestGuardPassesOtherPanicsAndErrors(t *testing.T) {
	want := errors.New("own")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("Guard returned %v, want f's error", err)
	}
	for _, f := range []func() error{
		func() error { panic("text") },
		func() error { var p *int; *p = 1; return nil },
		func() error { panic(want) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic that is no fault was swallowed")
				}
			}()
			t.Error(Guard(f))
		}()
	}
}

// A fault outside of every registered mapping stays a panic.
func TestFaultElsewhereIsAPanic(t *testing.T) {
	mem, path := mapped(t, 2)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	Forget(mem)
	defer func() {
		if recover() == nil {
			t.Error("a fault in a mapping that nobody registered was taken for a file's")
		}
	}()
	sum := byte(0)
	err := Guard(func() error { sum += mem[0]; return nil })
	t.Error(err, sum)
}
