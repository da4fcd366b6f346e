package cpu

// Epilogue is what Gemm does to a result before it leaves the cache:
// dst = Act(A·B + Bias + (dst if Accumulate)).
type Epilogue[T Float] struct {
	Bias       []T // one per column; nil: none
	Act        Activation
	Accumulate bool
}

// kBlock is how many terms are summed in registers before they are added to
// dst: sums run over k in blocks of kBlock, then over the blocks in order.
const kBlock = 256

// splitRows is the least length of one part of a split K. Parts are what
// several workers share, and each packs B a block at a time, in its own cache.
const splitRows = 1024

// maxParts bounds the memory of a split K: maxParts·M·N values.
const maxParts = 16

// splitCols is how many columns of B a part of a split K packs at a time.
const splitCols = 1024

// maxPacked is how many values of B are packed at a time.
const maxPacked = 1 << 21

// Up to ownPacked values of B each worker packs for itself, if there are ownRows rows
// for each: to wait for others, and to fetch from their caches, would take longer.
const (
	ownPacked = 1 << 16
	ownRows   = 128
)

// parts returns into how many parts K is split: a function of the shape only.
func parts(ta bool, k int) int {
	n := 1
	for ta && n < maxParts && k >= 2*n*splitRows {
		n *= 2
	}
	return n
}

// Gemm computes dst = Act(op(A)·op(B) + Bias + (dst if Accumulate)), where
// op(X) is X, or its transpose if the flag is set: A is M×K (ta: stored K×M),
// B is K×N (tb: stored N×K), dst is M×N. The forms are A·B, Aᵀ·B and A·Bᵀ; both
// transposed panics, as do mismatched shapes. dst must not overlap an operand.
//
// Sums run over k in blocks of 256. Aᵀ·B with K >= 2048 is cut into 2, 4, 8 or
// 16 parts of at least 1024 terms, as many as there are, each summed on its own
// and then added in order.
// Without ta, row i of dst depends on row i of A, on B, K and N alone.
// K = 0 is an empty sum.
func Gemm[T Float](x *Exec, dst, a Matrix[T], ta bool, b Matrix[T], tb bool, e Epilogue[T]) {
	dst.check()
	a.check()
	b.check()
	m, k := a.Rows, a.Cols
	if ta {
		m, k = k, m
	}
	kb, n := b.Rows, b.Cols
	if tb {
		kb, n = n, kb
	}
	switch {
	case ta && tb:
		panic(badBoth)
	case kb != k || dst.Rows != m || dst.Cols != n:
		panic(badGemm)
	case e.Bias != nil && len(e.Bias) != n:
		panic(badBias)
	}
	if m == 0 || n == 0 {
		return
	}
	defer x.end(x.begin(), gemmForm(ta, tb), m, n, k)
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.Gemm(dst, a, ta, b, tb, e)
		return
	}
	p := product[T]{dst: dst, a: a.Data, b: b.Data, rsa: a.Stride, csa: 1, rsb: b.Stride, csb: 1, m: m, n: n, k: k, e: e}
	p.kernelFor(x.set)
	if x.precision == BFloat16 {
		p.halve()
	}
	if ta {
		p.rsa, p.csa = 1, a.Stride
	}
	if tb {
		p.rsb, p.csb = 1, b.Stride
	}
	if k == 0 {
		s.gemm = gemmTask[T]{product: p, chunks: p.chunks()}
		x.each(s.gemm.chunks, &s.gemm)
		s.gemm = gemmTask[T]{}
		return
	}
	if np := parts(ta, k); np > 1 {
		p.split(x, s, np)
		return
	}
	if p.panelValues() <= ownPacked && m >= ownRows*x.threads {
		x.products++
		s.gemm = gemmTask[T]{product: p, chunks: p.chunks(), j1: n, k1: k, own: x.products}
		x.each(s.gemm.chunks, &s.gemm)
		s.gemm = gemmTask[T]{}
		return
	}
	// Panels of B are packed for the whole of N, or as much of it as fits, and
	// as many blocks of K as fit.
	nc := min(roundUp(n, p.nr), maxPacked/kBlock)
	kc := min(roundUp(k, kBlock), max(1, maxPacked/nc/kBlock)*kBlock)
	s.packed = grow(s.packed, nc*min(kc, k))
	for j := 0; j < n; j += nc {
		for k0 := 0; k0 < k; k0 += kc {
			s.pack = packTask[T]{product: p, packed: s.packed, j0: j, j1: min(n, j+nc), k0: k0, k1: min(k, k0+kc)}
			x.each(s.pack.chunks(), &s.pack)
			s.gemm = gemmTask[T]{product: p, packed: s.packed, chunks: p.chunks(),
				j0: j, j1: min(n, j+nc), k0: k0, k1: min(k, k0+kc)}
			x.each(s.gemm.chunks, &s.gemm)
		}
	}
	s.pack, s.gemm = packTask[T]{}, gemmTask[T]{}
}

