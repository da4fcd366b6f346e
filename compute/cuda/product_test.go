//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
)

// whole makes values whole numbers, of which products have no rounding.
func whole(m cpu.Matrix[float32]) cpu.Matrix[float32] {
	for i, v := range m.Data {
		m.Data[i] = float32(int(v * 4))
	}
	return m
}

// Products in all orientations, with everything that they may end with, over views that
// are aligned and ones that are not, in every tile and with k split, are the processor's:
// exactly where nothing is rounded.
func TestGemm(t *testing.T) { newBench(t).products(t, productShapes, 1<<30) }

// Tiles that lie in a product as a whole, by all ways to read them, and terms that are no whole number of tiles.
func TestGemmWhole(t *testing.T) {
	for blocks, shapes := range map[int][][3]int{1: {{130, 132, 45}, {130, 64, 37}, {64, 64, 50}, {64, 64, 16}, {128, 128, 7}}, 8: {{128, 256, 1100}}} { // the last one split into parts
		t.Run(fmt.Sprint(blocks), func(t *testing.T) {
			defer cuda.Enough(blocks)()
			newBench(t).products(t, shapes, 1<<30)
		})
	}
}

var productShapes = [][3]int{{1, 1, 1}, {1, 200, 33}, {200, 1, 17}, {3, 5, 0}, {65, 63, 48}, {129, 257, 16}, {300, 20, 31}, {20, 300, 40}, {40, 36, 2101}, {70, 130, 15}, {1400, 130, 5}, {2000, 1030, 3}}

// products compares products, m×n of k terms each, of so many rows at the most.
func (b *bench) products(t *testing.T, shapes [][3]int, most int) {
	bias := make([]float32, 300)
	for i := range bias {
		bias[i] = float32(i%7) - 3
	}
	for _, s := range shapes {
		m, n, k := min(s[0], most), s[1], s[2]
		for form := range 3 {
			ta, tb := form == 1, form == 2
			for gap := range 2 {
				gap *= 3 // strides that are multiples of four, or not
				shape := func(rows, cols int, t bool) cpu.Matrix[float32] {
					if t {
						rows, cols = cols, rows
					}
					return whole(b.random(rows, cols, gap))
				}
				x, y, dst := shape(m, k, ta), shape(k, n, tb), shape(m, n, false)
				e := cpu.Epilogue[float32]{Act: cpu.Activation(form), Accumulate: gap > 0}
				if form > 0 && n <= len(bias) {
					e.Bias = bias[:n]
				}
				d, want := b.device(dst), clone(dst)
				cpu.Gemm(b.x, d, x, ta, y, tb, e)
				cpu.Gemm(b.host, want, x, ta, y, tb, e)
				b.same(fmt.Sprint(m, s, " ta ", ta, " tb ", tb, " gap ", gap), d, want, 1e-6)
				b.q.Reset()
			}
		}
	}
}

// rounded is m with values as a precision has them.
func rounded(m cpu.Matrix[float32], p cpu.Precision) cpu.Matrix[float32] {
	m = clone(m)
	for i, v := range m.Data {
		bits := math.Float32bits(v)
		switch {
		case v != v:
		case p == cpu.TF32: // the nearest, half away from 0
			m.Data[i] = math.Float32frombits((bits + 1<<12) &^ (1<<13 - 1))
		case p == cpu.BFloat16: // half to even
			m.Data[i] = math.Float32frombits((bits + 1<<15 - 1 + bits>>16&1) &^ (1<<16 - 1))
		}
	}
	return m
}

