package cpu

// squaresFast computes d[j] = Σ_i (a[i][j]-mean[j])² in assembly, if it can.
func squaresFast[T Float](set Set, d []T, a Matrix[T], mean []T) bool {
	d32, ok := as32(d)
	if !ok || set == Go || a.Rows == 0 || len(d) == 0 {
		return false
	}
	a32, _ := as32(a.Data)
	m32, _ := as32(mean[:len(d)])
	squaresAVX2(&d32[0], &a32[0], 4*a.Stride, &m32[0], a.Rows, len(d))
	return true
}

// dotsFast computes sum[j] = Σ_i dy[i][j] and dot[j] = Σ_i
// dy[i][j]·(a[i][j]-mean[j]) in assembly, if it can.
func dotsFast[T Float](set Set, sum, dot []T, dy, a Matrix[T], mean []T) bool {
	s32, ok := as32(sum)
	if !ok || set == Go || a.Rows == 0 || len(sum) == 0 {
		return false
	}
	d32, _ := as32(dot[:len(sum)])
	g32, _ := as32(dy.Data)
	a32, _ := as32(a.Data)
	m32, _ := as32(mean[:len(sum)])
	dotsAVX2(&s32[0], &d32[0], &g32[0], 4*dy.Stride, &a32[0], 4*a.Stride, &m32[0], a.Rows, len(sum))
	return true
}

// normalizeFast computes d = (a-mean)∘scale + shift in assembly, if it can.
func normalizeFast[T Float](set Set, d, a, mean, scale, shift []T) bool {
	d32, ok := as32(d)
	if !ok || set == Go {
		return false
	}
	a32, _ := as32(a)
	m32, _ := as32(mean)
	c32, _ := as32(scale)
	s32, _ := as32(shift)
	normalizeAVX2(&d32[0], &a32[0], &m32[0], &c32[0], &s32[0], len(d))
	return true
}

// normalizeBackwardFast computes d = g∘scale + (a-mean)∘slope + shift in
// assembly, if it can.
func normalizeBackwardFast[T Float](set Set, d, g, a, mean, scale, slope, shift []T) bool {
	d32, ok := as32(d)
	if !ok || set == Go {
		return false
	}
	g32, _ := as32(g)
	a32, _ := as32(a)
	m32, _ := as32(mean)
	c32, _ := as32(scale)
	l32, _ := as32(slope)
	s32, _ := as32(shift)
	normalizeBackwardAVX2(&d32[0], &a32[0], &m32[0], &c32[0], &s32[0], &g32[0], &l32[0], len(d))
	return true
}
