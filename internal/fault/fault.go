// Package fault turns faults in mapped files into errors. Reading a mapping
// whose file was shortened, or whose disk fails, raises SIGBUS, which ends a Go
// program unless the goroutine that reads asked for a panic instead; Guard asks,
// and tells which file it was.
package fault

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"unsafe"
)

// Error is a fault in a mapped file.
type Error struct {
	Path   string
	Offset int64 // in the file
}

func (e *Error) Error() string {
	if st, err := os.Stat(e.Path); err == nil && st.Size() <= e.Offset {
		return fmt.Sprintf("%s: cannot read offset %d: the file was shortened to %d bytes while it was mapped; restore it and start again", e.Path, e.Offset, st.Size())
	}
	return fmt.Sprintf("%s: cannot read offset %d of the mapped file; check the disk, and restore the file from where it came", e.Path, e.Offset)
}

type mapping struct {
	start, end uintptr
	path       string
}

var (
	mu       sync.RWMutex
	mappings []mapping
)

// Register tells that mem is a mapping of the file path from its first byte on.
func Register(mem []byte, path string) {
	if len(mem) == 0 {
		return
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	mu.Lock()
	mappings = append(mappings, mapping{start, start + uintptr(len(mem)), path})
	mu.Unlock()
}

// Forget undoes Register; call it before the mapping ends.
func Forget(mem []byte) {
	if len(mem) == 0 {
		return
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	mu.Lock()
	for i, m := range mappings {
		if m.start == start {
			last := len(mappings) - 1
			mappings[i] = mappings[last]
			mappings = mappings[:last]
			break
		}
	}
	mu.Unlock()
}

// Guard calls f and returns its error. A fault in a registered mapping, in f or
// in a loop that f runs on a pool, assembly included, is returned as an *Error;
// every other panic goes on. Goroutines that f starts itself need a Guard of
// their own.
func Guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			e := find(r)
			if e == nil {
				panic(r)
			}
			err = e
		}
	}()
	return f()
}

// find returns the fault that the value of a panic tells of, or nil.
func find(r any) *Error {
	err, ok := r.(error)
	if !ok {
		return nil
	}
	var at interface{ Addr() uintptr }
	if !errors.As(err, &at) {
		return nil
	}
	addr := at.Addr()
	mu.RLock()
	defer mu.RUnlock()
	for _, m := range mappings {
		if m.start <= addr && addr < m.end {
			return &Error{m.path, int64(addr - m.start)}
		}
	}
	return nil
}
