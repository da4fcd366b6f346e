//go:build linux

package cpu

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeTable returns n values in huge pages, where the system has them: with
// small ones random rows wait for the page tables, not for the memory.
func hugeTable(b *testing.B, n int) []float32 {
	raw, err := unix.Mmap(-1, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Munmap(raw); err != nil {
			b.Error(err)
		}
	})
	_ = unix.Madvise(raw, unix.MADV_HUGEPAGE) // a hint
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), n)
}
