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

// holdDir locks a directory unless another process, or another call, holds it.
// held is false then, and where directories cannot be locked.
func holdDir(dir string) (release func(), held bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = f.Close() // nothing was written
		return nil, false
	}
	return func() { _ = f.Close() }, true
}
