package machinelimits

import (
	"runtime"
	"unsafe"
)

// randomLoads loads values of 8 bytes at positions that no load decides. The positions are made before, so
// that as many loads as the processor can hold are under way.
func (m *Machine) randomLoads(thread int) float64 {
	t := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(m.table))), len(m.table)/2)
	mask, sum := uint64(len(t)-1), uint64(0)
	first := loads * uint64(thread+1)
	var at [256]uint64
	for i := first; i < first+loads; i += uint64(len(at)) {
		for k := range at {
			at[k] = mix(i+uint64(k)) & mask
		}
		for _, k := range at {
			sum += t[k]
		}
	}
	runtime.KeepAlive(sum)
	return loads
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
