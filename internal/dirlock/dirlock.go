// Package dirlock locks directories, so that processes that would spoil each other's
// files keep out of one. The lock is on the directory itself, and ends with the
// process, however that ends.
package dirlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that Try and Wait wrap.
var (
	// ErrHeld: another process, or another call, has the lock.
	ErrHeld = errors.New("the directory is in use")
	// ErrNone: the file system, or the platform, cannot lock a directory (NFS).
	ErrNone = errors.New("directories have no locks here")
)

// Try locks dir, which must exist, unless it is locked.
func Try(dir string) (unlock func() error, err error) { return try(dir) }

// again is how long Wait waits before it tries again.
const again = 20 * time.Millisecond

// Wait locks dir, which must exist, when nobody else has it any more, or returns the cause
// of ctx.
func Wait(ctx context.Context, dir string) (unlock func() error, err error) {
	tries := time.NewTicker(again)
	defer tries.Stop()
	for {
		if unlock, err = try(dir); !errors.Is(err, ErrHeld) {
			return unlock, err
		}
		select {
		case <-tries.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", dir, context.Cause(ctx))
		}
	}
}
