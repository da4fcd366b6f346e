package sampling

import (
	"reflect"
	"unsafe"
)

// Memory is what samplers keep in memory beside the graph and the data, in bytes.
type Memory struct {
	// Shared is what all samplers of a Prepared use: tables to draw from,
	// estimates of the normalisation, clusters, generations of a cache.
	Shared int64
	// Sampler is what each sampler has before its first batch: at most one bit
	// per node. Its scratch memory grows beside it with its largest batch.
	Sampler int64
}

// Memory returns what p's samplers keep in memory. For "gns" it draws the first
// generation of the cache, unless that is drawn, and counts as many generations
// as are kept at most.
func (p *Prepared) Memory() Memory {
	seen := make(map[unsafe.Pointer]bool)
	size := func(x any) int64 { return held(reflect.ValueOf(x), seen) }
	size(p.data)
	size(p.g)
	if p.times != nil {
		size(*p.times)
	}
	if p.caches != nil {
		seen[unsafe.Pointer(p.caches)] = true // it may be in use
	}
	m := Memory{Shared: size(p)}
	first := size(p.NewSampler())
	m.Sampler = size(p.NewSampler())
	m.Shared += first - m.Sampler
	if p.caches != nil {
		m.Shared += 2*size(p.caches.p) + keepGenerations*size(p.caches.At(0)) // one p for the keys of the generation that is drawn
	}
	return m
}

// held returns the bytes in the arrays that can be reached from v, but for those
// seen before.
func held(v reflect.Value, seen map[unsafe.Pointer]bool) (total int64) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.UnsafePointer()] {
			return 0
		}
		seen[v.UnsafePointer()] = true
		return held(v.Elem(), seen)
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return held(v.Elem(), seen)
	case reflect.Struct:
		for i := range v.NumField() {
			total += held(v.Field(i), seen)
		}
	case reflect.Slice:
		if v.Cap() == 0 || seen[v.UnsafePointer()] {
			return 0
		}
		seen[v.UnsafePointer()] = true
		total = int64(v.Cap()) * int64(v.Type().Elem().Size())
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Slice:
			for i := range v.Len() {
				total += held(v.Index(i), seen)
			}
		}
	}
	return total
}
