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
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionDynamic(a, l, r, att)
		return
	}
	attentionTask[T]{pass: passDynamic, src: l, dst: r, att: att}.start(x, a, a.Block.NumDst)
}

func (t *attentionTask[T]) dynamic(w *scratch, i int) {
	a, r := t.a, t.dst.Row(i)
	if !t.fastDynamic(w, i) {
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			t.score(a.Alpha[int(e)*a.Heads:][:a.Heads], t.src.Row(int(a.Block.Indices[e])), r)
		}
	}
	if a.Loops {
		t.score(a.Self[i*a.Heads:][:a.Heads], t.src.Row(i), r)
	}
	t.softmax(i)
}

// score computes d[h] = att_h·LeakyReLU(l_h + r_h).
func (t *attentionTask[T]) score(d, l, r []T) {
	c := len(t.att) / len(d)
	for h := range d {
		sum := T(0)
		for j := h * c; j < (h+1)*c; j++ {
			sum += T(t.att[j] * leaky(l[j]+r[j], t.a.Slope))
		}
		d[h] = sum
	}
}

// DynamicBackward computes, from the gradients ds and dself of the scores (see
// Backward), those of l, r and att. It adds to what dl holds. The matrices have
// the shapes of Dynamic's; features of edges are made again, not stored.
func (a *Attention[T]) DynamicBackward(x *Exec, t *Transpose, ds, dself []T, l, r Matrix[T], att []T, dl, dr Matrix[T], datt []T) {
	a.checkScores(t, ds, dself)
	for _, m := range []Matrix[T]{l, dl} {
		checkShape(m, a.Block.NumSrc, len(att))
	}
	for _, m := range []Matrix[T]{r, dr} {
		checkShape(m, a.Block.NumDst, len(att))
	}
	if len(att)%a.Heads != 0 || len(datt) != len(att) {
		panic(badAttention)
	}
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionDynamicBackward(a, t, ds, dself, l, r, att, dl, dr, datt)
		return
	}
	chunks := ceilDiv(a.Block.NumDst, rowsPerChunk)
	s := tasksOf[T](x)
	s.parts = grow(s.parts, chunks*len(att))
	k := attentionTask[T]{pass: passDynamicDst, src: l, dst: r, dsrc: dl, ddst: dr, att: att, parts: s.parts, ds: ds, dself: dself, t: t}
	k.start(x, a, a.Block.NumDst)
	clear(datt)
	for chunk := range chunks {
		for j, v := range s.parts[chunk*len(att):][:len(att)] {
			datt[j] += v
		}
	}
	k.pass, k.parts = passDynamicSrc, nil
	k.start(x, a, t.NumSrc)
}

// dynamicDst computes the gradient of row i of r, and adds that of att to part.
func (t *attentionTask[T]) dynamicDst(w *scratch, i int, part []T) {
	a, r, g := t.a, t.dst.Row(i), t.ddst.Row(i)
	clear(g)
	if !t.fastGradients(w, i, part) {
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			t.gradient(g, part, t.ds[int(e)*a.Heads:][:a.Heads], r, t.src.Row(int(a.Block.Indices[e])))
		}
	}
	if a.Loops {
		t.gradient(g, part, t.dself[i*a.Heads:][:a.Heads], r, t.src.Row(i))
	}
}

// dynamicSrc adds the gradient of row u of l.
func (t *attentionTask[T]) dynamicSrc(w *scratch, u int) {
	a, l, g := t.a, t.src.Row(u), t.dsrc.Row(u)
	if !t.fastGradients(w, u, nil) {
		for k := t.t.Indptr[u]; k < t.t.Indptr[u+1]; k++ {
			t.gradient(g, nil, t.ds[int(t.t.Entry[k])*a.Heads:][:a.Heads], l, t.dst.Row(int(t.t.Dst[k])))
		}
	}
	if a.Loops && u < t.t.NumDst {
		t.gradient(g, nil, t.dself[u*a.Heads:][:a.Heads], l, t.dst.Row(u))
	}
}

// gradient adds one entry's part, with the gradients d of its scores, to those
// of row own (g) and, if part is not nil, of att.
func (t *attentionTask[T]) gradient(g, part, d, own, other []T) {
	c, slope := len(own)/len(d), t.a.Slope
	for h, f := range d {
		for j := h * c; j < (h+1)*c; j++ {
			z := own[j] + other[j]
			if part != nil {
				part[j] += T(f * leaky(z, slope))
			}
			g[j] += leakyGrad(T(f*t.att[j]), z, slope)
		}
	}
}

// leakyGrad returns g times LeakyReLU's slope at z.
func leakyGrad[T Float](g, z, slope T) T {
	if z <= 0 {
		return g * slope
	}
	return g
}
