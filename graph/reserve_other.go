//go:build !linux

package graph

import "os"

// reserve makes f size bytes long with its blocks allocated: a mapping of it
// cannot meet a full disk later, which would be a signal and not an error.
func reserve(f *os.File, size int64) error { return writeZeros(f, size) }
