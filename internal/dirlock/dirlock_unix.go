//go:build unix

package dirlock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func try(dir string) (func() error, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	switch {
	case err == nil:
		return f.Close, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = ErrHeld
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP):
		err = ErrNone
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
}
