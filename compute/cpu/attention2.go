package cpu

// Dynamic computes the weights of GATv2's scores (Brody, Alon and Yahav, 2022):
// softmax over the entries e = (u, i) of att·LeakyReLU(l[u] + r[i]), per head.
// l is NumSrc×(Heads·C), r NumDst×(Heads·C), att has Heads·C values. a.Edge is
// not used.
func (a *Attention[T]) Dynamic(x *Exec, l, r Matrix[T], att []T) {
	a.check()
	checkShape(l, a.Block.NumSrc, len(att))
	checkShape(r, a.Block.NumDst, len(att))
	if len(att)%a.Heads != 0 {
		panic(badAttention)
	}
	c := len(att) / a.Heads
	a.rows(x, func(i int) {
		ri := r.Row(i)
		score := func(d []T, lu []T) {
			for h := range d {
				sum := T(0)
				for j := h * c; j < (h+1)*c; j++ {
					sum += T(att[j] * leaky(lu[j]+ri[j], a.Slope))
				}
				d[h] = sum
			}
		}
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			score(a.Alpha[int(e)*a.Heads:][:a.Heads], l.Row(int(a.Block.Indices[e])))
		}
		if a.Loops {
			score(a.Self[i*a.Heads:][:a.Heads], l.Row(i))
		}
		a.softmax(i)
	})
}

// DynamicBackward computes, from the gradients ds and dself of the scores (see
// Backward), those of l, r and att. It adds to what dl holds. The matrices have
// the shapes of Dynamic's; features of edges are made again, not stored.
func (a *Attention[T]) DynamicBackward(x *Exec, t *Transpose, ds, dself []T, l, r Matrix[T], att []T, dl, dr Matrix[T], datt []T) {
	c := len(att) / a.Heads
	chunks := ceilDiv(a.Block.NumDst, rowsPerChunk)
	s := tasksOf[T](x)
	s.parts = grow(s.parts, chunks*len(att))
	parts := s.parts
	x.pool.For(chunks, func(_, chunk int) {
		part := parts[chunk*len(att):][:len(att)]
		clear(part)
		for i := chunk * rowsPerChunk; i < min(a.Block.NumDst, (chunk+1)*rowsPerChunk); i++ {
			ri, g := r.Row(i), dr.Row(i)
			clear(g)
			entry := func(d, lu []T) {
				for h, f := range d {
					for j := h * c; j < (h+1)*c; j++ {
						z := lu[j] + ri[j]
						part[j] += T(f * leaky(z, a.Slope))
						g[j] += leakyGrad(T(f*att[j]), z, a.Slope)
					}
				}
			}
			for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
				if !a.skipped(i, e) {
					entry(ds[int(e)*a.Heads:][:a.Heads], l.Row(int(a.Block.Indices[e])))
				}
			}
			if a.Loops {
				entry(dself[i*a.Heads:][:a.Heads], l.Row(i))
			}
		}
	})
	clear(datt)
	for chunk := range chunks {
		for j, v := range parts[chunk*len(att):][:len(att)] {
			datt[j] += v
		}
	}
	a.sources(x, t, func(u int) {
		lu, g := l.Row(u), dl.Row(u)
		entry := func(d, ri []T) {
			for h, f := range d {
				for j := h * c; j < (h+1)*c; j++ {
					g[j] += leakyGrad(T(f*att[j]), lu[j]+ri[j], a.Slope)
				}
			}
		}
		for k := t.Indptr[u]; k < t.Indptr[u+1]; k++ {
			i, e := int(t.Dst[k]), int64(t.Entry[k])
			if !a.skipped(i, e) {
				entry(ds[int(e)*a.Heads:][:a.Heads], r.Row(i))
			}
		}
		if a.Loops && u < t.NumDst {
			entry(dself[u*a.Heads:][:a.Heads], r.Row(u))
		}
	})
}

// leakyGrad returns g times LeakyReLU's slope at z.
func leakyGrad[T Float](g, z, slope T) T {
	if z < 0 {
		return g * slope
	}
	return g
}
