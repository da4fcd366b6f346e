package cpu

import "math"

// Moments computes the mean and the biased variance of every column of a,
// whose lengths are a.Cols; without rows both are 0. Chunks of a fixed number
// of rows are summed on their own, first the values, then the squares of their
// differences to the chunk's mean, and joined in order in float64 (Chan, Golub
// and LeVeque, 1983): the same bits for any number of workers and in every
// kernel set, and no cancellation where the mean is large.
func Moments[T Float](x *Exec, a Matrix[T], mean, variance []T) {
	a.check()
	if len(mean) != a.Cols || len(variance) != a.Cols {
		panic(badShapes)
	}
	n := ceilDiv(a.Rows, sumRows)
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.Moments(a, mean, variance)
		return
	}
	s.parts = grow(s.parts, 2*n*a.Cols)
	s.moments = momentsTask[T]{set: x.set, a: a, parts: s.parts}
	x.each(n, &s.moments)
	s.moments = momentsTask[T]{}
	s.sums64 = grow(s.sums64, 2*a.Cols)
	mu, square := s.sums64[:a.Cols], s.sums64[a.Cols:]
	clear(s.sums64)
	for c := range n {
		before := float64(c * sumRows)
		rows := float64(min(a.Rows-c*sumRows, sumRows))
		part := s.parts[2*c*a.Cols:]
		for j, v := range part[:a.Cols] {
			d := float64(v) - mu[j]
			share := rows / (before + rows)
			mu[j] += float64(d * share)
			square[j] += float64(part[a.Cols+j]) + float64(float64(d*d)*float64(before*share))
		}
	}
	for j := range mean {
		mean[j], variance[j] = T(mu[j]), T(square[j]/float64(max(a.Rows, 1)))
	}
}

// momentsTask writes, for each chunk of rows, the means and the sums of squared
// differences to them.
type momentsTask[T Float] struct {
	set   Set
	a     Matrix[T]
	parts []T
}

func (t *momentsTask[T]) chunk(w *scratch, c int) {
	cols := t.a.Cols
	mean, square := t.parts[2*c*cols:][:cols], t.parts[(2*c+1)*cols:][:cols]
	a := t.a.View(c*sumRows, min(t.a.Rows, (c+1)*sumRows), 0, cols)
	sums := sumsTask[T]{set: t.set, a: a, parts: mean}
	sums.chunk(w, 0)
	f := 1 / T(a.Rows)
	for j := range mean {
		mean[j] *= f
	}
	if squaresFast(t.set, square, a, mean) {
		return
	}
	clear(square)
	for i := range a.Rows {
		for j, v := range a.Row(i) {
			d := v - mean[j]
			square[j] += T(d * d)
		}
	}
}

// BatchNorm computes dst[i] = γ∘(a[i]-mean)/√(variance+eps) + β (Ioffe and
// Szegedy, 2015), with the moments of a batch (see Moments) or running ones. A
// nil gamma is 1, a nil beta 0. dst may be a. A variance of 0 with eps 0 gives
// NaN.
func BatchNorm[T Float](x *Exec, dst, a Matrix[T], gamma, beta []T, eps float64, mean, variance []T) {
	dst.check()
	a.check()
	if dst.Rows != a.Rows || dst.Cols != a.Cols || gamma != nil && len(gamma) != a.Cols || beta != nil && len(beta) != a.Cols || len(mean) != a.Cols || len(variance) != a.Cols {
		panic(badShapes)
	}
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.BatchNorm(dst, a, gamma, beta, eps, mean, variance)
		return
	}
	s.columns = grow(s.columns, 2*a.Cols)
	scale, shift := s.columns[:a.Cols], s.columns[a.Cols:]
	for j, v := range variance {
		f := 1 / math.Sqrt(float64(v)+eps)
		if gamma != nil {
			f *= float64(gamma[j])
		}
		scale[j], shift[j] = T(f), 0
	}
	copy(shift, beta)
	s.batch = batchTask[T]{set: x.set, dst: dst, a: a, mean: mean, scale: scale, shift: shift}
	s.batch.run(x)
	s.batch = batchTask[T]{}
}

// BatchNormBackward computes, from dy, the gradient of the result, that of a
// (da, which may be dy; no Data: not wanted) and those of γ and β (of length
// a.Cols; nil: not wanted). mean and variance must be the moments of a, which
// the gradient flows through: with n = (a-mean)·r, r = 1/√(variance+eps) and N
// rows,
//
//	dβ = Σ_i dy[i]    dγ = Σ_i dy[i]∘n[i]
//	da[i] = γ·r∘(dy[i] - dβ/N - n[i]∘dγ/N)
//
// which is exactly 0 for a single row, whose result is β whatever it holds.
// Sums are made as ColumnSums makes them, the chunks' in float64.
func BatchNormBackward[T Float](x *Exec, da, dy, a Matrix[T], gamma []T, eps float64, mean, variance, dgamma, dbeta []T) {
	dy.check()
	a.check()
	cols := a.Cols
	if dy.Rows != a.Rows || dy.Cols != cols || gamma != nil && len(gamma) != cols || len(mean) != cols || len(variance) != cols ||
		dgamma != nil && len(dgamma) != cols || dbeta != nil && len(dbeta) != cols {
		panic(badShapes)
	}
	if da.Data != nil {
		da.check()
		if da.Rows != a.Rows || da.Cols != cols {
			panic(badShapes)
		}
	}
	if s := tasksOf[T](x); s.device != nil {
		s.device.BatchNormBackward(da, dy, a, gamma, eps, mean, variance, dgamma, dbeta)
		return
	}
	BatchNormBackwardOf(x, da, dy, a, gamma, eps, mean, variance, dgamma, dbeta, a.Rows, nil)
}

