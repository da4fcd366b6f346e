package cpu

import (
	"math"
	"unsafe"
)

// Precision says what the factors of a dense product are rounded to. Sums are
// float32 always.
type Precision uint8

// The precisions.
const (
	Float32 Precision = iota
	// BFloat16 rounds factors to bfloat16 as VCVTNEPS2BF16 does, and adds their
	// products as VDPBF16PS does: to the nearest value, ties to even, denormals
	// replaced by zero; see SetPrecision.
	BFloat16
	// TF32 rounds factors to the nearest value of 11 significant bits. Only devices have it.
	TF32
)

// String returns the name that settings take.
func (p Precision) String() string {
	return [...]string{Float32: "float32", BFloat16: "bf16", TF32: "tf32"}[p]
}

// SetPrecision says what Gemm does to float32 operands from now on; float64 ones
// are left alone, as are all other kernels. It panics if the set of x does not
// have p (Set.Has).
//
// With BFloat16, element (i, j) of a product starts each block of 256 terms at
// +0 and, for every two terms 2q and 2q+1 of it, becomes
//
//	c = fma(a[2q+1], b[2q+1], c); c = fma(a[2q], b[2q], c)
//
// each rounded to the nearest float32, ties to even, and a result that is denormal
// to a zero of its sign; after an odd number of terms comes a pair's zero. Blocks
// are added as with Float32, without such zeros. A NaN stays one, its bits are
// unspecified. All sets that have BFloat16 agree bit by bit in the product itself.
func (x *Exec) SetPrecision(p Precision) {
	if !x.set.Has(p) {
		panic("cpu: SetPrecision: the kernel set does not have it here; ask Set.Has")
	}
	x.precision = p
}

// Precision returns what SetPrecision said last.
func (x *Exec) Precision() Precision { return x.precision }

// halve makes p a product of bfloat16 values, if it is one of float32 ones.
func (p *product[T]) halve() {
	if _, ok := as32(p.a); ok {
		p.half = true
	}
}

// bfloat16 rounds v to the nearest bfloat16 value, ties to even, in the lower half
// of the result. Denormals become a zero of their sign, NaNs quiet.
func bfloat16(v float32) uint32 {
	b := math.Float32bits(v)
	switch size := b &^ (1 << 31); {
	case size < 0x00800000:
		return b >> 31 << 15
	case size > 0x7f800000:
		return b>>16 | 0x40
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// words views panels of float32 values as pairs of bfloat16 values.
func words[T Float](s []T) []uint32 {
	f, _ := as32(s)
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), len(f))
}

// pairs packs what VDPBF16PS reads: for each two values of k, n pairs and zeros
// up to width. Value (k, j) is src[k*sk+j*sj]; one of the strides is 1.
type pairs struct {
	src    []float32
	sk, sj int
	n, kc  int
	width  int
	fast   bool // AVX-512
}

// halfPairs is the most pairs of one block of K.
const halfPairs = kBlock / 2

// nothing is the row after the last one.
var nothing [32]float32

func (t pairs) pack(dst []uint32) {
	if t.sj != 1 {
		t.packColumns(dst)
		return
	}
	for k := 0; k < t.kc; k += 2 {
		lo, hi := t.src[k*t.sk:][:t.n], nothing[:t.n]
		if k+1 < t.kc {
			hi = t.src[(k+1)*t.sk:][:t.n]
		}
		d := dst[k/2*t.width:][:t.width]
		if t.fast {
			fastRows(d, lo, hi)
		} else {
			for j, v := range lo {
				d[j] = bfloat16(v) | bfloat16(hi[j])<<16
			}
		}
		clear(d[t.n:])
	}
}

// packColumns is pack where the values of a column follow each other.
func (t pairs) packColumns(dst []uint32) {
	var column [halfPairs]uint32
	half := ceilDiv(t.kc, 2)
	for j := range t.n {
		src, q := t.src[j*t.sj:][:t.kc], 0
		if t.fast {
			q = fastPairs(column[:], src)
		}
		for ; q < t.kc/2; q++ {
			column[q] = bfloat16(src[2*q]) | bfloat16(src[2*q+1])<<16
		}
		if q < half {
			column[q] = bfloat16(src[2*q])
		}
		for q, v := range column[:half] {
			dst[q*t.width+j] = v
		}
	}
	if t.n == t.width {
		return
	}
	for q := range half {
		clear(dst[q*t.width+t.n : (q+1)*t.width])
	}
}

