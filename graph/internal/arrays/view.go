package arrays

import "unsafe"

// Number is an element type that is stored as its little-endian bytes. Every
// platform that is supported is little-endian, so memory is the file.
type Number interface {
	uint8 | int32 | uint32 | int64 | uint64 | float32
}

// Bytes returns the bytes of x without copying.
func Bytes[T Number](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(t)))
}

// View returns b as values without copying. b must be aligned for T, and its
// length a multiple of T's size.
func View[T Number](b []byte) []T {
	if len(b) == 0 {
		return []T{}
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}
