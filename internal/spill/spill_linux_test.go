package spill

import (
	"os"
	"path/filepath"
	"testing"
)

// What is made is zeros that may be written, and leaves no file behind; where there is no directory that is an error.
func TestMake(t *testing.T) {
	dir := t.TempDir()
	b, err := Make(dir, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range b {
		if x != 0 {
			t.Fatalf("byte %d is %d", i, x)
		}
		b[i] = byte(i)
	}
	if b[99_999] != 159 || len(b) != 100_000 {
		t.Errorf("%d bytes, the last %d", len(b), b[len(b)-1])
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("files are left: %v, %v", list, err)
	}
	Free(b)
	if b, err := Make(filepath.Join(dir, "none"), 1); err == nil {
		t.Errorf("%d bytes in a directory that there is not", len(b))
	}
	for _, n := range []int{100_000, minMapped - 1, minMapped, minMapped + 100_000} {
		b, err = Make("", n)
		if err != nil || len(b) != n || b[n-1] != 0 {
			t.Fatalf("%d bytes of memory for %d, %v", len(b), n, err)
		}
		b[n-1] = 1
		Free(b)
	}
	if b, err := Make(dir, 0); b != nil || err != nil {
		t.Errorf("nothing: %v, %v", b, err)
	}
}
