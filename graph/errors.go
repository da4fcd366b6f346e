package graph

import (
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/fault"
)

// ErrFormat is wrapped by every error that comes from data that cannot be
// used: a malformed or damaged file, contradictory counts, ids out of range.
// Errors of the operating system (a missing file, a full disk) do not wrap it.
var ErrFormat = dataerr.ErrFormat

// ErrDamaged is wrapped by the error of a call that failed because a file was damaged after
// it was written: a store's that holds values that no store is written with, or one that was
// shortened or cannot be read while it is in use. runtime.ErrDamaged is the same.
var ErrDamaged = fault.ErrDamaged
