package cpu

// Dot returns Σ a∘b over all elements of two matrices of the same shape, summed
// in float64: within chunks of rows, then over the chunks in order.
func Dot[T Float](x *Exec, a, b Matrix[T]) float64 {
	a.check()
	b.check()
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic(badShapes)
	}
	n := ceilDiv(a.Rows, sumRows)
	s := tasksOf[T](x)
	s.losses = grow(s.losses, n)
	parts := s.losses
	x.pool.For(n, func(_, c int) {
		sum := 0.0
		for i := c * sumRows; i < min(a.Rows, (c+1)*sumRows); i++ {
			r := b.Row(i)
			for j, v := range a.Row(i) {
				sum += float64(float64(v) * float64(r[j]))
			}
		}
		parts[c] = sum
	})
	sum := 0.0
	for _, v := range parts {
		sum += v
	}
	return sum
}
