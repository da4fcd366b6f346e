// Package dataerr makes the errors of graph and the packages below it. They all begin
// with "graph: ", whichever package finds what is wrong.
package dataerr

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// ErrFormat is graph.ErrFormat.
var ErrFormat = errors.New(prefix + "bad data")

const prefix = "graph: "

type formatError struct{ err error }

func (e *formatError) Error() string   { return prefix + e.err.Error() }
func (e *formatError) Unwrap() []error { return []error{ErrFormat, e.err} }

// Bad returns an error that wraps ErrFormat and reads "graph: " + format.
func Bad(format string, args ...any) error {
	return &formatError{fmt.Errorf(format, args...)}
}

// Unprefixed is err without the "graph: " that it begins with, to be part of another.
func Unprefixed(err error) error { return unprefixed{err} }

type unprefixed struct{ error }

func (u unprefixed) Error() string { return strings.TrimPrefix(u.error.Error(), prefix) }
func (u unprefixed) Unwrap() error { return u.error }

// Writing names the file that could not be written and what to do about it; nil stays
// nil.
func Writing(path string, err error) error {
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
