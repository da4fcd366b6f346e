//go:build !unix

package store

import (
	"io"
	"os"
	"unsafe"
)

// mapFile reads the first size bytes of f into memory: this platform has no
// mapping that the package uses. The memory is aligned to 8 bytes.
func mapFile(f *os.File, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	words := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
		return nil, err
	}
	return b, nil
}

// unmapFile leaves the memory to the garbage collector.
func unmapFile([]byte) error { return nil }