// BatchNormBackwardOf is BatchNormBackward, of sizes that fit, for some of the rows that the moments are of: share, which
// may be nil, adds to the sums over the rows of a what they are over the others, of rows in all. dγ and dβ are those of a's
// rows alone.
func BatchNormBackwardOf[T Float](x *Exec, da, dy, a Matrix[T], gamma []T, eps float64, mean, variance, dgamma, dbeta []T, rows int, share func(sums []float64)) {
	cols := a.Cols
	n := ceilDiv(a.Rows, sumRows)
	s := tasksOf[T](x)
	s.parts = grow(s.parts, 2*n*cols)
	s.dots = dotsTask[T]{set: x.set, dy: dy, a: a, mean: mean, parts: s.parts}
	x.each(n, &s.dots)
	s.dots = dotsTask[T]{}
	s.sums64 = grow(s.sums64, 2*cols)
	clear(s.sums64)
	for c := range n {
		for j, v := range s.parts[2*c*cols:][:2*cols] {
			s.sums64[j] += float64(v)
		}
	}
	s.columns = grow(s.columns, 3*cols)
	scale, slope, shift := s.columns[:cols], s.columns[cols:2*cols], s.columns[2*cols:]
	for j, v := range variance {
		if dgamma != nil {
			dgamma[j] = T(s.sums64[cols+j] * (1 / math.Sqrt(float64(v)+eps)))
		}
		if dbeta != nil {
			dbeta[j] = T(s.sums64[j])
		}
	}
	if share != nil {
		share(s.sums64)
	}
	all := float64(max(rows, 1))
	for j, v := range variance {
		r := 1 / math.Sqrt(float64(v)+eps)
		g := 1.0
		if gamma != nil {
			g = float64(gamma[j])
		}
		sum, dot := s.sums64[j], s.sums64[cols+j]*r
		scale[j], slope[j], shift[j] = T(g*r), T(-g*r*r*dot/all), T(-g*r*sum/all)
	}
	if da.Data == nil {
		return
	}
	if rows == 1 {
		Fill(x, da, 0)
		return
	}
	s.batch = batchTask[T]{set: x.set, dst: da, a: a, dy: dy, mean: mean, scale: scale, slope: slope, shift: shift}
	s.batch.run(x)
	s.batch = batchTask[T]{}
}

// dotsTask writes, for each chunk of rows, the columns' sums of dy and of
// dy∘(a-mean).
type dotsTask[T Float] struct {
	set   Set
	dy, a Matrix[T]
	mean  []T
	parts []T
}

func (t *dotsTask[T]) chunk(_ *scratch, c int) {
	cols := t.a.Cols
	sum, dot := t.parts[2*c*cols:][:cols], t.parts[(2*c+1)*cols:][:cols]
	i0, i1 := c*sumRows, min(t.a.Rows, (c+1)*sumRows)
	if dotsFast(t.set, sum, dot, t.dy.View(i0, i1, 0, cols), t.a.View(i0, i1, 0, cols), t.mean) {
		return
	}
	clear(sum)
	clear(dot)
	for i := i0; i < i1; i++ {
		r := t.a.Row(i)
		for j, v := range t.dy.Row(i) {
			sum[j] += v
			dot[j] += T(v * T(r[j]-t.mean[j]))
		}
	}
}

// batchTask computes dst = scale∘(a-mean) + shift or, with dy, dst = scale∘dy +
// slope∘(a-mean) + shift.
type batchTask[T Float] struct {
	set                       Set
	dst, a, dy                Matrix[T]
	mean, scale, slope, shift []T
	rows                      int
}

func (t *batchTask[T]) run(x *Exec) {
	if t.a.Cols == 0 {
		return
	}
	t.rows = max(1, elementsPerChunk/t.a.Cols)
	x.each(ceilDiv(t.a.Rows, t.rows), t)
}

func (t *batchTask[T]) chunk(_ *scratch, c int) {
	for i := c * t.rows; i < min(t.a.Rows, (c+1)*t.rows); i++ {
		d, r := t.dst.Row(i), t.a.Row(i)
		if t.slope == nil {
			if normalizeFast(t.set, d, r, t.mean, t.scale, t.shift) {
				continue
			}
			for j, v := range r {
				d[j] = T(T(v-t.mean[j])*t.scale[j]) + t.shift[j]
			}
			continue
		}
		g := t.dy.Row(i)
		if normalizeBackwardFast(t.set, d, g, r, t.mean, t.scale, t.slope, t.shift) {
			continue
		}
		for j, v := range r {
			d[j] = T(g[j]*t.scale[j]) + T(T(v-t.mean[j])*t.slope[j]) + t.shift[j]
		}
	}
}
