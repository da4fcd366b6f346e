//go:build unix

package graph

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockStore waits until nobody else changes the store in dir, and keeps others
// from it until unlock. The lock is on the directory itself, and ends with the
// process, however that ends. File systems that cannot lock a directory (NFS)
// are not locked.
func lockStore(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("graph: open store: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err == nil || errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOTSUP) {
		return f.Close, nil
	}
	return nil, errors.Join(fmt.Errorf("graph: lock %s: %w", dir, err), f.Close())
}
