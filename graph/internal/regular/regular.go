// Package regular opens regular files and nothing else.
package regular

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// Flags does not wait for someone to write to a named pipe.
const Flags = os.O_RDONLY | syscall.O_NONBLOCK

// Open opens a file for reading, unless it is something else than a
// regular file: that could make the program wait for ever, or read for ever.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, Flags, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = Check(path, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Check tells what a file is that is no regular one; path is what the error calls it.
func Check(path string, st os.FileInfo) error {
	kind := ""
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		kind = "a directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case m&fs.ModeSocket != 0:
		kind = "a socket"
	case m&fs.ModeDevice != 0:
		kind = "a device"
	default:
		kind = "no file"
	}
	return dataerr.Bad("%s is %s; a regular file is needed", path, kind)
}

// ReadSmall reads a file that must not be longer than limit.
func ReadSmall(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, dataerr.Bad("%s: longer than %d bytes", path, limit)
	}
	return b, nil
}
