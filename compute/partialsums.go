package compute

import (
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// partialSums is how a piece takes part in sums that are made in several: what it sums for targets that are masters elsewhere goes
// there, a stripe at a time, and what others summed for its masters comes from them. Backward the masters' gradients go the other way.
type partialSums[T cpu.Float] struct {
	block   *graph.Block // rows of the mirrors of targets
	targets *crossing
	weights []T        // of its entries; nil: all 1
	reduce  cpu.Reduce // of the entries that are in one piece
	inverse []float32  // of a mean: 1/degree of each master; else nil

	argmax [][]uint32 // of maxima, of each stripe: the entries that the mirrors' values are of
	of     [][]uint32 // and the pieces that the masters' are of
}

func (c *Context[T]) partialSums(m Message[T]) *partialSums[T] {
	h := c.halo
	r := &partialSums[T]{block: h.rows, targets: &h.active[m.Value.layer].targets, reduce: m.Reduce}
	if r.reduce == cpu.Mean {
		r.reduce, r.inverse = cpu.Sum, c.model.inverse
	}
	if c.norm != nil {
		r.weights = c.norm.beyond(c, h.piece, h.rows, c.norm.norm.targets)
	}
	return r
}

// send sums a stripe for other pieces' masters, of which table has the sources' columns; marks: a backward pass follows.
func (r *partialSums[T]) send(t *Tape[T], round string, table cpu.Matrix[T], marks bool) {
	h, n := t.halo, len(t.halo.piece.Targets.IDs)
	if n == 0 || h.err != nil {
		return
	}
	o := cpu.AggregateOptions[T]{Reduce: r.reduce, Weights: r.weights}
	if marks {
		o.Argmax = t.marks.Alloc(n * table.Cols)
		r.argmax = append(r.argmax, o.Argmax)
	}
	h.sums = resized(h.sums, n*table.Cols)
	sums := cpu.Dense(n, table.Cols, of[T](h.sums))
	cpu.Aggregate(t.x, sums, r.block, cpu.Source[T]{Dense: table}, o)
	t.sendMirrors(r.targets, "sum-"+round, sums)
}

// take puts what other pieces summed of a stripe into y, which has the sums over b; argmax is of these, nil where no backward pass
// follows.
func (r *partialSums[T]) take(t *Tape[T], b *graph.Block, round string, y cpu.Matrix[T], argmax []uint32) {
	h := t.halo
	if h.err != nil {
		return
	}
	add := func(_ int, masters []uint32, rows []float32) { t.addRows(y, masters, of[T](rows)) }
	var most *maxima[T]
	if r.reduce == cpu.Max {
		most = t.maximaOf(y, b.Indptr, h.piece.Index, t.ints.Alloc(y.Rows*y.Cols))
		add = func(q int, masters []uint32, rows []float32) { most.take(t, q, masters, of[T](rows)) }
	}
	h.err = h.piece.receivePartial(h.ctx, h.exchange, "sum-"+round, r.targets.sends, y.Cols, &h.back, add)
	if r.inverse != nil {
		t.scaleRows(y, r.inverse)
	}
	if argmax == nil {
		return
	}
	for i, piece := range most.of {
		if piece != uint32(h.piece.Index) {
			argmax[i] = cpu.NoEntry
		}
	}
	r.of = append(r.of, most.of)
}

// begin makes the gradient of the sums that of what pieces summed.
func (r *partialSums[T]) begin(t *Tape[T], grad cpu.Matrix[T]) {
	if r.inverse != nil {
		t.scaleRows(grad, r.inverse)
	}
}

// sendBack sends the gradient of the masters' sums, of stripe k, to the pieces that took part in them.
func (r *partialSums[T]) sendBack(t *Tape[T], round string, grad cpu.Matrix[T], k int) {
	h := t.halo
	round = "back-sum-" + round
	if r.of == nil {
		t.sendRows(r.targets, &Value[T]{tape: t, rows: grad.Rows, cols: grad.Cols, dense: grad}, 0, grad.Cols, grad.Cols, func(int) string { return round })
		return
	}
	won, cols := r.of[k], grad.Cols
	for q, masters := range r.targets.sends {
		if len(masters) == 0 || h.err != nil {
			continue
		}
		rows := h.message(len(masters) * cols)
		to := of[T](rows)
		t.chunks(len(masters), func(i int) {
			v := int(masters[i])
			for j, g := range grad.Row(v) {
				if won[v*cols+j] != uint32(q) {
					g = 0
				}
				to[i*cols+j] = g
			}
		})
		h.err = h.exchange.Send(h.ctx, round, h.piece.Index, q, rows)
	}
}

// takeBack adds what sources of stripe k get of the gradients of sums that are made here for others.
func (r *partialSums[T]) takeBack(t *Tape[T], round string, table cpu.Matrix[T], k int) {
	h, n := t.halo, len(t.halo.piece.Targets.IDs)
	if n == 0 || h.err != nil {
		return
	}
	h.sums = resized(h.sums, n*table.Cols)
	if t.takeMirrors(r.targets, "back-sum-"+round, h.sums, table.Cols, false); h.err != nil {
		return
	}
	o := cpu.AggregateOptions[T]{Reduce: r.reduce, Weights: r.weights, Accumulate: true}
	if r.reduce == cpu.Max {
		o.Argmax = r.argmax[k]
	}
	cpu.AggregateBackward(t.x, table, t.transpose(r.block), cpu.Dense(n, table.Cols, of[T](h.sums)), o)
}

// softmaxPart is what a block with some of the entries of its destinations' softmax has to do with the others.
type softmaxPart[T cpu.Float] struct {
	sums     []T      // gets the logarithms of the sums of exponentials of scores
	targets  []uint32 // ids of the destinations for dropout; nil: those of the first sources
	gradient func() (grad cpu.Matrix[T], products []T)
}

// attendPartial is Attend where entries of destinations lie in several pieces: each makes the softmax of its own, and the sum over it, and
// sends both, with the logarithm of its exponentials' sum, to the destination's master, which puts them together.
func (t *Tape[T]) attendPartial(b *graph.Block, v *Value[T], o Attention[T]) *Value[T] {
	h, p, heads, cols := t.halo, t.halo.piece, o.Heads, v.cols
	n, wide := len(p.Targets.IDs), cols+heads
	round, c := v.round, &h.active[v.layer].targets
	own := o.Dst
	if o.Att != nil {
		own = o.Right
	}
	there := t.targetRows(c, own, "targets-"+round)

	// What is summed for other pieces.
	rest := &softmaxPart[T]{sums: t.mem.Alloc(n * heads)}
	if o.Drop != nil {
		rest.targets = p.Targets.IDs
	}
	rest.gradient = func() (cpu.Matrix[T], []T) {
		grad, products := t.matrix(n, cols), t.mem.Alloc(n*heads)
		h.sums = resized(h.sums, n*wide)
		t.takeMirrors(c, "back-sum-"+round, h.sums, wide, false)
		from := of[T](h.sums)
		t.chunks(n, func(i int) {
			copy(grad.Row(i), from[i*wide:])
			copy(products[i*heads:(i+1)*heads], from[i*wide+cols:])
		})
		return grad, products
	}
	z := t.value(n, cols) // its gradient comes from elsewhere
	if n > 0 {
		beyond := o
		beyond.Loops, beyond.Dst, beyond.Right = false, there, there
		if o.Att != nil {
			beyond.Dst = nil
		} else {
			beyond.Right = nil
		}
		h.sums = resized(h.sums, n*wide)
		made := cpu.Dense(n, wide, of[T](h.sums))
		t.attend(z, made.View(0, n, 0, cols), h.rows, v, beyond, rest)
		t.chunks(n, func(i int) { copy(made.Row(i)[cols:], rest.sums[i*heads:(i+1)*heads]) })
		t.sendMirrors(c, "sum-"+round, made)
	} else {
		t.Record(z, func() { there.gradient() }, there)
	}

	// What is summed here for masters, and then all.
	y := t.New(b.NumDst, cols)
	part := &softmaxPart[T]{sums: t.mem.Alloc(b.NumDst * heads)}
	var products []T
	part.gradient = func() (cpu.Matrix[T], []T) { return y.grad, products }
	t.attend(y, y.dense, b, v, o, part)
	all := part.sums
	var sums [][]T // of each piece
	if t.record {
		all = t.mem.Alloc(len(part.sums))
		copy(all, part.sums)
		sums = make([][]T, p.pieces())
	}
	if h.err == nil {
		h.err = p.receivePartial(h.ctx, h.exchange, "sum-"+round, c.sends, wide, &h.back, func(q int, masters []uint32, rows []float32) {
			from := of[T](rows)
			if t.record {
				sums[q] = t.mem.Alloc(len(masters) * heads)
				t.chunks(len(masters), func(i int) { copy(sums[q][i*heads:(i+1)*heads], from[i*wide+cols:]) })
			}
			t.joinSoftmax(y.dense, all, heads, masters, from)
		})
	}
	if !t.record {
		return y
	}
	kept := t.matrix(y.rows, cols) // y may be changed
	cpu.Copy(t.x, kept, y.dense)
	t.Record(y, func() {
		g, each := y.grad, cols/heads
		products = t.mem.Alloc(y.rows * heads)
		t.chunks(y.rows, func(i int) {
			r, k := g.Row(i), kept.Row(i)
			for head := range heads {
				sum := T(0)
				for j := head * each; j < (head+1)*each; j++ {
					sum += T(r[j] * k[j])
				}
				products[i*heads+head] = sum
			}
		})
		// share writes what the part of a softmax with this sum has of row v's gradient and products, which may be where they are.
		share := func(grad, product []T, v int, of []T) {
			r := g.Row(v)
			for head := range heads {
				w := T(0)
				if s := float64(of[head]); !math.IsInf(s, -1) {
					w = T(math.Exp(s - float64(all[v*heads+head])))
				}
				for j := head * each; j < (head+1)*each; j++ {
					grad[j] = w * r[j]
				}
				product[head] = w * products[v*heads+head]
			}
		}
		for q, masters := range c.sends {
			if len(masters) == 0 || h.err != nil {
				continue
			}
			rows := h.message(len(masters) * wide)
			to := of[T](rows)
			t.chunks(len(masters), func(i int) {
				share(to[i*wide:], to[i*wide+cols:], int(masters[i]), sums[q][i*heads:])
			})
			h.err = h.exchange.Send(h.ctx, "back-sum-"+round, p.Index, q, rows)
		}
		t.chunks(y.rows, func(i int) { share(g.Row(i), products[i*heads:], i, part.sums[i*heads:]) })
		z.hasGrad = true
	}, y)
	return y
}

// targetRows returns the rows of v, which has the masters', that are of mirrors of targets.
func (t *Tape[T]) targetRows(c *crossing, v *Value[T], round string) *Value[T] {
	h := t.halo
	y := t.New(len(h.piece.Targets.IDs), v.cols)
	v.Matrix()
	t.sendRows(c, v, 0, v.cols, v.cols, func(int) string { return round })
	t.takeMirrors(c, round, any(y.dense.Data).([]float32), y.cols, false)
	t.Record(y, func() {
		t.sendMirrors(c, "back-"+round, y.grad)
		g, add := v.gradient()
		if !add {
			cpu.Fill(t.x, g, 0)
		}
		t.takeBack(c, "back-"+round, g)
	}, v)
	return y
}
