package dataplane

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// ErrDamaged: what came is not what was announced.
var ErrDamaged = errors.New("dataplane: the checksum does not match")

// partSuffix ends the name of a file that is not whole yet.
const partSuffix = ".part"

// partialFile is a file of which a part may be here. It stays until it is whole or damaged.
type partialFile struct {
	*os.File
	path string
}

// openPartial opens what is here of the file that is going to be path.
func openPartial(path string, mode fs.FileMode) (*partialFile, error) {
	f, err := os.OpenFile(path+partSuffix, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	return &partialFile{f, path}, nil
}

// Append writes data if their offset is where the file ends. It returns where that is
// then.
func (f *partialFile) Append(at int64, data []byte) (have int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("dataplane: %w", err)
	}
	if have = info.Size(); have != at || len(data) == 0 {
		return have, nil
	}
	if _, err := f.WriteAt(data, at); err != nil {
		return 0, fmt.Errorf("dataplane: %w", err)
	}
	return have + int64(len(data)), nil
}

// Commit gives the file its name once it is on the disk. It stays open.
func (f *partialFile) Commit() error {
	err := f.Sync()
	if err == nil {
		err = atomicfile.Rename(f.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	return nil
}

// verify returns ErrDamaged unless r holds size bytes of a SHA-256, and no more.
func verify(r io.ReaderAt, size int64, sum [sha256.Size]byte) error {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(r, 0, size+1))
	if err != nil {
		return fmt.Errorf("dataplane: %w", err)
	}
	if n != size || !bytes.Equal(h.Sum(nil), sum[:]) {
		return fmt.Errorf("%w: %d of %d bytes", ErrDamaged, n, size)
	}
	return nil
}
