package compute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/spill"
)

// halo is what a piece's tape knows of the others. The first error of an exchange stays, and ends the others.
type halo struct {
	piece    *Piece
	exchange Exchange
	mean     int          // masters of a mean piece
	part     int          // values that a message of rows has at least, if rows cross whole and in more than one
	ids      []uint32     // of all nodes of the piece
	rows     *graph.Block // of the mirrors of targets, where sums are made in several pieces
	active   []layerRows  // of each layer

	ctx   context.Context // of a gradient
	step  int
	told  int  // rounds of sums so far
	again bool // what is computed was computed in this gradient before
	err   error

	knows  bool      // inputs are here
	inputs []float32 // features of the mirrors of sources

	table, back, sums []float32 // some columns of all nodes, of some rows, and of the mirrors of targets; kept from one gradient to the next

	sent  [][]float32         // in this gradient, as many values as are kept
	kept  int                 // of them
	spare map[int][][]float32 // that was sent, and nobody reads any more, by size
}

// message returns memory for n values that are to be sent.
func (h *halo) message(n int) (rows []float32) {
	const most = 16 << 20 // values that are kept for the next gradient: others' are as many as pieces have borders
	if free := h.spare[n]; len(free) > 0 {
		rows, h.spare[n] = free[len(free)-1], free[:len(free)-1]
	} else {
		rows = make([]float32, n)
	}
	if h.kept+n <= most {
		h.sent, h.kept = append(h.sent, rows), h.kept+n
	}
	return rows
}

// received says that all that was sent in this gradient is where it was sent to.
func (h *halo) received() {
	clear(h.spare)
	if h.spare == nil {
		h.spare = map[int][][]float32{}
	}
	for _, rows := range h.sent {
		h.spare[len(rows)] = append(h.spare[len(rows)], rows)
	}
	clear(h.sent)
	h.sent, h.kept = h.sent[:0], 0
}

func (h *halo) begin(ctx context.Context, step int) {
	h.ctx, h.step, h.told, h.again, h.err, h.sent, h.kept = ctx, step, 0, false, nil, nil, 0
}

// stripe is how many columns of a layer's rows cross the borders at once: as many as a table of a mean piece's masters has in 32 MiB. Where
// that is not all, some are on their way while those before them are aggregated, and no more memory is taken for others' rows than for
// these: whole cache lines, at most stripes of them. All pieces have the same.
func (h *halo) stripe(cols int) int {
	const line, stripes, table = 16, 8, 8 << 20 // values
	return max(line, (cols/stripes+line-1)/line*line, min(cols, table/h.mean/line*line))
}

// received returns, for each of layer l's results of Transform, one with the rows that other pieces sent behind those of the
// masters. They are sent when an op reads them: by a sum some columns at a time, else all. Backward, their gradients go back to
// where they come from, and are added there in the order of the pieces.
//
// Of x, the layer's input, that dropInputs made, the others' rows are there.
func received[T cpu.Float](t *Tape[T], l int, x *Value[T], made []*Value[T]) []*Value[T] {
	h, all := t.halo, make([]*Value[T], len(made))
	suffix := ""
	if h.again {
		suffix = "-again"
	}
	for k, v := range made {
		if l == 0 && v == x && h.knows {
			all[k] = cmp.Or(v.parent, v)
			continue
		}
		y := t.value(h.nodes(), v.cols)
		y.masters, y.needs, y.layer, y.round = v, v.needs, l, fmt.Sprintf("step-%d-layer-%d-%d%s", h.step, l, k, suffix)
		all[k] = y
	}
	return all
}

// sendsDropped tells whether layer 0 sends its input as it is, what dropout leaves of features, by what it makes of a row; and pieces
// are so small that whole rows of theirs cross at once: then they may keep others' features.
func (e *pieceEngine) sendsDropped() bool {
	c, spec, f := e.core, &e.core.model.spec, e.piece.Features
	if spec.InputDropout == 0 || e.piece.Partial != nil || e.halo.stripe(f.Cols) < f.Cols || c.model.sparseTable(f) != nil {
		return false
	}
	defer c.tape.Reset()
	c.bind(make([]float32, len(e.grad)), e.grad)
	x := c.dropInput(c.input(f, 1, nil), &e.blocks[0], 0)
	c.ctx[0].Block, c.ctx[0].wantsInput = &e.blocks[0], false
	return slices.Contains(c.layers[0].Transform(&c.ctx[0], x), x)
}

