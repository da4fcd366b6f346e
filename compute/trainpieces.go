package compute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// PieceTrainer computes gradients of the whole graph's loss on its pieces, in the stages of NN-TGAR: Transform on
// masters, one exchange of the rows that other pieces read, then Gather, Sum and Apply where the edges lie; backward
// the reverse, where a master adds what the pieces say of its row in their order. Each piece is computed by a goroutine of its
// own, and holds its activations. Batch norm's statistics are over all pieces.
//
// The gradient is a function of the parameters, the key, the targets and of where the borders between pieces are:
// not of which of them are computed here, and in float32's error that of the whole graph.
type PieceTrainer struct {
	engines  []*pieceEngine
	exchange Exchange
	places   Places
	step     int
}

// pieceEngine is an engine on one piece.
type pieceEngine struct {
	core   *core[float32]
	piece  *Piece
	blocks []graph.Block
	halo   halo
	grad   []float32

	forward, backward time.Duration // of the last gradient, with what it waited
}

// PieceBatch is what of a batch lies in a piece.
type PieceBatch struct {
	Targets []uint32  // masters that carry loss, by their numbers in the piece, distinct
	Labels  []int32   // class of each target
	Multi   []uint8   // instead of Labels, several labels per target
	Weights []float32 // weight of each target's loss; nil: all 1
}

