// Package hugepages asks for memory in huge pages: who reads large arrays at random
// waits for page tables as much as for the memory itself.
package hugepages

import (
	"os"
	"unsafe"
)

// Make returns n zeros, in huge pages where the system has them.
func Make[T any](n int) []T {
	s := make([]T, n)
	Advise(s)
	return s
}

// Advise asks for huge pages under s, which does best before s is touched, unless s is
// so small that it may hold none. That the system has none to give is no error.
func Advise[T any](s []T) {
	const least = 4 << 20 // two of them, of most processors
	size := uintptr(len(s)) * unsafe.Sizeof(*new(T))
	if size < least {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(s))
	skip := -uintptr(p) & uintptr(os.Getpagesize()-1)
	advise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), size-skip))
}