// bringInputs has the features of other pieces' nodes come, where layer 0 sends what dropout leaves of them: of all nodes, as a later batch may read others than
// the first. One piece after another gets its own, so that of messages between pieces here no more than those are in memory.
func (t *PieceTrainer) bringInputs(ctx context.Context) error {
	first := t.engines[0]
	if !first.sendsDropped() {
		return nil
	}
	const round = "inputs"
	t.inputs = make([][]float32, len(t.engines))
	for q := range first.piece.pieces() {
		for _, e := range t.engines {
			f, masters := e.piece.Features, e.piece.Sources.Sends[q]
			if q == e.piece.Index || len(masters) == 0 {
				continue
			}
			rows := make([]float32, len(masters)*f.Cols)
			for i, v := range masters {
				f.Row(rows[i*f.Cols:(i+1)*f.Cols], int(v))
			}
			if err := t.exchange.Send(ctx, round, e.piece.Index, q, rows); err != nil {
				return err
			}
		}
		for i, e := range t.engines {
			if e.piece.Index != q {
				continue
			}
			reads, cols := e.piece.Sources.Reads, e.piece.Features.Cols
			if t.inputs[i] = e.core.tape.mem.make(len(e.piece.Sources.IDs) * cols); e.halo.err != nil {
				return e.halo.err
			}
			for from := range e.piece.pieces() {
				if rows := t.inputs[i][reads[from]*cols : reads[from+1]*cols]; len(rows) > 0 {
					if err := t.exchange.Receive(ctx, round, from, q, rows); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// dropInputs is Dropout of x, the masters' features, whose result has those of other pieces' nodes behind it, its parent's.
func (t *Tape[T]) dropInputs(x *Value[T], d cpu.Dropped) *Value[T] {
	all := t.New(t.halo.nodes(), x.cols)
	y, others := t.Head(all, x.rows), all.dense.View(x.rows, all.rows, 0, x.cols)
	cpu.Gather(t.x, y.dense, x.source())
	cpu.Dropout(t.x, y.dense, y.dense, d)
	d.IDs = d.IDs[x.rows:]
	cpu.Dropout(t.x, others, cpu.Dense(others.Rows, x.cols, of[T](t.halo.inputs)), d)
	return y
}

func (h *halo) nodes() int { return h.piece.in() }

// bring makes y, which received returned, dense.
func (t *Tape[T]) bring(y *Value[T]) {
	h, v := t.halo, y.masters
	m, c := h.piece.Masters, &h.active[y.layer].sources
	y.dense, y.owned = t.matrix(y.rows, y.cols), true
	t.sendWhole(c, v, y.round)
	t.takeRows(c, y.round, y.dense, v.columns(0, v.cols), true)
	t.Record(y, func() {
		t.sendMirrors(c, "back-"+y.round, y.grad.View(m, y.rows, 0, y.cols))
		t.addGrad(v, y.grad.View(0, m, 0, y.cols))
		g, _ := v.gradient()
		t.takeBack(c, "back-"+y.round, g)
	}, v)
}

// aggregateStripes is Aggregate of x, which received returned and nobody else reads: rows of a stripe are sent while the one before
// is aggregated, and so are their gradients. No bit depends on stripes, as a column's sums are of that column alone. rest, if it is not nil,
// is what it takes of sums that are made in several pieces.
func (t *Tape[T]) aggregateStripes(b *graph.Block, x *Value[T], reduce cpu.Reduce, weights, self []T, rest *partialSums[T]) *Value[T] {
	h, v := t.halo, x.masters
	m, width, c := h.piece.Masters, h.stripe(x.cols), &h.active[x.layer].sources
	if n := h.nodes() * min(width, x.cols); cap(h.table) < n {
		h.table = make([]float32, n)
	}
	// each calls do for each stripe, with a table for its columns of all nodes.
	each := func(do func(k, from, to int, round string, table cpu.Matrix[T])) {
		for k := 0; k*width < x.cols; k++ {
			from, to := k*width, min((k+1)*width, x.cols)
			do(k, from, to, fmt.Sprintf("%s-%d", x.round, k), cpu.Dense(h.nodes(), to-from, of[T](h.table[:h.nodes()*(to-from)])))
		}
	}
	o := cpu.AggregateOptions[T]{Reduce: reduce, Weights: weights, Self: self}
	if rest != nil {
		o.Reduce = rest.reduce
	}
	var won [][]uint32 // Max: of each stripe
	sum := func(y *Value[T]) {
		sent := 0 // columns
		behind := func() {}
		each(func(k, from, to int, round string, table cpu.Matrix[T]) {
			if width >= x.cols {
				t.sendWhole(c, v, round)
			} else if sent < min(to+width, x.cols) {
				end := min(max(to+width, sent+packs(c, width)), x.cols)
				t.sendRows(c, v, sent, end, width, func(at int) string { return fmt.Sprintf("%s-%d", x.round, at/width) })
				sent = end
			}
			t.takeRows(c, round, table, v.columns(from, to), width >= x.cols)
			if h.err != nil {
				return
			}
			into := y.dense.View(0, y.rows, from, to)
			marks := reduce == cpu.Max && t.record && x.needs
			if marks {
				o.Argmax = t.marks.Alloc(b.NumDst * (to - from))
				won = append(won, o.Argmax)
			}
			if rest != nil {
				rest.send(t, round, table, marks)
			}
			cpu.Aggregate(t.x, into, b, cpu.Source[T]{Dense: table}, o)
			if rest != nil {
				behind()
				argmax := o.Argmax
				behind = func() { rest.take(t, b, round, into, argmax) }
			}
		})
		behind()
	}
	y := t.summed(b, v, reduce, weights, self, sum)
	t.Record(y, func() {
		if h.err != nil {
			return
		}
		g, add := v.gradient()
		o := o
		behind := func() {}
		if rest != nil {
			rest.begin(t, y.grad)
		}
		each(func(k, from, to int, round string, table cpu.Matrix[T]) {
			if won != nil {
				o.Argmax = won[k]
			}
			if rest != nil && k == 0 {
				rest.sendBack(t, round, y.grad.View(0, y.rows, from, to), k)
			}
			if next := min(to+width, x.cols); rest != nil && to < next {
				rest.sendBack(t, fmt.Sprintf("%s-%d", x.round, k+1), y.grad.View(0, y.rows, to, next), k+1)
			}
			// The mirrors' gradients, of few entries each, are on their way while the masters' are summed.
			back := func(into cpu.Matrix[T], first, end int, self []T) {
				of, o := *t.transpose(b), o
				of.NumSrc, of.Indptr, o.Self = end-first, of.Indptr[first:end+1], self
				cpu.AggregateBackward(t.x, into, &of, y.grad.View(0, y.rows, from, to), o)
			}
			mirrors, own := table.View(m, table.Rows, 0, table.Cols), table.View(0, m, 0, table.Cols)
			back(mirrors, m, table.Rows, nil)
			into := g.View(0, m, from, to)
			if rest == nil {
				t.sendMirrors(c, "back-"+round, mirrors)
				if !add {
					own = into
				}
				back(own, 0, m, o.Self)
			} else {
				back(own, 0, m, o.Self)
				rest.takeBack(t, round, table, k)
				t.sendMirrors(c, "back-"+round, mirrors)
			}
			switch {
			case add:
				cpu.Add(t.x, into, into, own)
			case rest != nil:
				cpu.Copy(t.x, into, own)
			}
			behind()
			behind = func() { t.takeBack(c, "back-"+round, into) }
		})
		behind()
	}, v)
	return y
}

// spill has the arena of values lie in files of dir; without, in memory that is none of Go's heap unless they are few (package spill).
func (t *Tape[T]) spill(dir string) {
	t.inFiles = dir != ""
	t.mem.alloc = func(n int) []T {
		b, err := spill.Make(dir, 4*n)
		if err != nil {
			if t.halo.err == nil {
				t.halo.err = err
			}
			return make([]T, n)
		}
		return of[T](unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n))
	}
	t.mem.free = func(s []T) {
		x := any(s).([]float32)
		spill.Free(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)))
	}
}

// of is x as values of T: pieces are computed in float32.
func of[T cpu.Float](x []float32) []T { return any(x).([]T) }

// columns returns columns [from, to) of v's rows, to be read where they lie.
func (v *Value[T]) columns(from, to int) cpu.Source[T] {
	s := v.source()
	if s.Table == nil {
		s.Dense = s.Dense.View(0, v.rows, from, to)
		return s
	}
	f := *s.Table
	f.Data, f.Cols = f.Data[min(from*f.DType.Size(), len(f.Data)):], to-from
	if f.ColScale != nil {
		f.ColScale = f.ColScale[from:to]
	}
	s.Table = &f
	return s
}

// packs returns how many columns, of whole stripes, of the rows that others read are copied at once: rows lie wherever they do, and a part of
// one takes nearly as long as all of it.
func packs(c *crossing, width int) int {
	const most = 8 << 20 // values
	rows := 0
	for _, ids := range c.sends {
		rows += len(ids)
	}
	return max(1, most/max(1, rows*width)) * width
}

// sendRows sends columns [from, to) of the masters' rows to each piece that reads them, width of them in each round.
func (t *Tape[T]) sendRows(c *crossing, v *Value[T], from, to, width int, round func(column int) string) {
	h := t.halo
	for q, ids := range c.sends {
		if len(ids) == 0 || h.err != nil {
			continue
		}
		rows := h.message(len(ids) * (to - from)) // of one round after another
		of := func(at int) []float32 { return rows[len(ids)*(at-from) : len(ids)*(min(at+width, to)-from)] }
		if masters := v.source(); masters.Table != nil {
			for at := from; at < to; at += width {
				s := v.columns(at, min(at+width, to))
				s.IDs = ids
				cpu.Gather(t.x, cpu.Dense(len(ids), s.Cols(), any(of(at)).([]T)), s)
			}
		} else {
			t.chunks(len(ids), func(i int) {
				row := any(masters.Dense.Row(int(ids[i]))).([]float32)
				for at := from; at < to; at += width {
					n := min(width, to-at)
					copy(of(at)[i*n:(i+1)*n], row[at:])
				}
			})
		}
		for at := from; at < to && h.err == nil; at += width {
			h.err = h.exchange.Send(h.ctx, round(at), h.piece.Index, q, of(at))
		}
	}
}

// parts is in how many messages a piece sends n whole rows to another.
func (h *halo) parts(n, cols int) int { return max(1, min(mostParts, n, n*cols/h.part)) }

// sendWhole sends the masters' rows to each piece that reads them, those that are made first while others are made.
func (t *Tape[T]) sendWhole(c *crossing, v *Value[T], round string) {
	type message struct {
		to, part int
		ids      []uint32
		rows     []float32
	}
	h := t.halo
	var all []message
	for q, ids := range c.sends {
		if len(ids) == 0 {
			continue
		}
		rows, n := h.message(len(ids)*v.cols), h.parts(len(ids), v.cols)
		for k := range n {
			from, to := k*len(ids)/n, (k+1)*len(ids)/n
			all = append(all, message{q, k, ids[from:to], rows[from*v.cols : to*v.cols]})
		}
	}
	last := func(m message) uint32 { return m.ids[len(m.ids)-1] }
	slices.SortStableFunc(all, func(a, b message) int { return cmp.Compare(last(a), last(b)) })
	for _, m := range all {
		var s cpu.Source[T]
		if v.dense.Data == nil {
			s = v.source()
		}
		if s.Table != nil {
			s.IDs = m.ids
			cpu.Gather(t.x, cpu.Dense(len(m.ids), v.cols, of[T](m.rows)), s)
		} else {
			from, into := t.ready(v, int(last(m))+1), cpu.Dense(len(m.ids), v.cols, of[T](m.rows))
			t.chunks(len(m.ids), func(i int) { copy(into.Row(i), from.Row(int(m.ids[i]))) })
		}
		if h.err == nil {
			h.err = h.exchange.Send(h.ctx, partOf(round, m.part), h.piece.Index, m.to, m.rows)
		}
	}
}

// partOf names the messages of a round, whose name has no dot, of which there may be several.
func partOf(round string, k int) string {
	if k == 0 {
		return round
	}
	return fmt.Sprintf("%s.%d", round, k)
}

// takeRows fills table with the masters' rows and, behind them, those that the others sent, by sendWhole or as one stripe.
func (t *Tape[T]) takeRows(c *crossing, round string, table cpu.Matrix[T], masters cpu.Source[T], whole bool) {
	m := t.halo.piece.Masters
	if own := table.View(0, m, 0, table.Cols); masters.Table != nil {
		cpu.Gather(t.x, own, masters)
	} else {
		cpu.Copy(t.x, own, masters.Dense)
	}
	t.takeMirrors(c, round, any(table.Data).([]float32)[m*table.Cols:], table.Cols, whole)
}

// takeBack adds what the others sent of the masters' rows to g, in the order of the pieces.
func (t *Tape[T]) takeBack(c *crossing, round string, g cpu.Matrix[T]) {
	h := t.halo
	for q, ids := range c.sends {
		if len(ids) == 0 || h.err != nil {
			continue
		}
		if n := len(ids) * g.Cols; cap(h.back) < n {
			h.back = make([]float32, n)
		}
		rows := h.back[:len(ids)*g.Cols]
		if h.err = h.exchange.Receive(h.ctx, round, q, h.piece.Index, rows); h.err != nil {
			continue
		}
		t.addRows(g, ids, of[T](rows))
	}
}

// gather returns what each piece has in the place of words, nil of one without masters; after an error none has anything.
func (h *halo) gather(words []float64) [][]float64 {
	all := make([][]float64, h.piece.pieces())
	if h.err != nil {
		return all
	}
	h.told++
	var said [][]float32
	said, h.err = share(h.ctx, h.exchange, fmt.Sprintf("step-%d-sums-%d", h.step, h.told), []*Piece{h.piece}, func(*Piece) []float32 {
		halves := make([]float32, 0, 2*len(words)) // the second what the first leaves
		for _, w := range words {
			high := float32(w)
			halves = append(halves, high, float32(w-float64(high)))
		}
		return halves
	})
	if h.err != nil {
		return all
	}
	for q, halves := range said {
		for i := 0; i < len(halves); i += 2 {
			all[q] = append(all[q], float64(halves[i])+float64(halves[i+1]))
		}
	}
	return all
}

// add replaces sums over a piece's rows by those over all, in the order of the pieces.
func (h *halo) add(sums []float64) {
	all := h.gather(sums)
	if h.err != nil {
		return
	}
	clear(sums)
	for _, of := range all {
		for j, x := range of {
			sums[j] += x
		}
	}
}

// joinMoments makes moments of a piece's rows those of all pieces (Chan, Golub and LeVeque, 1983).
func joinMoments[T cpu.Float](h *halo, m *moments[T]) {
	n := len(m.mean)
	words := make([]float64, 0, 2*n+1)
	words = append(words, float64(m.rows))
	for j := range n {
		words = append(words, float64(m.mean[j]), float64(m.variance[j]))
	}
	all := h.gather(words)
	rows, mean, square := 0.0, make([]float64, n), make([]float64, n)
	for _, of := range all {
		if of == nil {
			continue
		}
		share := of[0] / (rows + of[0])
		for j := range n {
			d := of[1+2*j] - mean[j]
			mean[j] += d * share
			square[j] += of[2+2*j]*of[0] + d*d*rows*share
		}
		rows += of[0]
	}
	m.rows = int(rows)
	for j := range n {
		m.mean[j], m.variance[j] = T(mean[j]), T(square[j]/max(rows, 1))
	}
}
