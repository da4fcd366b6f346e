package cpu

import "math"

// LayerNorm computes dst[i] = γ∘(a[i]-μ_i)·r_i + β for every row, where μ_i is
// the row's mean, r_i = 1/√(variance + eps), and the variance is the biased one
// (Ba, Kiros and Hinton, 2016). It keeps μ and r, one of each per row, for the
// backward pass. Sums are made in float64.
func LayerNorm[T Float](x *Exec, dst, a Matrix[T], gamma, beta []T, eps float64, mean, rstd []T) {
	dst.check()
	a.check()
	if dst.Rows != a.Rows || dst.Cols != a.Cols || len(gamma) != a.Cols || len(beta) != a.Cols || len(mean) != a.Rows || len(rstd) != a.Rows || a.Cols == 0 {
		panic(badShapes)
	}
	x.pool.For(ceilDiv(a.Rows, rowsPerChunk), func(_, c int) {
		for i := c * rowsPerChunk; i < min(a.Rows, (c+1)*rowsPerChunk); i++ {
			r, d := a.Row(i), dst.Row(i)
			sum := 0.0
			for _, v := range r {
				sum += float64(v)
			}
			mu := sum / float64(len(r))
			squares := 0.0
			for _, v := range r {
				e := float64(v) - mu
				squares += float64(e * e)
			}
			mean[i], rstd[i] = T(mu), T(1/math.Sqrt(squares/float64(len(r))+eps))
			for j, v := range r {
				d[j] = T(gamma[j]*T((v-mean[i])*rstd[i])) + beta[j]
			}
		}
	})
}

// LayerNormBackward computes the gradient da with respect to LayerNorm's input a
// from dy, that of its result; da may be dy. With n_i = (a[i]-μ_i)·r_i and
// h = γ∘dy[i], da[i] = r_i·(h - mean(h) - n_i·mean(h∘n_i)). If terms is not
// empty it becomes dy∘n, whose column sums are the gradient of γ.
func LayerNormBackward[T Float](x *Exec, da, dy, a Matrix[T], gamma, mean, rstd []T, terms Matrix[T]) {
	da.check()
	dy.check()
	a.check()
	if da.Rows != a.Rows || da.Cols != a.Cols || dy.Rows != a.Rows || dy.Cols != a.Cols || len(gamma) != a.Cols || len(mean) != a.Rows || len(rstd) != a.Rows {
		panic(badShapes)
	}
	x.pool.For(ceilDiv(a.Rows, rowsPerChunk), func(_, c int) {
		for i := c * rowsPerChunk; i < min(a.Rows, (c+1)*rowsPerChunk); i++ {
			r, g, d := a.Row(i), dy.Row(i), da.Row(i)
			mu, rs := mean[i], rstd[i]
			var sum, dot float64
			for j, v := range g {
				h := float64(gamma[j]) * float64(v)
				sum += h
				dot += float64(h * float64((r[j]-mu)*rs))
			}
			mh, mhn := T(sum/float64(len(g))), T(dot/float64(len(g)))
			for j, v := range g {
				n := T((r[j] - mu) * rs)
				if terms.Data != nil {
					terms.Row(i)[j] = v * n
				}
				d[j] = rs * (T(gamma[j]*v) - mh - T(n*mhn))
			}
		}
	})
}