// gemmForm names which operands of a product are transposed.
func gemmForm(ta, tb bool) string {
	switch {
	case ta:
		return "gemm-tn"
	case tb:
		return "gemm-nt"
	}
	return "gemm-nn"
}

// GemmAdd computes dst = Act(A1·B1ᵀ + Bias + A2·B2ᵀ + (dst if Accumulate)) for
// matrices A1 and A2 of dst's rows, B1 and B2 of dst's columns, stored N×K. Its bits
// are those of Gemm with A1, B1 and the bias, and then with A2 and B2 accumulating;
// dst passes through the caches once. Mismatched shapes panic; dst must not overlap
// an operand.
func GemmAdd[T Float](x *Exec, dst, a1, b1, a2, b2 Matrix[T], e Epilogue[T]) {
	defer x.end(x.begin(), "gemm-add", dst.Rows, dst.Cols, a1.Cols+a2.Cols)
	first, second := Epilogue[T]{Bias: e.Bias, Accumulate: e.Accumulate}, Epilogue[T]{Act: e.Act, Accumulate: true}
	s := tasksOf[T](x)
	p, q := productOf(x, dst, a1, b1, first), productOf(x, dst, a2, b2, second)
	panels := roundUp(dst.Cols, p.nr)
	if size := panels * (p.k + q.k); s.device != nil || p.k == 0 || q.k == 0 || dst.Rows == 0 || dst.Cols == 0 || size > maxPacked {
		Gemm(x, dst, a1, false, b1, true, first)
		Gemm(x, dst, a2, false, b2, true, second)
		return
	}
	s.packed = grow(s.packed, panels*(p.k+q.k))
	for i, half := range [2]*product[T]{&p, &q} {
		t := gemmTask[T]{product: *half, packed: s.packed[i*panels*p.k:][:panels*half.k], chunks: half.chunks(), j1: dst.Cols, k1: half.k}
		s.pack = packTask[T]{product: *half, packed: t.packed, j1: t.j1, k1: t.k1}
		x.each(s.pack.chunks(), &s.pack)
		s.pair[i] = t
	}
	x.each(s.pair[0].chunks, &s.pair)
	s.pack, s.pair = packTask[T]{}, pairTask[T]{}
}

// pairTask is two products into one dst, chunk by chunk.
type pairTask[T Float] [2]gemmTask[T]

func (t *pairTask[T]) chunk(w *scratch, c int) {
	t[0].chunk(w, c)
	t[1].chunk(w, c)
}