// NewPieceTrainer returns a trainer on pieces, which are all or those that are computed here; execs makes what one goroutine
// runs kernels on. m is bound to graph.Elsewhere, of the whole graph's size. What the whole graph says of nodes, all pieces tell each other
// before it returns.
func (m *Model) NewPieceTrainer(ctx context.Context, execs func() *cpu.Exec, pieces []*Piece, ex Exchange) (t *PieceTrainer, err error) {
	err = graph.Guard(func() error {
		models, err := m.onPieces(ctx, pieces, ex)
		if err != nil {
			return err
		}
		t = &PieceTrainer{exchange: ex}
		if t.places, err = FindPlaces(ctx, ex, "places", pieces); err != nil {
			return err
		}
		for i, p := range pieces {
			if p.Masters == 0 {
				continue
			}
			e := &pieceEngine{core: newCore[float32](models[i], execs(), true), piece: p, grad: make([]float32, m.layout.Len())}
			e.halo = halo{piece: p, exchange: ex, ids: make([]uint32, 0, p.Masters+len(p.Others))}
			for v := range p.Masters {
				e.halo.ids = append(e.halo.ids, p.First+uint32(v))
			}
			e.halo.ids = append(e.halo.ids, p.Others...)
			e.core.tape.halo = &e.halo
			e.core.tape.fix()
			block := graph.Block{NumDst: p.Masters, NumSrc: p.Masters + len(p.Others), Indptr: p.In.Indptr, Indices: p.In.Indices}
			for range e.core.layers {
				e.blocks = append(e.blocks, block)
			}
			t.engines = append(t.engines, e)
		}
		if len(t.engines) == 0 {
			return errors.New("no piece with nodes is computed here")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compute: training over pieces: %w", err)
	}
	return t, nil
}

// Close gives back what the engines hold.
func (t *PieceTrainer) Close() {
	for _, e := range t.engines {
		e.core.close()
	}
}

// Bytes returns how much memory the engines hold from one step to the next: activations, their gradients and what backward passes
// need of edges.
func (t *PieceTrainer) Bytes() (n int64) {
	for _, e := range t.engines {
		n += e.core.tape.held() + 4*int64(len(e.halo.ids)+len(e.grad))
	}
	return n
}

// Gradient computes the gradients of a batch, of which batch has what lies in a piece: one vector for each piece with masters that is computed here,
// in their order, valid until the next call, and the Stats of each. Sum adds them up; before, Model.Observe takes what the first of them carries.
// All that compute pieces call it alike. After an error the trainer is of no more use.
func (t *PieceTrainer) Gradient(ctx context.Context, params []float32, key rng.Key, batch func(piece int) PieceBatch) (grads [][]float32, stats []Stats, err error) {
	t.step++
	stats = make([]Stats, len(t.engines))
	all, ctx := errgroup.WithContext(ctx)
	for i, e := range t.engines {
		grads = append(grads, e.grad)
		all.Go(func() error {
			return graph.Guard(func() (err error) {
				stats[i], err = e.gradient(ctx, t.step, params, key, batch(e.piece.Index), i == 0)
				return err
			})
		})
	}
	if err := all.Wait(); err != nil {
		return nil, nil, fmt.Errorf("compute: training over pieces: %w", err)
	}
	return grads, stats, nil
}

// Sum adds up what Gradient returned here and elsewhere, SumTree's sum of the pieces' gradients and their Stats in the pieces' order,
// which all places have then. It overwrites grads, and may return one of them.
func (t *PieceTrainer) Sum(ctx context.Context, grads [][]float32, stats []Stats) (sum []float32, total Stats, err error) {
	here, mine := t.engines[0].piece.Index, map[int]Stats{}
	for i, e := range t.engines {
		mine[e.piece.Index] = stats[i]
	}
	said, err := t.places.Share(ctx, t.exchange, fmt.Sprintf("step-%d-stats", t.step), here, func(piece int) ([]float32, error) {
		s := mine[piece]
		return exactly(s.Loss, s.Weight, float64(s.Count), float64(s.Correct)), nil
	}, func(int) int { return 2 * 4 })
	if err == nil {
		sum, err = t.places.sumTree(ctx, t.exchange, fmt.Sprintf("step-%d-gradient", t.step), here, grads)
	}
	if err != nil {
		return nil, total, fmt.Errorf("compute: training over pieces: %w", err)
	}
	for _, w := range said {
		if w == nil {
			continue
		}
		total.Loss, total.Weight = total.Loss+number(w, 0), total.Weight+number(w, 1)
		total.Count, total.Correct = total.Count+int(number(w, 2)), total.Correct+int(number(w, 3))
	}
	return sum, total, nil
}

// gradient computes what Gradient does, of a piece; reports: with what Observe takes.
func (e *pieceEngine) gradient(ctx context.Context, step int, params []float32, key rng.Key, b PieceBatch, reports bool) (Stats, error) {
	c, p := e.core, e.piece
	in := &Input{Targets: b.Targets, Labels: b.Labels, Multi: b.Multi, Weights: b.Weights}
	if len(params) != len(e.grad) {
		return Stats{}, fmt.Errorf("%d parameters given, the model has %d", len(params), len(e.grad))
	}
	if err := c.checkTargets(in, p.Masters); err != nil {
		return Stats{}, fmt.Errorf("piece %d: %w", p.Index, err)
	}
	e.halo.begin(ctx, step)
	began := time.Now()
	c.tape.Reset()
	c.bind(params, e.grad)
	y := c.forward(e.blocks, c.input(p.Features, p.Masters, nil), key)
	if e.halo.err != nil {
		return Stats{}, e.halo.err
	}
	stats, err := c.loss(y, in)
	if err == nil {
		err = finite(stats.Loss)
	}
	if err != nil {
		return stats, fmt.Errorf("piece %d: %w", p.Index, err)
	}
	e.forward = time.Since(began)
	c.tape.Backward()
	if e.halo.err != nil {
		return stats, e.halo.err
	}
	e.backward = time.Since(began) - e.forward
	c.collect(e.grad)
	if reports {
		c.report(e.grad)
	}
	return stats, nil
}

// halo is what a piece's tape knows of the others. The first error of an exchange stays, and ends the others.
type halo struct {
	piece    *Piece
	exchange Exchange
	ids      []uint32 // of all nodes of the piece

	ctx  context.Context // of a gradient
	step int
	told int // rounds of sums so far
	err  error
}

func (h *halo) begin(ctx context.Context, step int) {
	h.ctx, h.step, h.told, h.err = ctx, step, 0, nil
}

// received returns, for each of layer l's results of Transform, one with the rows that other pieces sent behind those of the
// masters. Backward, their gradients go back to where they come from, and are added there in the order of the pieces.
func received[T cpu.Float](t *Tape[T], l int, made []*Value[T]) []*Value[T] {
	all := make([]*Value[T], len(made))
	for k, v := range made {
		all[k] = receive(t, fmt.Sprintf("step-%d-layer-%d-%d", t.halo.step, l, k), v)
	}
	return all
}

func receive[T cpu.Float](t *Tape[T], round string, v *Value[T]) *Value[T] {
	h := t.halo
	p := h.piece
	m := v.Matrix()
	y := t.New(p.Masters+len(p.Others), v.cols)
	cpu.Copy(t.x, y.dense.View(0, p.Masters, 0, v.cols), m)
	for q, masters := range p.Sends {
		send(h, round, q, len(masters), v.cols, func(i int) []T { return m.Row(int(masters[i])) })
	}
	for q := range p.Sends {
		from := p.Masters + p.Reads[q]
		take(h, round, q, p.Reads[q+1]-p.Reads[q], v.cols, func(i int, row []float32) {
			to := y.dense.Row(from + i)
			for j, x := range row {
				to[j] = T(x)
			}
		})
	}
	t.Record(y, func() {
		round := "back-" + round
		for q := range p.Sends {
			from := p.Masters + p.Reads[q]
			send(h, round, q, p.Reads[q+1]-p.Reads[q], v.cols, func(i int) []T { return y.grad.Row(from + i) })
		}
		t.addGrad(v, y.grad.View(0, p.Masters, 0, v.cols))
		g, _ := v.gradient()
		for q, masters := range p.Sends {
			take(h, round, q, len(masters), v.cols, func(i int, row []float32) {
				to := g.Row(int(masters[i]))
				for j, x := range row {
					to[j] += T(x)
				}
			})
		}
	}, v)
	return y
}

// send sends n rows to piece q.
func send[T cpu.Float](h *halo, round string, q, n, cols int, row func(i int) []T) {
	if n == 0 || h.err != nil {
		return
	}
	rows := make([]float32, 0, n*cols)
	for i := range n {
		for _, x := range row(i) {
			rows = append(rows, float32(x))
		}
	}
	h.err = h.exchange.Send(h.ctx, round, h.piece.Index, q, rows)
}

// take has use called with each of the n rows that piece q sent.
func take(h *halo, round string, q, n, cols int, use func(i int, row []float32)) {
	if n == 0 || h.err != nil {
		return
	}
	rows := make([]float32, n*cols)
	if h.err = h.exchange.Receive(h.ctx, round, q, h.piece.Index, rows); h.err != nil {
		return
	}
	for i := range n {
		use(i, rows[i*cols:(i+1)*cols])
	}
}

// gather returns what each piece has in the place of words, nil of one without masters; after an error none has anything.
func (h *halo) gather(words []float64) [][]float64 {
	all := make([][]float64, len(h.piece.Sends))
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
