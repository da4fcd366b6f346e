package compute

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// AllRows reports whether an output depends on nodes that no edges lead from: batch norm's statistics are over all rows of a batch, and degrees of
// the block over all its entries.
func (m *Model) AllRows() bool { return m.statistics != nil || m.spec.GCNNorm == "block" }

// layerRows are the rows that cross a piece's borders in a layer: of nodes that outputs with loss depend on, found by breadth-first
// search over the pieces from those outputs' nodes.
type layerRows struct{ sources, targets crossing }

// crossing is what of Mirrors crosses borders.
type crossing struct {
	from  []int      // of each piece, the first of its masters' mirrors, and how many there are
	at    []int      // reads[at[q]:at[q+1]] are masters of piece q; without reads, mirrors are
	reads []uint32   // numbers of mirrors, ascending; nil: all cross
	sends [][]uint32 // of each piece the masters here that it reads, ascending
}

// all has every row of m cross.
func (m *Mirrors) all() crossing { return crossing{from: m.Reads, at: m.Reads, sends: m.Sends} }

// pairs returns how many rows come from other pieces, and how many go there.
func (c *crossing) pairs() (reads, sends int) {
	for _, ids := range c.sends {
		sends += len(ids)
	}
	if len(c.at) > 0 {
		reads = c.at[len(c.at)-1]
	}
	return reads, sends
}

// bytes returns how much memory c takes beside the Mirrors.
func (c *crossing) bytes() int64 {
	if c.reads == nil {
		return 0
	}
	reads, sends := c.pairs()
	return 4 * int64(reads+sends)
}

// sendMirrors sends rows, one for each mirror, to the pieces that have the masters.
func (t *Tape[T]) sendMirrors(c *crossing, round string, rows cpu.Matrix[T]) {
	h := t.halo
	for q := 0; q+1 < len(c.at); q++ {
		from, n := c.at[q], c.at[q+1]-c.at[q]
		if n == 0 || h.err != nil {
			continue
		}
		message := h.message(n * rows.Cols)
		some := cpu.Dense(n, rows.Cols, of[T](message))
		if c.reads == nil {
			cpu.Copy(t.x, some, rows.View(from, from+n, 0, rows.Cols))
		} else {
			t.chunks(n, func(i int) { copy(some.Row(i), rows.Row(int(c.reads[from+i]))) })
		}
		h.err = h.exchange.Send(h.ctx, round, h.piece.Index, q, message)
	}
}

// takeMirrors fills rows, cols values for each mirror, with what the masters' pieces sent, by sendWhole or in a message each. Nobody reads those of others, which are zeros: what
// is made of them has no gradient, but that times what is no number would be none.
func (t *Tape[T]) takeMirrors(c *crossing, round string, rows []float32, cols int, whole bool) {
	h := t.halo
	for q := 0; q+1 < len(c.at) && h.err == nil; q++ {
		first, end, n := c.from[q], c.from[q+1], c.at[q+1]-c.at[q]
		switch there := rows[(end-n)*cols : end*cols]; {
		case n == 0:
		case whole:
			for k, parts := 0, h.parts(n, cols); k < parts && h.err == nil; k++ {
				h.err = h.exchange.Receive(h.ctx, partOf(round, k), q, h.piece.Index, there[k*n/parts*cols:(k+1)*n/parts*cols])
			}
		default:
			h.err = h.exchange.Receive(h.ctx, round, q, h.piece.Index, there)
		}
		if n == end-first {
			continue
		}
		next := first // from the last rows of the piece's they move to earlier ones, which have been moved
		for i, v := range c.reads[c.at[q]:c.at[q+1]] {
			to := int(v)
			clear(rows[next*cols : to*cols])
			copy(rows[to*cols:(to+1)*cols], rows[(end-n+i)*cols:])
			next = to + 1
		}
		clear(rows[next*cols : end*cols])
	}
}

// ActiveSet is what pieces here compute a batch by, which Search found: nothing of it changes any more.
type ActiveSet struct {
	number int         // of those that were searched for
	inputs [][]float32 // PieceTrainer's
	pieces []activePiece
}

// activePiece is what an ActiveSet has of a piece.
type activePiece struct {
	batch      PieceBatch
	layers     []layerRows
	blocks     []graph.Block    // of the layers
	trimmed    []bool           // which of them are not the piece's own
	transposes []*cpu.Transpose // of blocks; nil: it is made where a backward pass asks for it
}

// Bytes returns how much memory s takes until a trainer takes it, which counts it from then on, beside the pieces' own.
func (s *ActiveSet) Bytes() (n int64) {
	for i := range s.pieces {
		p := &s.pieces[i]
		n += 4*int64(len(p.batch.Targets)+len(p.batch.Labels)+len(p.batch.Weights)) + int64(len(p.batch.Multi))
		for l := range p.layers {
			n += p.layers[l].sources.bytes() + p.layers[l].targets.bytes()
			if b := &p.blocks[l]; p.trimmed[l] {
				n += blockBytes(b)
			}
			if t := p.transposes[l]; t != nil {
				n += t.Bytes()
			}
		}
	}
	return n
}