// productOf returns A·Bᵀ, after the checks of Gemm.
func productOf[T Float](x *Exec, dst, a, b Matrix[T], e Epilogue[T]) product[T] {
	dst.check()
	a.check()
	b.check()
	switch {
	case a.Rows != dst.Rows || b.Rows != dst.Cols || a.Cols != b.Cols:
		panic(badGemm)
	case e.Bias != nil && len(e.Bias) != dst.Cols:
		panic(badBias)
	}
	p := product[T]{dst: dst, a: a.Data, b: b.Data, rsa: a.Stride, csa: 1, rsb: 1, csb: b.Stride, m: a.Rows, n: b.Rows, k: a.Cols, e: e}
	p.kernelFor(x.set)
	if x.precision == BFloat16 {
		p.halve()
	}
	return p
}

// GemmBoth computes dst1 = Aᵀ·B1 + (dst1 if add1) and dst2 = Aᵀ·B2 + (dst2 if add2),
// for A stored K×M, with the bits of two calls to Gemm, dst1 before dst2, which may
// be the same; A passes through the caches once where K is long. Mismatched shapes
// panic, maybe after dst1 was written; neither must overlap an operand.
func GemmBoth[T Float](x *Exec, dst1, dst2, a, b1, b2 Matrix[T], add1, add2 bool) {
	defer x.end(x.begin(), "gemm-both", a.Cols, b1.Cols+b2.Cols, a.Rows)
	p := product[T]{dst: dst1, a: a.Data, b: b1.Data, rsa: 1, csa: a.Stride, rsb: b1.Stride, csb: 1, m: a.Cols, n: b1.Cols + b2.Cols, k: a.Rows,
		e: Epilogue[T]{Accumulate: add1}}
	p.kernelFor(x.set)
	np := parts(true, p.k)
	if tasksOf[T](x).device != nil || np == 1 || b1.Cols == 0 || b1.Cols%p.nr != 0 || p.n > splitCols || x.precision == BFloat16 ||
		b1.Rows != p.k || b2.Rows != p.k || dst1.Rows != p.m || dst2.Rows != p.m || dst1.Cols != b1.Cols || dst2.Cols != b2.Cols {
		Gemm(x, dst1, a, true, b1, false, p.e) // which refuses mismatched shapes
		Gemm(x, dst2, a, true, b2, false, Epilogue[T]{Accumulate: add2})
		return
	}
	for _, m := range []Matrix[T]{dst1, dst2, a, b1, b2} {
		m.check()
	}
	if p.m == 0 {
		return
	}
	q := p
	q.dst, q.b, q.rsb, q.e = dst2, b2.Data, b2.Stride, Epilogue[T]{Accumulate: add2}
	s := tasksOf[T](x)
	s.parts = grow(s.parts, np*p.m*p.n)
	s.split = splitTask[T]{product: p, parts: np, priv: s.parts, right: q, split: b1.Cols}
	x.each(np, &s.split)
	s.split = splitTask[T]{}
	p.fold(x, s, np, 0)
	q.fold(x, s, np, b1.Cols)
}

// product is one dense product: element (i, k) of op(A) is a[i*rsa+k*csa],
// element (k, j) of op(B) is b[k*rsb+j*csb].
type product[T Float] struct {
	dst                Matrix[T]
	a, b               []T
	rsa, csa, rsb, csb int
	m, n, k            int
	e                  Epilogue[T]
	set                Set
	mr, nr             int  // rows and columns of a register tile
	half               bool // of bfloat16 values
}

// panelValues is how many values B has when all of it is packed.
func (p *product[T]) panelValues() int { return roundUp(p.n, p.nr) * p.k }

func roundUp(a, b int) int { return ceilDiv(a, b) * b }

// chunks is in how many chunks the rows of dst are computed: each has enough work
// to pay for its start, all have the same number of tiles but for one, and there
// are 8 at least, so that two or four workers share them evenly.
func (p *product[T]) chunks() int {
	tiles := ceilDiv(p.m, p.mr)
	return max(min(tiles, 8), ceilDiv(tiles, max(1, 192/p.mr)))
}