// packHalf is packPanels of pairs; each panel fills the first half of its place.
func (p *product[T]) packHalf(d []T, k0, kc, j, w int) {
	b, _ := as32(p.b)
	dst := words(d)
	for at := 0; at < w; at += p.nr {
		pairs{src: b[k0*p.rsb+(j+at)*p.csb:], sk: p.rsb, sj: p.csb, n: min(p.nr, w-at), kc: kc, width: p.nr, fast: p.set == AVX512}.pack(dst[at*kc:])
	}
}

// blockHalf is block of pairs.
func (p *product[T]) blockHalf(w *scratch, dst Matrix[T], panels []T, i0, i1, j0, j1, k0, kc int, acc, last bool) {
	a, _ := as32(p.a)
	d, _ := as32(dst.Data)
	bias, _ := as32(p.e.Bias)
	b := words(panels)
	half := ceilDiv(kc, 2)
	w.pairs = grow(w.pairs, p.mr*half)
	w.tile = grow(w.tile, p.mr*p.nr)
	for i := i0; i < i1; i += p.mr {
		rows := min(p.mr, i1-i)
		pairs{src: a[i*p.rsa+k0*p.csa:], sk: p.csa, sj: p.rsa, n: rows, kc: kc, width: p.mr, fast: p.set == AVX512}.pack(w.pairs)
		for j := j0; j < j1; j += p.nr {
			cols, panel := min(p.nr, j1-j), b[(j-j0)*kc:][:half*p.nr]
			if p.set == AVX512 && rows == p.mr && cols == p.nr {
				fastTile(half, w.pairs, panel, d[i*dst.Stride+j:], dst.Stride, acc)
			} else {
				if p.set == AVX512 {
					fastTile(half, w.pairs, panel, w.tile, p.nr, false)
				} else {
					tilePairs(w.tile, w.pairs, panel, p.mr, p.nr, rows)
				}
				for r := range rows {
					to, from := d[(i+r)*dst.Stride+j:][:cols], w.tile[r*p.nr:][:cols]
					if !acc {
						copy(to, from)
						continue
					}
					for q, v := range from {
						to[q] += v
					}
				}
			}
			if !last {
				continue
			}
			for r := i; r < i+rows; r++ {
				row := d[r*dst.Stride+j:][:cols]
				if bias != nil {
					finish(p.set, row, bias[j:j+cols], p.e.Act)
				} else {
					finish(p.set, row, nil, p.e.Act)
				}
			}
		}
	}
}

// tilePairs is the portable tile: it overwrites rows rows of c. nr is a multiple
// of 4.
func tilePairs(c []float32, a, b []uint32, mr, nr, rows int) {
	for r := range rows {
		for j := 0; j < nr; j += 4 {
			var c0, c1, c2, c3 float32
			for q, at := r, j; at < len(b); q, at = q+mr, at+nr {
				v := b[at : at+4 : at+4]
				hi, lo := upper(a[q]), lower(a[q])
				c0 = nearest(hi*upper(v[0]) + float64(c0))
				c1 = nearest(hi*upper(v[1]) + float64(c1))
				c2 = nearest(hi*upper(v[2]) + float64(c2))
				c3 = nearest(hi*upper(v[3]) + float64(c3))
				c0 = nearest(lo*lower(v[0]) + float64(c0))
				c1 = nearest(lo*lower(v[1]) + float64(c1))
				c2 = nearest(lo*lower(v[2]) + float64(c2))
				c3 = nearest(lo*lower(v[3]) + float64(c3))
			}
			copy(c[r*nr+j:], []float32{c0, c1, c2, c3})
		}
	}
}

func upper(pair uint32) float64 { return float64(math.Float32frombits(pair &^ 0xffff)) }
func lower(pair uint32) float64 { return float64(math.Float32frombits(pair << 16)) }

// tiny is the least size that rounds to a float32 that is not denormal.
const tiny = 0x1p-126 * (1 - 0x1p-25)

// nearest rounds a fused product and sum to float32, denormals to zero. The
// product of two bfloat16 values is exact in float64, so that a compiler may fuse
// or not; and to round its sum with a float32 to 53 bits and then to 24 is to
// round it once, since 53 >= 2·24+2 (Figueroa, 1995).
func nearest(v float64) float32 {
	if v < tiny && v > -tiny {
		return float32(math.Copysign(0, v))
	}
	return float32(v)
}
