package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Files that pass the page cache by have the same bytes, also where the system refuses that in the midst of it.
func TestDirect(t *testing.T) {
	const buffer = 2 * directPage
	values := make([]byte, 5*buffer)
	for i := range values {
		values[i] = byte(i*i>>3 + i>>9)
	}
	write := func(n, direct, refused int) (file []byte, passed bool) {
		w, err := NewWriter(filepath.Join(t.TempDir(), "store"))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		w.SetBuffer(buffer + direct) // which is no multiple then
		if direct > 0 {
			w.SetDirect()
		}
		a, err := w.Array("labels", graph.Uint8, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for from := 0; from < n; from += 777 {
			if refused > 0 && from > n/2 {
				refused, a.buf = 0, append(make([]byte, 1, 1+cap(a.buf)), a.buf...)[1:] // an address that is odd
			}
			if _, err := a.Write(values[from:min(n, from+777)]); err != nil {
				t.Fatal(err)
			}
			passed = a.direct
		}
		if err := a.Finish(); err != nil {
			t.Fatal(err)
		}
		if file, err = os.ReadFile(a.path); err != nil {
			t.Fatal(err)
		}
		return file, passed
	}
	for _, n := range []int{0, 1, directPage - headerSize, buffer - headerSize - 1, buffer - headerSize, buffer - headerSize + 1, 3*buffer - headerSize, 3*buffer + 5} {
		want, passed := write(n, 0, 0)
		if passed {
			t.Errorf("%d values pass the page cache by, unasked", n)
		}
		for refused := range 2 {
			got, passed := write(n, 5, refused)
			if !bytes.Equal(got, want) {
				t.Errorf("%d values, refused %d: the files differ", n, refused)
			}
			if n > 2*buffer && passed != (refused == 0) && directWorks(t) {
				t.Errorf("%d values, refused %d: they pass the page cache by: %t", n, refused, passed)
			}
		}
	}
}

// directWorks reports whether the system lets pages of temporary files pass its cache by.
func directWorks(t *testing.T) bool {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Write(aligned(directPage)[:directPage])
	return setDirect(f, true) && err == nil
}