// rowsOf returns the rows [i0, i1) of chunk c of n.
func (p *product[T]) rowsOf(c, n int) (i0, i1 int) {
	tiles := ceilDiv(p.m, p.mr)
	return tiles * c / n * p.mr, min(p.m, tiles*(c+1)/n*p.mr)
}

// packTask packs a block of op(B) into panels: for each block of kBlock values
// of k, for each group of nr columns, [k][nr] values, zero-padded to nr.
type packTask[T Float] struct {
	product[T]
	packed         []T
	j0, j1, k0, k1 int
}

// packChunk is how many panels one chunk packs.
const packChunk = 4

func (t *packTask[T]) panels() int { return ceilDiv(t.j1-t.j0, t.nr) }
func (t *packTask[T]) chunks() int {
	return ceilDiv(t.k1-t.k0, kBlock) * ceilDiv(t.panels(), packChunk)
}

func (t *packTask[T]) chunk(_ *scratch, c int) {
	np := t.panels()
	nc := ceilDiv(np, packChunk)
	kb, first := c/nc, c%nc*packChunk
	k0 := t.k0 + kb*kBlock
	kc := min(kBlock, t.k1-k0)
	j := t.j0 + first*t.nr
	t.packPanels(t.packed[kb*kBlock*np*t.nr+first*kc*t.nr:], k0, kc, j, min(packChunk*t.nr, t.j1-j))
}

// packPanels packs op(B)[k0:k0+kc, j:j+w] into d.
func (p *product[T]) packPanels(d []T, k0, kc, j, w int) {
	if p.half {
		p.packHalf(d, k0, kc, j, w)
		return
	}
	nr := p.nr
	for at := p.packFast(d, k0, kc, j, w); at < w; at += nr {
		p.packPanel(d[at*kc:][:kc*nr], k0, kc, j+at, min(nr, w-at))
	}
}

// packPanel packs op(B)[k0:k0+kc, j:j+w], at most nr columns, into d.
func (p *product[T]) packPanel(d []T, k0, kc, j, w int) {
	nr := p.nr
	if p.csb == 1 {
		for k := range kc {
			o := (k0+k)*p.rsb + j
			r := d[k*nr : k*nr+nr]
			copy(r, p.b[o:o+w])
			clear(r[w:])
		}
		return
	}
	p.packValues(d, k0, 0, kc, j, 0, w)
	if w == nr {
		return
	}
	for k := range kc {
		clear(d[k*nr+w : k*nr+nr])
	}
}

// packValues packs terms [from, to) after k0 of columns j+[j0, j1) of a transposed B
// into columns [j0, j1) of panel d.
func (p *product[T]) packValues(d []T, k0, from, to, j, j0, j1 int) {
	for jj := j0; jj < j1; jj++ {
		for k, v := range p.b[(j+jj)*p.csb+k0:][from:to] {
			d[(from+k)*p.nr+jj] = v
		}
	}
}

// gemmTask multiplies chunks of rows of op(A) by the packed block of op(B).
type gemmTask[T Float] struct {
	product[T]
	packed         []T // of all workers; nil: each packs its own
	chunks         int
	j0, j1, k0, k1 int
	own            uint64 // which product this is, if each packs its own
}

// packOwn packs all of B for worker w, if that has not been done for this product.
func (t *gemmTask[T]) packOwn(w *scratch) []T {
	d := panelOf[T](w, t.panelValues())
	if w.own == t.own {
		return d
	}
	all := packTask[T]{product: t.product, packed: d, j1: t.j1, k1: t.k1}
	for c := range all.chunks() {
		all.chunk(w, c)
	}
	w.own = t.own
	return d
}