// blockBytes is what a trimmed block takes.
func blockBytes(b *graph.Block) int64 {
	return 8*int64(len(b.Indptr)+len(b.EdgeIDs)) + 4*int64(len(b.Indices))
}

// Use has the next gradients be of a batch: Search, and Take.
func (t *PieceTrainer) Use(ctx context.Context, batch func(piece int) PieceBatch) error {
	set, err := t.Search(ctx, batch)
	if err == nil {
		t.Take(set)
	}
	return err
}

// Search finds what a batch is computed by, of which batch has what lies in a piece. Pieces tell each other which of their
// nodes its outputs depend on: rows of no others cross their borders. It depends on no parameters, and may run while gradients of other batches are computed. All that
// compute pieces call it alike, for one batch after another. After an error the trainer is of no more use.
func (t *PieceTrainer) Search(ctx context.Context, batch func(piece int) PieceBatch) (*ActiveSet, error) {
	if t.searched++; t.searched == 1 {
		if err := graph.Guard(func() error { return t.bringInputs(ctx) }); err != nil {
			return nil, fmt.Errorf("compute: training over pieces: %w", err)
		}
	}
	layers := len(t.engines[0].core.layers)
	set := &ActiveSet{number: t.searched, inputs: t.inputs, pieces: make([]activePiece, len(t.engines))}
	active := make([][]bool, len(t.engines)) // of a layer's destinations
	for i, e := range t.engines {
		s := &set.pieces[i]
		s.batch, s.trimmed, s.transposes = batch(e.piece.Index), make([]bool, layers), make([]*cpu.Transpose, layers)
		if err := e.core.checkTargets(s.batch.input(), e.piece.Masters); err != nil {
			return nil, fmt.Errorf("compute: training over pieces: piece %d: %w", e.piece.Index, err)
		}
		for range layers {
			s.layers = append(s.layers, layerRows{e.piece.Sources.all(), e.piece.Targets.all()})
			s.blocks = append(s.blocks, e.piece.whole())
		}
		active[i] = make([]bool, e.piece.Masters)
		for _, v := range s.batch.Targets {
			active[i][v] = true
		}
	}
	for l := layers - 1; l >= 0 && t.engines[0].trims; l-- {
		for i, e := range t.engines {
			s := &set.pieces[i]
			if s.trimmed[l] = trimmed(&s.blocks[l], e.piece.In, active[i], l == layers-1); s.trimmed[l] && e.turned[l].Load() {
				s.transposes[l] = new(cpu.Transpose)
				buildTranspose(t.exec, s.transposes[l], &s.blocks[l])
			}
		}
		if err := t.search(ctx, fmt.Sprintf("active-%d-%d", set.number, l), l, set.pieces, active); err != nil {
			return nil, fmt.Errorf("compute: training over pieces: %w", err)
		}
	}
	return set, nil
}

// Take has the next gradients be of the batch of set, which t's Search found, or that of a trainer beside it.
func (t *PieceTrainer) Take(set *ActiveSet) {
	t.step = max(t.step, set.number-1)
	for i, e := range t.engines {
		s, tape := &set.pieces[i], e.core.tape
		e.batch, e.halo.active = s.batch, s.layers
		if e.halo.knows = set.inputs != nil; e.halo.knows {
			e.halo.inputs = set.inputs[i]
		}
		tape.forgetSums(&tape.ofWhole) // of rows that may not have crossed
		copy(e.blocks, s.blocks)
		for l := range s.blocks {
			of := &tape.ofLasting[l]
			if of.transpose != nil {
				e.turned[l].Store(true)
			}
			tape.forget(of)
			of.transpose = s.transposes[l]
		}
	}
}

// whole is a block of all rows of the masters.
func (p *Piece) whole() graph.Block {
	return graph.Block{NumDst: p.Masters, NumSrc: p.in(), Indptr: p.In.Indptr, Indices: p.In.Indices}
}

// trimmed has b, which has all rows of in, have no rows but those of active nodes, if they have so few of the edges that it is worth their copy: nothing reads what
// a layer makes of other nodes, whose gradients are zeros. Nodes keep their numbers, so no bit depends on it. Layers before the last share a transpose, and are
// trimmed where those of their own take little beside it. It reports whether b is trimmed.
func trimmed(b *graph.Block, in *graph.Graph, active []bool, last bool) bool {
	worth := int64(8)
	if last {
		worth = 2
	}
	left := make([]int64, len(in.Indptr)) // entries of each row, then of all before it
	sum := int64(0)
	for v, is := range active {
		if is {
			left[v+1] = in.Indptr[v+1] - in.Indptr[v]
			sum += left[v+1]
		}
	}
	if worth*sum > int64(len(in.Indices)) {
		return false
	}
	rows := make([]uint32, 0, sum)
	var ids []int64 // weights are found by
	for v := range b.NumDst {
		if left[v+1] > 0 {
			rows = append(rows, in.Indices[in.Indptr[v]:in.Indptr[v+1]]...)
			for i := in.Indptr[v]; i < in.Indptr[v+1] && in.Weights != nil; i++ {
				ids = append(ids, i)
			}
		}
		left[v+1] = int64(len(rows))
	}
	b.Indptr, b.Indices, b.EdgeIDs = left, rows, ids
	return true
}

