package graph

import "github.com/gnnactor/gnnactor/graph/internal/dataerr"

// ErrFormat is wrapped by every error that comes from data that cannot be
// used: a malformed or damaged file, contradictory counts, ids out of range.
// Errors of the operating system (a missing file, a full disk) do not wrap it.
var ErrFormat = dataerr.ErrFormat
