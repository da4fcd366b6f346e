package graph

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// ErrFormat is wrapped by every error that comes from data that cannot be
// used: a malformed or damaged file, contradictory counts, ids out of range.
// Errors of the operating system (a missing file, a full disk) do not wrap it.
var ErrFormat = errors.New("graph: bad data")

type formatError struct{ err error }

func (e *formatError) Error() string   { return "graph: " + e.err.Error() }
func (e *formatError) Unwrap() []error { return []error{ErrFormat, e.err} }

// badData returns an error that wraps ErrFormat and reads "graph: " + format.
func badData(format string, args ...any) error {
	return &formatError{fmt.Errorf(format, args...)}
}

// writeError names the file that could not be written and what to do about it.
func writeError(path string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // path is how the user knows the file
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("graph: write %s: %w; free some space there, or write the store to another file system", path, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("graph: write %s: %w; choose a directory that you may write to", path, err)
	}
	return fmt.Errorf("graph: write %s: %w", path, err)
}