// On tensor cores products are those of factors that are rounded, within 1e-5 of the sum of their terms'
// sizes: exactly where nothing is rounded. A real cuBLAS cuts factors off, so its are within 4e-4 of that. What is not finite goes through, where it is alone.
func TestGemmPrecision(t *testing.T) {
	for i, p := range []cpu.Precision{cpu.TF32, cpu.BFloat16, cpu.TF32} {
		blas := []string{devices.OwnBLAS, devices.OwnBLAS, devices.CuBLAS}[i]
		t.Run(fmt.Sprint(p, " ", blas), func(t *testing.T) {
			b := newBench(t)
			if _, err := b.q.Device().UseBLAS(blas, p); err != nil && fakecuda.Real() && blas == devices.CuBLAS {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if blas == devices.OwnBLAS {
				defer cuda.Enough(1)() // large tiles, too
				b.products(t, productShapes, 130)
			}
			within := float32(1e-5)
			if fakecuda.Real() && blas == devices.CuBLAS {
				within = 4e-4
			}
			inf, nan := float32(math.Inf(1)), float32(math.NaN())
			for form := range 3 {
				for _, k := range []int{45, 1100} {
					m, n := 67, 41
					a, w, dst := b.random(m, k, 0), b.random(k, n, 0), b.random(m, n, 0)
					ta, tb := form == 1, form == 2
					if ta {
						a = b.random(k, m, 0)
					}
					if tb {
						w = b.random(n, k, 0)
					}
					d, want := b.device(dst), clone(dst)
					cpu.Gemm(b.x, d, a, ta, w, tb, cpu.Epilogue[float32]{})
					cpu.Gemm(b.host, want, rounded(a, p), ta, rounded(w, p), tb, cpu.Epilogue[float32]{})
					b.same(fmt.Sprint("form ", form, " of ", k), d, want, within*float32(k))
					a.Data[0], a.Data[1], a.Data[2] = nan, inf, 1e-40
					cpu.Gemm(b.x, d, b.device(a), ta, w, tb, cpu.Epilogue[float32]{})
					cpu.Gemm(b.host, want, rounded(a, p), ta, rounded(w, p), tb, cpu.Epilogue[float32]{})
					b.same(fmt.Sprint("form ", form, " of ", k, " with NaN"), d, want, within*float32(k))
				}
			}
		})
	}
}

// ELU, sums of two products, and products of one matrix with two.
func TestGemmOthers(t *testing.T) {
	b := newBench(t)
	x1, x2, w1, w2 := b.random(70, 40, 0), b.random(70, 24, 0), b.random(50, 40, 0), b.random(50, 24, 0)
	dst := b.random(70, 50, 0)
	d, want := b.device(dst), clone(dst)
	e := cpu.Epilogue[float32]{Bias: x1.Data[:50], Act: cpu.ELU, Accumulate: true}
	cpu.GemmAdd(b.x, d, x1, w1, x2, w2, e)
	cpu.GemmAdd(b.host, want, x1, w1, x2, w2, e)
	b.same("GemmAdd", d, want, 1e-4)
	g1, g2 := b.random(70, 40, 0), b.random(70, 24, 0)
	dg1, dg2 := b.device(g1), b.device(g2)
	a := b.random(90, 70, 0)
	y1, y2 := b.random(90, 40, 0), b.random(90, 24, 0)
	cpu.GemmBoth(b.x, dg1, dg2, a, y1, y2, false, true)
	cpu.GemmBoth(b.host, g1, g2, a, y1, y2, false, true)
	b.same("GemmBoth, first", dg1, g1, 1e-4)
	b.same("GemmBoth, second", dg2, g2, 1e-4)
}

// Sums over rows have the processor's bits.
func TestSums(t *testing.T) {
	b := newBench(t)
	for _, s := range append(shapes, [2]int{256, 3}, [2]int{1025, 200}) {
		for _, accumulate := range []bool{false, true} {
			m, dst := b.random(s[0], s[1], 1), b.random(1, s[1], 0)
			d, want := b.device(dst), clone(dst)
			cpu.ColumnSums(b.x, d.Data, m, accumulate)
			cpu.ColumnSums(b.host, want.Data, m, accumulate)
			b.same(fmt.Sprint("ColumnSums", s), d, want, 0)

			y := b.random(s[0], s[1], 0)
			d, want = b.device(m), clone(m)
			sums, wantSums := b.device(dst), clone(dst)
			cpu.ActivateBackwardSums(b.x, cpu.LeakyReLU, d, d, y, sums.Data, accumulate)
			cpu.ActivateBackwardSums(b.host, cpu.LeakyReLU, want, want, y, wantSums.Data, accumulate)
			b.same("ActivateBackwardSums", d, want, 0)
			b.same("ActivateBackwardSums, sums", sums, wantSums, 0)

			if got, want := cpu.Dot(b.x, m, y), cpu.Dot(b.host, m, y); got != want {
				t.Errorf("Dot %v is %v, not %v", s, got, want)
			}
		}
	}
}
