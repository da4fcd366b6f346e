// Package footprint adds up the memory that Go values hold: what a plan prints is
// compared with it.
package footprint

import (
	"reflect"
	"unsafe"
)

// Seen are arrays and values that were counted, or are not to be.
type Seen map[unsafe.Pointer]bool

// Bytes returns the bytes in the arrays that slices hold which can be reached from
// x, through pointers, interfaces, structs, arrays and slices, but for those seen
// before. It does not look into maps, channels and closures, and counts neither
// strings nor what pointers point to. Nobody may write to what it looks at.
func (s Seen) Bytes(x any) int64 { return s.bytes(reflect.ValueOf(x)) }

func (s Seen) bytes(v reflect.Value) (total int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || s[v.UnsafePointer()] {
			return 0
		}
		s[v.UnsafePointer()] = true
		return s.bytes(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return s.bytes(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			total += s.bytes(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			total += s.bytes(v.Index(i))
		}
	case reflect.Slice:
		if v.Cap() == 0 || s[v.UnsafePointer()] {
			return 0
		}
		s[v.UnsafePointer()] = true
		total = int64(v.Cap()) * int64(v.Type().Elem().Size())
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Array:
			for i := range v.Len() {
				total += s.bytes(v.Index(i))
			}
		}
	}
	return total
}
