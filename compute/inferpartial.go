package compute

import (
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// partialLayer is what InferPieces knows of a layer whose sums are made in several pieces, from its messages.
type partialLayer struct {
	told   int // values of a target that attention reads; 0: it is none
	heads  int // of attention
	reduce cpu.Reduce
}

// wide is how many values of a node's sum with cols columns are sent.
func (l *partialLayer) wide(cols int) int { return cols + l.heads }

func partialName(l int) string { return fmt.Sprintf("sums-%d", l) }

// sendTargets sends what attention reads of p's masters where they are targets.
func (r *piecesRun) sendTargets(l int, p *Piece, parts *partialLayer) error {
	if r.model.spec.Model != "gat" && r.model.spec.Model != "gatv2" {
		return nil
	}
	var all cpu.Matrix[float32]
	err := r.someOf(p.Masters, func(i, n int) error {
		c, err := r.begin(l, &graph.Block{NumDst: n, NumSrc: n, Indptr: make([]int64, n+1)})
		if err != nil {
			return err
		}
		v := ofTargets(r.layers[l].Gather(c, r.old(i, n), make([]*Value[float32], 2)).Attention) // which names sources alone
		if all.Data == nil {
			all = cpu.NewMatrix[float32](p.Masters, (*v).cols)
		}
		r.tape.fetch(all.View(i, i+n, 0, all.Cols), (*v).Matrix())
		return nil
	})
	if err != nil {
		return err
	}
	parts.told = all.Cols
	return p.send(r.ctx, r.Exchange, targetsRound(l), &p.Targets, nil, []*graph.Features{graph.NewFeatures(all.Rows, all.Cols, all.Data)})
}

// ofTargets is where a has what it reads of targets.
func ofTargets[T cpu.Float](a *Attention[T]) **Value[T] {
	if a.Att != nil {
		return &a.Right
	}
	return &a.Dst
}

// partial sums what edges of p bring to nodes, given what they read: it keeps the masters' sums, and sends the others' to theirs.
func (r *piecesRun) partial(l int, p *Piece, read []*graph.Features, parts *partialLayer) error {
	parts.heads = 0
	var own cpu.Matrix[float32]
	// sum writes rows of all, from the i-th, whose memory it makes for rows in all.
	sum := func(c *Context[float32], all *cpu.Matrix[float32], m Message[float32], i, rows int) {
		var y *Value[float32]
		var part softmaxPart[float32]
		if a := m.Attention; a != nil {
			parts.heads = a.Heads
			y = c.New(c.Block.NumDst, m.Value.cols)
			part.sums = c.mem.Alloc(c.Block.NumDst * a.Heads)
			c.attend(y, y.dense, c.Block, m.Value, *a, &part)
		} else {
			if parts.reduce = m.Reduce; m.Reduce == cpu.Mean {
				m.Reduce = cpu.Sum
			}
			y = c.Aggregate(c.Block, m.Value, m.Reduce, m.Weights, m.Self)
		}
		if all.Data == nil {
			*all = cpu.NewMatrix[float32](rows, parts.wide(y.cols))
		}
		cpu.Copy(r.tape.x, all.View(i, i+y.rows, 0, y.cols), y.Matrix())
		if parts.heads > 0 {
			cpu.Copy(r.tape.x, all.View(i, i+y.rows, y.cols, all.Cols), cpu.Dense(y.rows, parts.heads, part.sums))
		}
	}
	err := r.chunks(l, p, read, func(c *Context[float32], x *Value[float32], h []*Value[float32], i int) {
		sum(c, &own, r.layers[l].Gather(c, x, h), i, p.Masters)
	})
	if err != nil {
		return err
	}
	if !r.Activations.Has(r.resultOf(l), p.Index) {
		if err := r.Activations.Put(partialName(l), p.Index, own); err != nil {
			return err
		}
	}
	own = cpu.Matrix[float32]{}
	targets := len(p.Targets.IDs)
	told := cpu.NewMatrix[float32](targets, parts.told)
	if err := p.receiveTargets(r.ctx, r.Exchange, targetsRound(l), told.Data); err != nil {
		return err
	}
	err = r.someOf(targets, func(i, n int) error {
		c, err := r.begin(l, &graph.Block{NumSrc: p.in(), Indptr: []int64{0}})
		if err != nil {
			return err
		}
		leaf := func(m cpu.Matrix[float32]) *Value[float32] { return c.Leaf(m, false, cpu.Matrix[float32]{}) }
		var h []*Value[float32]
		for _, t := range read {
			values, _, _ := t.Float32s()
			h = append(h, leaf(cpu.Dense(t.Rows, t.Cols, values)))
		}
		m := r.layers[l].Gather(c, r.old(0, 0), h) // as a message to nobody is sent
		from, to := p.Partial.Indptr[i], p.Partial.Indptr[i+n]
		b := &graph.Block{NumDst: n, NumSrc: p.in(), Indices: p.Partial.Indices[from:to]}
		for _, at := range p.Partial.Indptr[i : i+n+1] {
			b.Indptr = append(b.Indptr, at-from)
		}
		for e := from; e < to && p.Partial.Weights != nil; e++ {
			b.EdgeIDs = append(b.EdgeIDs, e)
		}
		c.Block, m.Self = b, nil
		if c.norm != nil {
			m.Weights = c.norm.beyond(c, p, b, c.norm.norm.targets[i:i+n])
		}
		if m.Attention != nil {
			m.Attention.Loops = false
			*ofTargets(m.Attention) = leaf(told.View(i, i+n, 0, told.Cols))
		}
		sum(c, &own, m, i, targets)
		return nil
	})
	if err != nil || targets == 0 {
		return err
	}
	return p.sendPartial(r.ctx, r.Exchange, sumsRound(l), own.Data)
}

// join sets r.out to layer l's results for p's masters, of which partial kept its sums, given what other pieces sent of theirs.
func (r *piecesRun) join(l int, p *Piece, parts *partialLayer) error {
	own, err := r.Activations.Get(partialName(l), p.Index)
	if err != nil {
		return err
	}
	sum := own.View(0, own.Rows, 0, own.Cols-parts.heads)
	add := func(_ int, masters []uint32, rows []float32) { r.tape.addRows(sum, masters, rows) }
	switch {
	case parts.heads > 0:
		sums := make([]float32, own.Rows*parts.heads)
		for i := range own.Rows {
			copy(sums[i*parts.heads:(i+1)*parts.heads], own.Row(i)[sum.Cols:])
		}
		add = func(_ int, masters []uint32, rows []float32) {
			r.tape.joinSoftmax(sum, sums, parts.heads, masters, rows)
		}
	case parts.reduce == cpu.Max:
		most := r.tape.maximaOf(sum, p.In.Indptr, p.Index, make([]uint32, sum.Rows*sum.Cols))
		add = func(q int, masters []uint32, rows []float32) { most.take(r.tape, q, masters, rows) }
	}
	var room []float32
	if err := p.receivePartial(r.ctx, r.Exchange, sumsRound(l), p.Targets.Sends, own.Cols, &room, add); err != nil {
		return err
	}
	if parts.heads == 0 && parts.reduce == cpu.Mean {
		r.tape.scaleRows(sum, r.model.inverse)
	}
	r.out = cpu.Matrix[float32]{}
	err = r.someOf(p.Masters, func(i, n int) error {
		c, err := r.begin(l, &graph.Block{})
		if err != nil {
			return err
		}
		a := c.New(n, sum.Cols) // which Apply may write to
		cpu.Copy(r.tape.x, a.dense, sum.View(i, i+n, 0, sum.Cols))
		r.store(r.apply(l, r.old(i, n), a), i, p.Masters)
		return nil
	})
	if err != nil {
		return err
	}
	return r.Activations.Drop(partialName(l), p.Index)
}
