package spill

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// minMapped is how many bytes are mapped at the least: the kernel takes longer to unmap fewer, from all processors, than most do with them.
const minMapped = 256 << 10

// Make returns n zeros that lie in a file of dir, whose blocks are there from the beginning, and which is gone with them or the process;
// without dir they lie in memory that is none of Go's heap, which would let garbage grow to as much as there is of them before it collects,
// unless they are fewer than minMapped.
func Make(dir string, n int) (b []byte, err error) {
	if n == 0 {
		return nil, nil
	}
	if dir == "" && n < minMapped {
		return make([]byte, n), nil
	}
	if dir == "" {
		if b, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
			return nil, fmt.Errorf("spill: %d bytes: %w", n, err)
		}
		hugepages.Advise(b)
		return b, nil
	}
	f, err := os.CreateTemp(dir, ".spilled-*")
	if err != nil {
		return nil, fmt.Errorf("spill: %w", err)
	}
	defer f.Close()
	if err = os.Remove(f.Name()); err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(n))
	}
	if err == nil {
		b, err = unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, fmt.Errorf("spill: %d bytes in %s: %w; name a directory of a disk with more room", n, dir, err)
	}
	fault.Register(b, f.Name())
	return b, nil
}

// Free gives back what Make returned.
func Free(b []byte) {
	if b != nil {
		fault.Forget(b)    // which knows those in files
		_ = unix.Munmap(b) // it fails for what was not mapped alone
	}
}
