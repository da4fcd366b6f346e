//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// row views v as a matrix of one row, row returns its values.
func row(v []float32) f32 { return cpu.Dense(1, len(v), v) }

// Layer norms have the processor's bits, where a row has a NaN, an infinity, or one
// value only, too; the backward pass may overwrite its gradient.
func TestLayerNorm(t *testing.T) {
	b := newBench(t)
	for _, s := range shapes {
		rows, cols := s[0], s[1]
		b.renew()
		a, dy, dst, terms := b.random(rows, cols, 1), b.random(rows, cols, 0), b.random(rows, cols, 2), b.random(rows, cols, 1)
		a.Row(rows / 2)[cols/2] = float32(math.NaN())
		a.Row(rows - 1)[0] = float32(math.Inf(1))
		gamma, beta, mean, rstd := b.floats(cols), b.floats(cols), b.floats(rows), b.floats(rows)
		d, dmean, drstd, dterms, da := b.device(dst), b.device(row(mean)), b.device(row(rstd)), b.device(terms), b.device(dy)
		cpu.LayerNorm(b.x, d, b.device(a), gamma, beta, 1e-5, dmean.Data, drstd.Data)
		cpu.LayerNorm(b.host, dst, a, gamma, beta, 1e-5, mean, rstd)
		b.same(fmt.Sprint("normalized ", s), d, dst, 0)
		b.same(fmt.Sprint("means ", s), dmean, row(mean), 0)
		b.same(fmt.Sprint("deviations ", s), drstd, row(rstd), 0)
		for _, with := range []bool{false, true} {
			dt, ht := dterms, terms
			if !with {
				dt, ht = f32{}, f32{}
			}
			cpu.LayerNormBackward(b.x, da, da, b.device(a), gamma, dmean.Data, drstd.Data, dt)
			cpu.LayerNormBackward(b.host, dy, dy, a, gamma, mean, rstd, ht)
			b.same(fmt.Sprint("gradient ", s, with), da, dy, 0)
			b.same(fmt.Sprint("terms ", s, with), dterms, terms, 0)
		}
	}
}

// Batch norms have the processor's bits over one row, parts of rows, and columns whose
// mean is large.
func TestBatchNorm(t *testing.T) {
	b := newBench(t)
	for _, s := range append(shapes, [2]int{255, 3}, [2]int{257, 65}, [2]int{1030, 300}) {
		rows, cols := s[0], s[1]
		b.renew()
		a, dy, dst := b.random(rows, cols, 1), b.random(rows, cols, 3), b.random(rows, cols, 2)
		for i := range a.Data {
			if a.Data[i] += float32(i % 3 * 1000); i == len(a.Data)/2 && rows > 3 {
				a.Data[i] = float32(math.NaN())
			}
		}
		gamma, beta, mean, variance, dgamma, dbeta := b.floats(cols), b.floats(cols), b.floats(cols), b.floats(cols), b.floats(cols), b.floats(cols)
		da, dd := b.device(a), b.device(dst)
		dmean, dvariance, ddgamma, ddbeta := b.device(row(mean)), b.device(row(variance)), b.device(row(dgamma)), b.device(row(dbeta))
		cpu.Moments(b.x, da, dmean.Data, dvariance.Data)
		cpu.Moments(b.host, a, mean, variance)
		b.same(fmt.Sprint("means ", s), dmean, row(mean), 0)
		b.same(fmt.Sprint("variances ", s), dvariance, row(variance), 0)
		for _, params := range [][2][]float32{{nil, nil}, {gamma, beta}, {gamma, nil}} {
			cpu.BatchNorm(b.x, dd, da, params[0], params[1], 1e-5, dmean.Data, dvariance.Data)
			cpu.BatchNorm(b.host, dst, a, params[0], params[1], 1e-5, mean, variance)
			b.same(fmt.Sprint("normalized ", s), dd, dst, 0)
			ddy, hdy := b.device(dy), clone(dy)
			if params[1] == nil { // the gradient of a alone is not wanted
				cpu.BatchNormBackward(b.x, f32{}, ddy, da, params[0], 1e-5, dmean.Data, dvariance.Data, ddgamma.Data, ddbeta.Data)
				cpu.BatchNormBackward(b.host, f32{}, hdy, a, params[0], 1e-5, mean, variance, dgamma, dbeta)
			} else {
				cpu.BatchNormBackward(b.x, ddy, ddy, da, params[0], 1e-5, dmean.Data, dvariance.Data, ddgamma.Data, nil)
				cpu.BatchNormBackward(b.host, hdy, hdy, a, params[0], 1e-5, mean, variance, dgamma, nil)
			}
			b.same(fmt.Sprint("gradient ", s), ddy, hdy, 0)
			b.same(fmt.Sprint("gradient of gamma ", s), ddgamma, row(dgamma), 0)
			b.same(fmt.Sprint("gradient of beta ", s), ddbeta, row(dbeta), 0)
		}
	}
	mean, variance := b.device(row(b.floats(5))), b.device(row(b.floats(5)))
	cpu.Moments(b.x, f32{Cols: 5, Stride: 5}, mean.Data, variance.Data)
	b.same("means of nothing", mean, row(make([]float32, 5)), 0)
	b.same("variances of nothing", variance, row(make([]float32, 5)), 0)
}
