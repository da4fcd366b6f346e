//go:build unix

package features

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// allocate returns n bytes of zeros outside the Go heap, page by page as they
// are touched. release gives them back.
func allocate(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	hugepages.Advise(b)
	return b, nil
}

func release(b []byte) error {
	if b == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(b))
}