// search finds what crosses in layer l, of set, whose destinations' flags become those of its sources.
func (t *PieceTrainer) search(ctx context.Context, round string, l int, set []activePiece, active [][]bool) error {
	ex := t.exchange
	for i, e := range t.engines {
		if e.piece.Partial == nil {
			continue
		}
		if err := set[i].layers[l].targets.send(ctx, ex, round+"-targets", e.piece, &e.piece.Targets, active[i]); err != nil {
			return err
		}
	}
	for i, e := range t.engines {
		p, a := e.piece, &set[i].layers[l]
		sources := make([]bool, p.in())
		copy(sources, active[i])
		mark := func(g *graph.Graph, rows []bool) {
			for v, is := range rows {
				for k := g.Indptr[v]; is && k < g.Indptr[v+1]; k++ {
					sources[g.Indices[k]] = true
				}
			}
		}
		mark(p.In, active[i])
		if p.Partial != nil {
			sums := make([]bool, len(p.Targets.IDs))
			for q := range p.pieces() {
				if err := hear(ctx, ex, round+"-targets", q, p.Index, sums[p.Targets.Reads[q]:p.Targets.Reads[q+1]]); err != nil {
					return err
				}
			}
			a.targets.read(&p.Targets, sums)
			mark(p.Partial, sums)
		}
		mirrors := sources[p.Masters:]
		a.sources.read(&p.Sources, mirrors)
		for q := range p.pieces() {
			if err := tell(ctx, ex, round, p.Index, q, mirrors[p.Sources.Reads[q]:p.Sources.Reads[q+1]]); err != nil {
				return err
			}
		}
		active[i] = sources[:p.Masters]
	}
	for i, e := range t.engines {
		p, c := e.piece, &set[i].layers[l].sources
		c.sends = make([][]uint32, p.pieces())
		for q, all := range p.Sources.Sends {
			asked := make([]bool, len(all))
			if err := hear(ctx, ex, round, q, p.Index, asked); err != nil {
				return err
			}
			c.sends[q] = some(all, asked)
			for _, v := range c.sends[q] {
				active[i][v] = true
			}
		}
	}
	return nil
}

// send has the flagged masters' rows alone go to the pieces that mirror them, and tells those.
func (c *crossing) send(ctx context.Context, ex Exchange, round string, p *Piece, m *Mirrors, flags []bool) error {
	c.sends = make([][]uint32, p.pieces())
	for q, all := range m.Sends {
		of := make([]bool, len(all))
		for i, v := range all {
			of[i] = flags[v]
		}
		c.sends[q] = some(all, of)
		if err := tell(ctx, ex, round, p.Index, q, of); err != nil {
			return err
		}
	}
	return nil
}

// read has no rows come but those of flagged mirrors.
func (c *crossing) read(m *Mirrors, flags []bool) {
	if !slices.Contains(flags, false) {
		return
	}
	c.reads, c.at = []uint32{}, []int{0}
	for q := range len(m.Reads) - 1 {
		for v := m.Reads[q]; v < m.Reads[q+1]; v++ {
			if flags[v] {
				c.reads = append(c.reads, uint32(v))
			}
		}
		c.at = append(c.at, len(c.reads))
	}
}

// some returns those of all that are flagged.
func some(all []uint32, flags []bool) (ids []uint32) {
	if !slices.Contains(flags, false) {
		return all
	}
	for i, v := range all {
		if flags[i] {
			ids = append(ids, v)
		}
	}
	return ids
}

// tell sends flags, 32 in the bits of a value.
func tell(ctx context.Context, ex Exchange, round string, from, to int, flags []bool) error {
	if len(flags) == 0 {
		return nil
	}
	words := make([]uint32, (len(flags)+31)/32)
	for i, is := range flags {
		if is {
			words[i/32] |= 1 << (i % 32)
		}
	}
	bits := make([]float32, len(words))
	for i, w := range words {
		bits[i] = math.Float32frombits(w)
	}
	return ex.Send(ctx, round, from, to, bits)
}

// hear fills flags with those that tell sent.
func hear(ctx context.Context, ex Exchange, round string, from, to int, flags []bool) error {
	if len(flags) == 0 {
		return nil
	}
	bits := make([]float32, (len(flags)+31)/32)
	if err := ex.Receive(ctx, round, from, to, bits); err != nil {
		return err
	}
	for i := range flags {
		flags[i] = math.Float32bits(bits[i/32])>>(i%32)&1 != 0
	}
	return nil
}
