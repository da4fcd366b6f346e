// Package dirlock locks directories, so that processes that would spoil each other's
// files keep out of one. The lock is on the directory itself, and ends with the
// process, however that ends.
package dirlock

import "errors"

// Errors that Try and Wait wrap.
var (
	// ErrHeld: another process, or another call, has the lock.
	ErrHeld = errors.New("the directory is in use")
	// ErrNone: the file system, or the platform, cannot lock a directory (NFS).
	ErrNone = errors.New("directories have no locks here")
)

// Try locks dir, which must exist, unless it is locked.
func Try(dir string) (unlock func() error, err error) { return try(dir) }

// Wait locks dir, which must exist, when nobody else has it any more.
func Wait(dir string) (unlock func() error, err error) { return wait(dir) }
