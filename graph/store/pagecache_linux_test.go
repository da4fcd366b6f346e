package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// A check leaves in memory what was there, and nothing else but the header's
// pages and that of the blocks' checksums.
func TestCheckGivesPagesBack(t *testing.T) {
	dir := large(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := os.Open(filepath.Join(dir, "indices.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := headerSize + s.m.array(arrays.Indices).Bytes
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	resident := func() (pages []int) {
		c := newPageCache(f, size)
		defer c.close()
		c.reading(size)
		for i, p := range c.pages {
			if p&1 != 0 && i >= 16 && i < len(c.pages)-1 {
				pages = append(pages, i)
			}
		}
		return pages
	}
	if len(resident()) != 0 {
		t.Skip("this file system keeps its pages")
	}
	page := int64(os.Getpagesize())
	want := []int{100, 300}
	for _, p := range want {
		if _, err := f.ReadAt(make([]byte, 1), int64(p)*page); err != nil {
			t.Fatal(err)
		}
	}
	if got := resident(); len(got) != 2 {
		t.Skipf("pages %v were read, want %v", got, want)
	}
	if err := s.Check(context.Background(), CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := resident(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%d pages from %v on are in memory, want %v", len(got), got[:min(len(got), 10)], want)
	}
}
