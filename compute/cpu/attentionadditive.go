package cpu

// Additive computes the weights of GAT's scores (Veličković et al., 2018):
// softmax over the entries e = (u, i) of LeakyReLU(src[u] + dst[i] + Edge[e]),
// per head. src is NumSrc×Heads, dst NumDst×Heads.
func (a *Attention[T]) Additive(x *Exec, src, dst Matrix[T]) {
	a.check()
	checkShape(src, a.Block.NumSrc, a.Heads)
	checkShape(dst, a.Block.NumDst, a.Heads)
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionAdditive(a, src, dst)
		return
	}
	attentionTask[T]{pass: passAdditive, src: src, dst: dst}.start(x, a, a.Block.NumDst)
}

func (t *attentionTask[T]) additive(w *scratch, i int) {
	a, d := t.a, t.dst.Row(i)
	if !t.fastScores(w, i) {
		for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
			s := t.src.Row(int(a.Block.Indices[e]))
			for h := range a.Heads {
				a.Alpha[int(e)*a.Heads+h] = leaky(a.additive(s, d, e, h), a.Slope)
			}
		}
	}
	if a.Loops {
		s := t.src.Row(i)
		for h := range a.Heads {
			edge, _ := a.loopEdge(i, h)
			a.Self[i*a.Heads+h] = leaky(s[h]+d[h]+edge, a.Slope)
		}
	}
	t.softmax(i)
}

func (a *Attention[T]) additive(s, d []T, e int64, h int) T {
	v := s[h] + d[h]
	if a.Edge != nil {
		v += a.Edge[int(e)*a.Heads+h]
	}
	return v
}

// AdditiveBackward computes, from the gradients ds and dself of the activated
// scores (see Backward), which it overwrites, those of src, dst and Edge (dEdge
// may be nil). The matrices have the shapes of Additive's.
func (a *Attention[T]) AdditiveBackward(x *Exec, t *Transpose, ds, dself []T, src, dst, dsrc, ddst Matrix[T], dEdge []T) {
	a.checkScores(t, ds, dself)
	for _, m := range []Matrix[T]{src, dsrc} {
		checkShape(m, a.Block.NumSrc, a.Heads)
	}
	for _, m := range []Matrix[T]{dst, ddst} {
		checkShape(m, a.Block.NumDst, a.Heads)
	}
	if dEdge != nil && len(dEdge) != len(ds) {
		panic(badAttention)
	}
	if d := tasksOf[T](x).device; d != nil {
		d.AttentionAdditiveBackward(a, t, ds, dself, src, dst, dsrc, ddst, dEdge)
		return
	}
	k := attentionTask[T]{pass: passAdditiveDst, src: src, dst: dst, dsrc: dsrc, ddst: ddst, ds: ds, dself: dself, dEdge: dEdge, t: t}
	k.start(x, a, a.Block.NumDst)
	k.pass = passAdditiveSrc
	k.start(x, a, t.NumSrc)
}

func (t *attentionTask[T]) additiveDst(w *scratch, i int) {
	a := t.a
	begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
	d, g := t.dst.Row(i), t.ddst.Row(i)
	clear(g)
	if !t.fastScores(w, i) {
		for e := begin; e < end; e++ {
			s := t.src.Row(int(a.Block.Indices[e]))
			for h := range a.Heads {
				p := &t.ds[int(e)*a.Heads+h]
				if a.additive(s, d, e, h) <= 0 {
					*p *= a.Slope
				}
				g[h] += *p
			}
		}
	}
	if t.dEdge != nil {
		copy(t.dEdge[int(begin)*a.Heads:], t.ds[int(begin)*a.Heads:int(end)*a.Heads])
	}
	if !a.Loops {
		return
	}
	s := t.src.Row(i)
	for h := range a.Heads {
		p := &t.dself[i*a.Heads+h]
		edge, n := a.loopEdge(i, h)
		if s[h]+d[h]+edge <= 0 {
			*p *= a.Slope
		}
		g[h] += *p
		if t.dEdge == nil || n == 0 {
			continue
		}
		for e := begin; e < end; e++ {
			if !a.skipped(i, e) {
				t.dEdge[int(e)*a.Heads+h] += *p / T(n)
			}
		}
	}
}

func (t *attentionTask[T]) additiveSrc(u int) {
	a, g := t.a, t.dsrc.Row(u)
	clear(g)
	for k := t.t.Indptr[u]; k < t.t.Indptr[u+1]; k++ {
		for h := range a.Heads {
			g[h] += t.ds[int(t.t.Entry[k])*a.Heads+h]
		}
	}
	if a.Loops && u < t.t.NumDst {
		for h := range a.Heads {
			g[h] += t.dself[u*a.Heads+h]
		}
	}
}