func (t *gemmTask[T]) chunk(w *scratch, c int) {
	i0, i1 := t.rowsOf(c, t.chunks)
	if t.k == 0 {
		for i := i0; i < i1; i++ {
			d := t.dst.Row(i)
			if !t.e.Accumulate {
				clear(d)
			}
			finish(t.set, d, t.e.Bias, t.e.Act)
		}
		return
	}
	np := ceilDiv(t.j1-t.j0, t.nr)
	packed := t.packed
	if packed == nil {
		packed = t.packOwn(w)
	}
	for k0 := t.k0; k0 < t.k1; k0 += kBlock {
		kc := min(kBlock, t.k1-k0)
		t.block(w, t.dst, packed[(k0-t.k0)*np*t.nr:], i0, i1, t.j0, t.j1, k0, kc, k0 > 0 || t.e.Accumulate, k0+kc == t.k, min(kBlock, t.k1-k0-kc), false)
	}
}

// finish applies the epilogue to a row or a part of one.
func finish[T Float](set Set, d, bias []T, act Activation) {
	for j, v := range bias {
		d[j] += v
	}
	activate(set, d, act)
}

// splitTask computes one part of a split K into its private result.
type splitTask[T Float] struct {
	product[T]
	parts int
	priv  []T        // parts·m·n
	right product[T] // B's columns from split on, if split > 0; n counts them
	split int
}

// foldTask adds the private results in order and applies the epilogue.
type foldTask[T Float] struct {
	product[T]
	parts, rows int
	priv        []T
	col         int // of the parts, where dst begins
}

func (p product[T]) split(x *Exec, s *tasks[T], np int) {
	s.parts = grow(s.parts, np*p.m*p.n)
	s.split = splitTask[T]{product: p, parts: np, priv: s.parts}
	x.each(np, &s.split)
	s.split = splitTask[T]{}
	p.fold(x, s, np, 0)
}

// fold adds up columns [col, col + p.dst.Cols) of the parts.
func (p product[T]) fold(x *Exec, s *tasks[T], np, col int) {
	s.fold = foldTask[T]{product: p, parts: np, priv: s.parts, rows: max(1, 4096/p.n), col: col}
	x.each(ceilDiv(p.m, s.fold.rows), &s.fold)
	s.fold = foldTask[T]{}
}

func (t *splitTask[T]) chunk(w *scratch, c int) {
	// Parts are whole blocks of kBlock, except the last.
	blocks := ceilDiv(t.k, kBlock)
	k0, k1 := blocks*c/t.parts*kBlock, min(t.k, blocks*(c+1)/t.parts*kBlock)
	priv := Matrix[T]{Rows: t.m, Cols: t.n, Stride: t.n, Data: t.priv[c*t.m*t.n:][:t.m*t.n]}
	panel := panelOf[T](w, min(splitCols, roundUp(t.n, t.nr))*kBlock)
	for j := 0; j < t.n; j += splitCols {
		j1 := min(t.n, j+splitCols)
		for k := k0; k < k1; k += kBlock {
			kc := min(kBlock, k1-k)
			if t.split > 0 {
				t.packPanels(panel, k, kc, 0, t.split)
				t.right.packPanels(panel[t.split*kc:], k, kc, 0, t.n-t.split)
			} else {
				t.packPanels(panel, k, kc, j, j1-j)
			}
			t.block(w, priv, panel, 0, t.m, j, j1, k, kc, k > k0, false, min(kBlock, k1-k-kc), true)
		}
	}
}

func (t *foldTask[T]) chunk(_ *scratch, c int) {
	add := elementTask[T]{set: t.set, op: OpAdd}
	for i := c * t.rows; i < min(t.m, (c+1)*t.rows); i++ {
		d := t.dst.Row(i)
		part := func(p int) []T { return t.priv[(p*t.m+i)*t.n+t.col:][:len(d)] }
		if t.e.Accumulate {
			add.apply(d, d, part(0))
			add.apply(d, d, part(1))
		} else {
			add.apply(d, part(0), part(1))
		}
		for p := 2; p < t.parts; p++ {
			add.apply(d, d, part(p))
		}
		finish(t.set, d, t.e.Bias, t.e.Act)
	}
}
