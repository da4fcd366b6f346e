// Package footprint adds up the memory that Go values hold: what a plan prints is
// compared with it.
package footprint

import (
	"cmp"
	"reflect"
	"slices"
	"unsafe"
)

// Seen are arrays and values that were counted, or are not to be.
type Seen map[unsafe.Pointer]bool

// Bytes returns the bytes in the arrays that slices hold which can be reached from
// x, through pointers, interfaces, structs, arrays and slices, but for those seen
// before; what several slices share counts once. It does not look into maps, channels and closures, and counts neither
// strings nor what pointers point to. Nobody may write to what it looks at.
func (s Seen) Bytes(x any) (total int64) {
	arrays := s.arrays(nil, reflect.ValueOf(x))
	slices.SortFunc(arrays, func(a, b array) int { return cmp.Compare(a.from, b.from) })
	end := uintptr(0)
	for _, a := range arrays {
		if a.to > end {
			total += int64(a.to - max(a.from, end))
			end = a.to
		}
	}
	return total
}

// array is the addresses of what a slice holds.
type array struct{ from, to uintptr }

// arrays appends those that can be reached from v.
func (s Seen) arrays(found []array, v reflect.Value) []array {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || s[v.UnsafePointer()] {
			return found
		}
		s[v.UnsafePointer()] = true
		return s.arrays(found, v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			return found
		}
		return s.arrays(found, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			found = s.arrays(found, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			found = s.arrays(found, v.Index(i))
		}
	case reflect.Slice:
		if v.Cap() == 0 || s[v.UnsafePointer()] {
			return found
		}
		s[v.UnsafePointer()] = true
		from := uintptr(v.UnsafePointer())
		found = append(found, array{from, from + uintptr(v.Cap())*v.Type().Elem().Size()})
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice, reflect.Array:
			for i := range v.Len() {
				found = s.arrays(found, v.Index(i))
			}
		}
	}
	return found
}
