//go:build unix

package store

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/internal/fault"
)

// mapFile maps the first size bytes of f, shared and read-only. f may be closed
// afterwards. The file must not be shortened while it is mapped.
func mapFile(f *os.File, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	fault.Register(b, f.Name())
	return b, nil
}

// unmapFile ends a mapping.
func unmapFile(b []byte) error {
	if b == nil {
		return nil
	}
	fault.Forget(b)
	return os.NewSyscallError("munmap", unix.Munmap(b))
}
