//go:build unix

package graph

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of f, shared. f may be closed afterwards.
// The file must not be shortened while it is mapped.
func mapFile(f *os.File, size int64, writable bool) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return b, nil
}

// unmapFile ends a mapping. What was written to it is in the file, though not
// necessarily on disk yet.
func unmapFile(_ *os.File, b []byte, _ bool) error {
	if b == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(b))
}
