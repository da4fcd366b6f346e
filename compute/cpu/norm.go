package cpu

import "math"

// LayerNorm computes dst[i] = γ∘(a[i]-μ_i)·r_i + β for every row, where μ_i is
// the row's mean, r_i = 1/√(variance + eps), and the variance is the biased one
// (Ba, Kiros and Hinton, 2016). It keeps μ and r, one of each per row, for the
// backward pass. A row is summed in 8 lanes, by column modulo 8, and those in
// float64.
func LayerNorm[T Float](x *Exec, dst, a Matrix[T], gamma, beta []T, eps float64, mean, rstd []T) {
	dst.check()
	a.check()
	if dst.Rows != a.Rows || dst.Cols != a.Cols || len(gamma) != a.Cols || len(beta) != a.Cols || len(mean) != a.Rows || len(rstd) != a.Rows || a.Cols == 0 {
		panic(badShapes)
	}
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.LayerNorm(dst, a, gamma, beta, eps, mean, rstd)
		return
	}
	s.layer = layerTask[T]{dst: dst, a: a, gamma: gamma, beta: beta, eps: eps, mean: mean, rstd: rstd}
	x.each(ceilDiv(a.Rows, rowsPerChunk), &s.layer)
	s.layer = layerTask[T]{}
}

type layerTask[T Float] struct {
	dst, a, dy, terms       Matrix[T]
	gamma, beta, mean, rstd []T
	eps                     float64
	backward                bool
}

func (t *layerTask[T]) chunk(_ *scratch, c int) {
	for i := c * rowsPerChunk; i < min(t.a.Rows, (c+1)*rowsPerChunk); i++ {
		if t.backward {
			t.gradient(i)
		} else {
			t.normalize(i)
		}
	}
}

func (t *layerTask[T]) normalize(i int) {
	r, d := t.a.Row(i), t.dst.Row(i)
	mu := T(rowSum(r) / float64(len(r)))
	rs := T(1 / math.Sqrt(rowSquares(r, mu)/float64(len(r))+t.eps))
	t.mean[i], t.rstd[i] = mu, rs
	gamma, beta := t.gamma[:len(d)], t.beta[:len(d)]
	for j, v := range r[:len(d)] {
		d[j] = T(gamma[j]*T((v-mu)*rs)) + beta[j]
	}
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
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.LayerNormBackward(da, dy, a, gamma, mean, rstd, terms)
		return
	}
	s.layer = layerTask[T]{backward: true, dst: da, dy: dy, a: a, gamma: gamma, mean: mean, rstd: rstd, terms: terms}
	x.each(ceilDiv(a.Rows, rowsPerChunk), &s.layer)
	s.layer = layerTask[T]{}
}

func (t *layerTask[T]) gradient(i int) {
	d := t.dst.Row(i)
	r, g, gamma := t.a.Row(i)[:len(d)], t.dy.Row(i)[:len(d)], t.gamma[:len(d)]
	mu, rs := t.mean[i], t.rstd[i]
	sum, dot := rowDots(g, gamma, r, mu)
	mh, mhn := T(sum/float64(len(g))), T(dot*float64(rs)/float64(len(g)))
	if t.terms.Data != nil {
		n := t.terms.Row(i)[:len(d)]
		for j, v := range g {
			n[j] = v * T((r[j]-mu)*rs)
		}
	}
	for j, v := range g {
		n := T((r[j] - mu) * rs)
		d[j] = rs * (T(gamma[j]*v) - mh - T(n*mhn))
	}
}

// lanes is in how many sums a row is added up.
const lanes = 8

// fold adds the sums of the lanes.
func fold[T Float](s *[lanes]T) float64 {
	sum := 0.0
	for _, v := range s {
		sum += float64(v)
	}
	return sum
}

// rowSum returns Σ a.
func rowSum[T Float](a []T) float64 {
	var s [lanes]T
	for ; len(a) >= lanes; a = a[lanes:] {
		for l, v := range a[:lanes] {
			s[l] += v
		}
	}
	for l, v := range a {
		s[l] += v
	}
	return fold(&s)
}

// rowSquares returns Σ (a-mu)².
func rowSquares[T Float](a []T, mu T) float64 {
	var s [lanes]T
	for ; len(a) >= lanes; a = a[lanes:] {
		for l, v := range a[:lanes] {
			s[l] += T((v - mu) * (v - mu))
		}
	}
	for l, v := range a {
		s[l] += T((v - mu) * (v - mu))
	}
	return fold(&s)
}

// rowDots returns Σ h and Σ h∘(a-mu), with h = g∘gamma.
func rowDots[T Float](g, gamma, a []T, mu T) (sum, dot float64) {
	var s, d [lanes]T
	for ; len(g) >= lanes; g, gamma, a = g[lanes:], gamma[lanes:], a[lanes:] {
		f, r := gamma[:lanes], a[:lanes]
		for l, v := range g[:lanes] {
			h := T(v * f[l])
			s[l] += h
			d[l] += T(h * (r[l] - mu))
		}
	}
	for l, v := range g {
		h := T(v * gamma[l])
		s[l] += h
		d[l] += T(h * (a[l] - mu))
	}
	return fold(&s), fold(&d)
}
