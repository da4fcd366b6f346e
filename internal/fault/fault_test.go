//go:build unix

package fault

import (
	"errors"
	"fmt"
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

// A panic is explained by the first check that fails, a fault in the check
// included, and goes on where all pass.
func TestPanicsAreExplained(t *testing.T) {
	sound := func() error { return nil }
	damaged := errors.New("damaged")
	mem, path := mapped(t, 1)
	sum := byte(0)
	reads := func() error { sum += mem[0]; return nil }
	panics := func() error { var x []int; return fmt.Errorf("%d", x[len(x)]) }
	for name, c := range map[string]struct {
		check func() error
		want  func(err error) bool // nil: the panic goes on
	}{
		"sound":   {sound, nil},
		"damaged": {func() error { return damaged }, func(err error) bool { return errors.Is(err, damaged) && strings.Contains(err.Error(), "out of range") }},
		"faults":  {reads, func(err error) bool { e := new(Error); return errors.As(err, &e) && e.Path == path }},
		"panics":  {panics, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "faults" {
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			forget := Suspect(c.check)
			var err error
			recovered := func() (r any) {
				defer func() { r = recover() }()
				err = Guard(panics)
				return nil
			}()
			if c.want == nil && recovered == nil || c.want != nil && (recovered != nil || !c.want(err)) {
				t.Errorf("got the error %v and the panic %v", err, recovered)
			}
			own := errors.New("own")
			if got := Explain(own); c.want == nil && got != own || c.want != nil && got == own {
				t.Errorf("an error was explained as %v", got)
			}
			if got := Guard(func() error { return own }); got != own {
				t.Errorf("Guard made %v of f's error", got)
			}
			forget()
			if got := Explain(own); got != own {
				t.Errorf("a check that was forgotten said %v", got)
			}
		})
	}
	if err := Explain(nil); err != nil {
		t.Error(err)
	}
}

// What code outside panics with is not looked at.
func TestGuardOutside(t *testing.T) {
	defer Suspect(func() error { return errors.New("damaged") })()
	outside := true
	defer func() {
		if r := recover(); r != "theirs" {
			t.Errorf("recovered %v", r)
		}
	}()
	t.Error(GuardOutside(&outside, func() error { panic("theirs") }))
}
