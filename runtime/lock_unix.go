//go:build unix

package runtime

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped when another process writes to a checkpoint directory.
var ErrLocked = errors.New("runtime: the checkpoint directory is in use")

// lockDir takes the checkpoint directory for this run, until unlock: two runs
// that wrote to it would delete each other's checkpoints. The lock is on the
// directory itself, and ends with the process, however that ends. File systems
// that cannot lock a directory (NFS) are not locked.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil, errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP):
		return f.Close, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%w by another run: %s; wait until that ends, or choose another directory", ErrLocked, dir), f.Close())
	default:
		return nil, errors.Join(fmt.Errorf("runtime: lock %s: %w", dir, err), f.Close())
	}
}
