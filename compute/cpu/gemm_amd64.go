package cpu

import "unsafe"

// tileFunc is a micro-kernel; see internal/asm/cpu.
type tileFunc = func(kc int, a *float32, rs, cs int, b, c *float32, ldc, w int, bias *float32, flags int)

// tiles are the micro-kernels of one set for one height.
type tiles struct {
	rows   int
	whole  tileFunc // two vectors of columns
	part   tileFunc // the first w of two vectors
	narrow tileFunc // the first w of one vector
}

var (
	tilesAVX2 = []tiles{
		{6, tile6x16AVX2, tile6x16mAVX2, tile6x8mAVX2},
		{4, tile4x16AVX2, tile4x16mAVX2, tile4x8mAVX2},
		{2, tile2x16AVX2, tile2x16mAVX2, tile2x8mAVX2},
		{1, tile1x16AVX2, tile1x16mAVX2, tile1x8mAVX2},
	}
	tilesAVX512 = []tiles{
		{14, tile14x32AVX512, tile14x32mAVX512, tile14x16mAVX512},
		{8, tile8x32AVX512, tile8x32mAVX512, tile8x16mAVX512},
		{4, tile4x32AVX512, tile4x32mAVX512, tile4x16mAVX512},
		{2, tile2x32AVX512, tile2x32mAVX512, tile2x16mAVX512},
		{1, tile1x32AVX512, tile1x32mAVX512, tile1x16mAVX512},
	}
)

const (
	flagAccumulate = 1 << iota
	flagReLU
)

// kernelFor sets the register tile that set uses for elements of type T.
func (p *product[T]) kernelFor(set Set) {
	p.set, p.mr, p.nr = Go, portableRows, portableCols
	if _, ok := as32(p.a); !ok {
		return
	}
	switch set {
	case AVX2:
		p.set, p.mr, p.nr = set, 6, 16
	case AVX512:
		p.set, p.mr, p.nr = set, 14, 32
	}
}

// packFast packs a panel in assembly if it can.
func (p *product[T]) packFast(d []T, k0, kc, j, w int) bool {
	if p.set == Go || p.csb != 1 || w != p.nr {
		return false
	}
	d32, _ := as32(d)
	b32, _ := as32(p.b[k0*p.rsb+j : (k0+kc-1)*p.rsb+j+w])
	if p.set == AVX2 {
		packAVX2(&d32[0], &b32[0], 4*p.rsb, kc)
	} else {
		packAVX512(&d32[0], &b32[0], 4*p.rsb, kc)
	}
	return true
}

// block computes dst[i0:i1, j0:j1] (+)= op(A)[i0:i1, k0:k0+kc]·panels. acc says
// whether dst is added to; last, whether the epilogue follows.
func (p *product[T]) block(w *scratch, dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool) {
	if p.set == Go {
		p.blockPortable(dst, panels, i0, i1, j0, j1, k0, kc, acc, last)
		return
	}
	a, _ := as32(p.a)
	d, _ := as32(dst.Data)
	b, _ := as32(panels)
	var bias []float32
	flags := 0
	if acc {
		flags |= flagAccumulate
	}
	if last {
		bias, _ = as32(p.e.Bias)
		if p.e.Act == ReLU {
			flags |= flagReLU
		}
	}
	heights := tilesAVX2
	if p.set == AVX512 {
		heights = tilesAVX512
	}
	// The last values that are read and written.
	_ = a[(i1-1)*p.rsa+(k0+kc-1)*p.csa]
	_ = d[(i1-1)*dst.Stride+j1-1]
	_ = b[kc*roundUp(j1-j0, p.nr)-1]
	nr := p.nr
	for h, i := 0, i0; i < i1; {
		for heights[h].rows > i1-i {
			h++
		}
		t := &heights[h]
		pa, rs, cs := &a[i*p.rsa+k0*p.csa], 4*p.rsa, 4*p.csa
		if p.rsa == 1 && t.rows == p.mr && j1-j0 > nr {
			w.tile = grow(w.tile, p.mr*kBlock)
			if p.set == AVX2 {
				pack6AVX2(&w.tile[0], pa, cs, kc)
			} else {
				pack14AVX512(&w.tile[0], pa, cs, kc)
			}
			pa, rs, cs = &w.tile[0], 4, 4*p.mr
		}
		pd := unsafe.Pointer(&d[i*dst.Stride+j0])
		pb := unsafe.Pointer(&b[0])
		var pbias unsafe.Pointer
		if bias != nil {
			pbias = unsafe.Pointer(&bias[j0])
		}
		for left := j1 - j0; ; left -= nr {
			f := t.whole
			if left < nr {
				f = t.part
			}
			f(kc, pa, rs, cs, (*float32)(pb), (*float32)(pd), 4*dst.Stride, left, (*float32)(pbias), flags)
			if left <= nr {
				break
			}
			pb = unsafe.Add(pb, 4*nr*kc)
			pd = unsafe.Add(pd, 4*nr)
			if pbias != nil {
				pbias = unsafe.Add(pbias, 4*nr)
			}
		}
		i += t.rows
	}
}
