package cpu

import (
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

var elementKernels = [...]func(d, a, b *float32, n int, f float32){
	OpAdd: addAVX2, OpAxpy: axpyAVX2, OpScale: scaleAVX2, OpMultiply: multiplyAVX2,
	OpReLU: reluAVX2, OpReLUBackward: reluBackwardAVX2,
	OpLeaky: leakyAVX2, OpLeakyBackward: leakyBackwardAVX2, OpELU: eluAVX2, OpELUBackward: eluBackwardAVX2,
}

func (t *elementTask[T]) fast(d, a, b []T) bool {
	d32, ok := as32(d)
	if !ok || t.set == Go || len(d) == 0 || int(t.op) >= len(elementKernels) || elementKernels[t.op] == nil {
		return false
	}
	a32, _ := as32(a[:len(d)])
	b32, _ := as32(b[:len(d)])
	elementKernels[t.op](&d32[0], &a32[0], &b32[0], len(d), float32(t.f))
	return true
}

func (t *dropoutTask[T]) fast(d, s []T, key uint64, threshold uint32, scale T) bool {
	d32, ok := as32(d)
	if !ok || t.set == Go {
		return false
	}
	s32, _ := as32(s[:len(d)])
	dropoutAVX2(&d32[0], &s32[0], len(d), key, threshold, float32(scale))
	return true
}

func (t *sumsTask[T]) fast(w *scratch, d []T, i0, i1 int) bool {
	d32, ok := as32(d)
	if !ok || t.set == Go || len(d) == 0 {
		return false
	}
	a, _ := as32(t.a.Data[i0*t.a.Stride : (i1-1)*t.a.Stride+t.a.Cols])
	n := i1 - i0
	w.offsets = grow(w.offsets, n+ahead)
	for i := range w.offsets {
		w.offsets[i] = uint64(4 * t.a.Stride * min(i, n-1))
	}
	w.counts = append(w.counts[:0], int32(n))
	t.set.sums(graph.Float32)(&d32[0], 0, first(w.counts), 1, first(w.offsets), first(w.ones32(n)), nil, (*byte)(unsafe.Pointer(&a[0])), nil, len(d), 0)
	return true
}

func (t *adamTask[T]) fast(p, m, v, g []T) bool {
	p32, ok := as32(p)
	if !ok || t.set == Go || len(p) == 0 {
		return false
	}
	m32, _ := as32(m)
	v32, _ := as32(v)
	g32, _ := as32(g)
	f := &t.f
	settings := [...]float32{float32(f.Beta1), float32(f.Rest1), float32(f.Beta2), float32(f.Rest2), float32(f.Step),
		float32(f.Root), float32(f.Epsilon), float32(f.Scale), float32(f.Decay), float32(f.Keep)}
	adamAVX2(&p32[0], &m32[0], &v32[0], &g32[0], len(p), &settings[0])
	return true
}
