package compute

import (
	"context"
	"fmt"
	"math"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// introduce has pieces tell each other which nodes they mirror: of edges that lie with neither end's piece, only
// theirs knows. Each id is sent once, as the bits of a value.
func introduce(ctx context.Context, ex Exchange, pieces []*Piece) error {
	kinds := func(p *Piece) map[string]*Mirrors {
		return map[string]*Mirrors{"sources": &p.Sources, "targets": &p.Targets}
	}
	said, err := share(ctx, ex, "mirrored", pieces, func(p *Piece) (counts []float32) {
		for _, m := range []*Mirrors{&p.Sources, &p.Targets} {
			for q := range p.pieces() {
				counts = append(counts, math.Float32frombits(uint32(m.Reads[q+1]-m.Reads[q])))
			}
		}
		return counts
	})
	if err != nil {
		return err
	}
	for _, p := range pieces {
		for kind, m := range kinds(p) {
			for q := range p.pieces() {
				ids := m.IDs[m.Reads[q]:m.Reads[q+1]]
				if len(ids) == 0 {
					continue
				}
				words := make([]float32, len(ids))
				for i, v := range ids {
					words[i] = math.Float32frombits(v)
				}
				if err := ex.Send(ctx, kind, p.Index, q, words); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range pieces {
		for kind, m := range kinds(p) {
			m.Sends = make([][]uint32, p.pieces())
			for q, counts := range said {
				if counts == nil || p.empty(p.Index) {
					continue
				}
				at := p.Index
				if kind == "targets" {
					at += p.pieces()
				}
				count := math.Float32bits(counts[at])
				if count > uint32(p.Masters) {
					return fmt.Errorf("piece %d mirrors %d nodes of piece %d, which has %d", q, count, p.Index, p.Masters)
				}
				if count == 0 {
					continue
				}
				words := make([]float32, count)
				if err := ex.Receive(ctx, kind, q, p.Index, words); err != nil {
					return err
				}
				m.Sends[q] = make([]uint32, len(words))
				for i, w := range words {
					v := math.Float32bits(w) - p.First
					if m.Sends[q][i] = v; int(v) >= p.Masters || i > 0 && v <= m.Sends[q][i-1] {
						return fmt.Errorf("piece %d mirrors node %d of piece %d, which has %d from %d", q, math.Float32bits(w), p.Index, p.Masters, p.First)
					}
				}
			}
		}
	}
	return nil
}

// sendPartial sends the mirrors' rows, which nobody changes any more, to the targets' masters.
func (p *Piece) sendPartial(ctx context.Context, ex Exchange, round string, rows []float32) error {
	for q := range p.pieces() {
		from, to := p.Targets.Reads[q], p.Targets.Reads[q+1]
		if from == to {
			continue
		}
		width := len(rows) / len(p.Targets.IDs)
		if err := ex.Send(ctx, round, p.Index, q, rows[from*width:to*width]); err != nil {
			return err
		}
	}
	return nil
}

// receivePartial has use called with what other pieces sent of the masters' rows, of sends, piece by piece in their order: rows of
// width values of the masters, whose memory is room's.
func (p *Piece) receivePartial(ctx context.Context, ex Exchange, round string, sends [][]uint32, width int, room *[]float32, use func(q int, masters []uint32, rows []float32)) error {
	for q, masters := range sends {
		if len(masters) == 0 {
			continue
		}
		*room = resized(*room, len(masters)*width)
		if err := ex.Receive(ctx, round, q, p.Index, *room); err != nil {
			return err
		}
		use(q, masters, *room)
	}
	return nil
}

// receiveTargets fills rows, one for each of the mirrors of targets, with what their masters sent.
func (p *Piece) receiveTargets(ctx context.Context, ex Exchange, round string, rows []float32) error {
	for q := range p.pieces() {
		if len(rows) == 0 || p.Targets.Reads[q] == p.Targets.Reads[q+1] {
			continue
		}
		width := len(rows) / len(p.Targets.IDs)
		if err := ex.Receive(ctx, round, q, p.Index, rows[p.Targets.Reads[q]*width:p.Targets.Reads[q+1]*width]); err != nil {
			return err
		}
	}
	return nil
}

// onPartial tells models of pieces whose nodes' edges lie in several what they have elsewhere; it returns of each
// master the sum of those edges' weights, nil where edges lie with their targets.
func (m *Model) onPartial(ctx context.Context, models []*Model, pieces []*Piece, ex Exchange) (elsewhere [][]float64, err error) {
	elsewhere = make([][]float64, len(pieces))
	if len(pieces) == 0 || pieces[0].Partial == nil {
		return elsewhere, nil
	}
	if m.custom != nil {
		return nil, fmt.Errorf("edges lie elsewhere than at their targets, where the program's own layers are not computed; divide the graph with --edges target")
	}
	if err := introduce(ctx, ex, pieces); err != nil {
		return nil, err
	}
	const width = 4 // two exact numbers
	for _, p := range pieces {
		rows := make([]float32, 0, width*len(p.Targets.IDs))
		for i := range p.Targets.IDs {
			count, sum := p.Partial.Indptr[i+1]-p.Partial.Indptr[i], 0.0
			for e := p.Partial.Indptr[i]; e < p.Partial.Indptr[i+1] && p.Partial.Weights != nil; e++ {
				sum += float64(p.Partial.Weights[e])
			}
			if p.Partial.Weights == nil {
				sum = float64(count)
			}
			rows = append(rows, exactly(float64(count), sum)...)
		}
		if err := p.sendPartial(ctx, ex, "degrees", rows); err != nil {
			return nil, err
		}
	}
	var room []float32
	for i, p := range pieces {
		counts := make([]float64, p.Masters)
		for v := range counts {
			counts[v] = float64(p.In.Degree(uint32(v)))
		}
		elsewhere[i] = make([]float64, p.Masters)
		err := p.receivePartial(ctx, ex, "degrees", p.Targets.Sends, width, &room, func(_ int, masters []uint32, rows []float32) {
			for k, v := range masters {
				counts[v] += number(rows[k*width:], 0)
				elsewhere[i][v] += number(rows[k*width:], 1)
			}
		})
		if err != nil {
			return nil, err
		}
		models[i].inverse = make([]float32, p.Masters)
		for v, n := range counts {
			models[i].inverse[v] = float32(1 / max(n, 1))
		}
	}
	return elsewhere, nil
}

// beyond returns the coefficients of the entries of b, rows of p.Partial whose targets have these factors.
func (k *gcnCoefs[T]) beyond(c *Context[T], p *Piece, b *graph.Block, targets []float32) []T {
	d := c.derivedOf(b)
	if d != nil && d.weights != nil {
		return d.weights
	}
	var w []T
	if d != nil {
		d.weights = make([]T, len(b.Indices))
		w = d.weights
	} else {
		w = c.host.Alloc(len(b.Indices))
	}
	c.chunks(b.NumDst, func(i int) {
		for e := b.Indptr[i]; e < b.Indptr[i+1]; e++ {
			w[e] = T(k.norm.invSqrt[b.Indices[e]]) * T(targets[i])
			switch {
			case p.Partial.Weights == nil:
			case b.EdgeIDs != nil:
				w[e] *= T(p.Partial.Weights[b.EdgeIDs[e]])
			default:
				w[e] *= T(p.Partial.Weights[e])
			}
		}
	})
	return w
}

// addRows adds rows of from to those of y.
func (t *Tape[T]) addRows(y cpu.Matrix[T], rows []uint32, from []T) {
	t.chunks(len(rows), func(i int) {
		to := y.Row(int(rows[i]))
		for j, x := range from[i*y.Cols : (i+1)*y.Cols] {
			to[j] += x
		}
	})
}

// scaleRows multiplies each row of y by its factor.
func (t *Tape[T]) scaleRows(y cpu.Matrix[T], factors []float32) {
	t.chunks(y.Rows, func(i int) {
		row, f := y.Row(i), T(factors[i])
		for j := range row {
			row[j] *= f
		}
	})
}

// noPiece is the piece that a maximum of nothing is of.
const noPiece = math.MaxUint32

// maxima put maxima over the entries of several pieces together.
type maxima[T cpu.Float] struct {
	y  cpu.Matrix[T] // so far; 0 of no entries
	of []uint32      // the piece of each of y's values, dense, or noPiece: of several with the same the first, as its entries are in one process
}

// maximaOf begins with what y, of piece's rows in, has.
func (t *Tape[T]) maximaOf(y cpu.Matrix[T], in []int64, piece int, of []uint32) *maxima[T] {
	t.chunks(y.Rows, func(i int) {
		who := uint32(piece)
		if in[i] == in[i+1] {
			who = noPiece
		}
		for j := range y.Cols {
			of[i*y.Cols+j] = who
		}
	})
	return &maxima[T]{y, of}
}

// take takes rows of maxima of piece q's entries in.
func (m *maxima[T]) take(t *Tape[T], q int, rows []uint32, from []T) {
	cols := m.y.Cols
	t.chunks(len(rows), func(i int) {
		to, of := m.y.Row(int(rows[i])), m.of[int(rows[i])*cols:][:cols]
		for j, x := range from[i*cols : (i+1)*cols] {
			switch cur := to[j]; {
			case of[j] == noPiece, !(x <= cur) && cur == cur: // as the kernel has it: NaN wins over all
				to[j], of[j] = x, uint32(q)
			case x == cur:
				of[j] = min(of[j], uint32(q))
			}
		}
	})
}

// joinSoftmax takes another piece's part of attention in, with weights of a softmax over both: rows of y, with the logarithm of the sums of
// their scores' exponentials in sums, per head, and of from, which has the latter behind each row.
func (t *Tape[T]) joinSoftmax(y cpu.Matrix[T], sums []T, heads int, rows []uint32, from []T) {
	cols, c := y.Cols, y.Cols/heads
	t.chunks(len(rows), func(i int) {
		row := int(rows[i])
		to, other := y.Row(row), from[i*(cols+heads):][:cols+heads]
		for h := range heads {
			a, b := float64(sums[row*heads+h]), float64(other[cols+h])
			most := max(a, b)
			if math.IsInf(most, -1) {
				continue
			}
			sum := most + math.Log(math.Exp(a-most)+math.Exp(b-most))
			sums[row*heads+h] = T(sum)
			own, theirs := T(math.Exp(a-sum)), T(math.Exp(b-sum))
			for j := h * c; j < (h+1)*c; j++ {
				to[j] = T(own*to[j]) + T(theirs*other[j])
			}
		}
	})
}
