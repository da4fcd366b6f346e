package cpu

// Dot returns Σ a∘b over all elements of two matrices of the same shape. A row
// is summed in float64 in 8 lanes, by column modulo 8; then its lanes, the rows
// of a chunk, and the chunks are added in order.
func Dot[T Float](x *Exec, a, b Matrix[T]) float64 {
	a.check()
	b.check()
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic(badShapes)
	}
	s := tasksOf[T](x)
	if s.device != nil {
		return s.device.Dot(a, b)
	}
	n := ceilDiv(a.Rows, sumRows)
	s.losses = grow(s.losses, n)
	s.dot = dotTask[T]{a: a, b: b, parts: s.losses}
	x.each(n, &s.dot)
	s.dot = dotTask[T]{}
	sum := 0.0
	for _, v := range s.losses {
		sum += v
	}
	return sum
}

type dotTask[T Float] struct {
	a, b  Matrix[T]
	parts []float64
}

func (t *dotTask[T]) chunk(_ *scratch, c int) {
	sum := 0.0
	for i := c * sumRows; i < min(t.a.Rows, (c+1)*sumRows); i++ {
		sum += rowDot(t.a.Row(i), t.b.Row(i))
	}
	t.parts[c] = sum
}

// rowDot returns Σ a∘b.
func rowDot[T Float](a, b []T) float64 {
	var s [lanes]float64
	for ; len(a) >= lanes; a, b = a[lanes:], b[lanes:] {
		r := b[:lanes]
		for l, v := range a[:lanes] {
			s[l] += float64(float64(v) * float64(r[l]))
		}
	}
	for l, v := range a {
		s[l] += float64(float64(v) * float64(b[l]))
	}
	return fold(&s)
}
