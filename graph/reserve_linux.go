package graph

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve makes f size bytes long with its blocks allocated: a mapping of it
// cannot meet a full disk later, which would be a signal and not an error.
func reserve(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return writeZeros(f, size)
		}
		return os.NewSyscallError("fallocate", err)
	}
}
