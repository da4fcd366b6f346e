package runtime

import (
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// ErrLocked is wrapped when another process writes to a checkpoint directory.
var ErrLocked = errors.New("runtime: the checkpoint directory is in use")

// lockDir takes the checkpoint directory for this run, until unlock: two runs
// that wrote to it would delete each other's checkpoints. Where directories cannot
// be locked it is not.
func lockDir(dir string) (unlock func() error, err error) {
	unlock, err = dirlock.Try(dir)
	switch {
	case errors.Is(err, dirlock.ErrNone):
		return func() error { return nil }, nil
	case errors.Is(err, dirlock.ErrHeld):
		return nil, fmt.Errorf("%w by another run: %s; wait until that ends, or choose another directory", ErrLocked, dir)
	case err != nil:
		return nil, fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	return unlock, nil
}
