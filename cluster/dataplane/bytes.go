package dataplane

import "unsafe"

// BytesOf returns the memory of x, which is how values travel.
func BytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
