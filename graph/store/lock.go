package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// lockStore waits until nobody else changes the store in dir, and keeps others
// from it until unlock, unless ctx ends first. Where directories cannot be locked it does nothing.
func lockStore(ctx context.Context, dir string) (unlock func() error, err error) {
	unlock, err = dirlock.Wait(ctx, dir)
	if errors.Is(err, dirlock.ErrNone) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("graph: open store: %w", err)
	}
	return unlock, nil
}

// holdDir locks a directory unless another process, or another call, holds it.
// held is false then, and where directories cannot be locked.
func holdDir(dir string) (release func(), held bool) {
	unlock, err := dirlock.Try(dir)
	if err != nil {
		return nil, false
	}
	return func() { _ = unlock() }, true // nothing was written
}
