// Package fault turns what goes wrong with mapped files into errors, of two kinds.
//
// Reading a mapping whose file was shortened, or whose disk fails, raises SIGBUS,
// which ends a Go program unless the goroutine that reads asked for a panic
// instead; Guard asks, and tells which file it was.
//
// Reading values that are damaged, of a file that was not checked as a whole,
// gives indices out of range and the like: panics. Whoever maps values that others
// take for sound says with Suspect how to check them; Guard does so when
// something panics, and returns what it finds. If there is nothing to find the
// panic was a mistake of the program, and goes on.
//
// So every goroutine that touches mapped memory does so in Guard, and no code
// between checks what it reads; package layers lists the goroutines.
package fault

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"unsafe"
)

// ErrDamaged is graph.ErrDamaged: an Error is one.
var ErrDamaged = errors.New("damaged data")

// Damaged marks err with ErrDamaged, which adds nothing to the text.
func Damaged(err error) error { return &damaged{err} }

type damaged struct{ error }

func (e *damaged) Unwrap() []error { return []error{ErrDamaged, e.error} }

// Is tells errors.Is that a fault in a file is damage.
func (e *Error) Is(target error) bool { return target == ErrDamaged }

// Failure is an error with which code panics that has no other way to tell, such as
// kernels of a device that is lost: Guard returns it.
type Failure interface {
	error
	Failure()
}

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
	suspects = map[*func() error]struct{}{}

	checking sync.Mutex // one check at a time: it reads all there is
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

// Suspect has Guard call check, which may be called from any goroutine until forget
// has returned, when something panicked: an error of check explains the panic.
func Suspect(check func() error) (forget func()) {
	key := &check
	mu.Lock()
	suspects[key] = struct{}{}
	mu.Unlock()
	return func() {
		checking.Lock() // a check that runs ends first
		defer checking.Unlock()
		mu.Lock()
		delete(suspects, key)
		mu.Unlock()
	}
}

// Guard calls f and returns its error. A fault in a registered mapping, in f or
// in a loop that f runs on a pool, assembly included, is returned as an *Error,
// any other panic while a check of Suspect fails as that check's error; every
// other panic goes on. Goroutines that f starts itself need a Guard of their own.
func Guard(f func() error) error { return GuardOutside(nil, f) }

// GuardOutside is Guard for f that calls back: a panic while outside is true is the
// caller's and goes on.
func GuardOutside(outside *bool, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		defer debug.SetPanicOnFault(old)
		if outside != nil && *outside {
			return
		}
		if r := recover(); r != nil {
			if err = explain(r); err == nil {
				panic(r)
			}
		}
	}()
	return f()
}

// Explain returns the first error of the checks of Suspect, which are told of err,
// else err: for an error that damaged values may have led to, where it is worth
// reading all that was mapped to know.
func Explain(err error) error {
	if err != nil {
		_ = Guard(func() error {
			if cause := explain(err); cause != nil {
				err = cause
			}
			return nil
		})
	}
	return err
}

// explain returns the error that a panic's value comes from, nil if it is the
// program's mistake. Faults are panics where it is called.
func explain(r any) error {
	if f, ok := r.(Failure); ok {
		return f
	}
	if e := find(r); e != nil {
		return e
	}
	checking.Lock()
	defer checking.Unlock()
	mu.RLock()
	checks := make([]func() error, 0, len(suspects))
	for check := range suspects {
		checks = append(checks, *check)
	}
	mu.RUnlock()
	for _, check := range checks {
		if err := checked(check); err != nil {
			return fmt.Errorf("%w (found after: %v)", err, r)
		}
	}
	return nil
}

// checked calls check. A fault in it is its error; what panics else says nothing.
func checked(check func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e := find(r); e != nil {
				err = e
			}
		}
	}()
	return check()
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
