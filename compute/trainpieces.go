package compute

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	exec     *cpu.Exec   // that Search runs kernels on
	inputs   [][]float32 // of each engine the features of the mirrors of sources, if layer 0 sends what dropout leaves of them; nil: they are not here
	searched int         // batches
	step     int
}

// pieceEngine is an engine on one piece.
type pieceEngine struct {
	core   *core[float32]
	piece  *Piece
	blocks []graph.Block // of the layers and, where sums are made in several pieces, of what is summed for others
	halo   halo
	grad   []float32

	batch  PieceBatch
	again  bool          // activations are computed again
	trims  bool          // outputs depend on no rows but those that edges lead from
	turned []atomic.Bool // of each layer: a backward pass asked for the transpose of its trimmed block

	forward, backward time.Duration // of the last gradient, with what it waited
}

// PieceBatch is what of a batch lies in a piece.
type PieceBatch struct {
	Targets []uint32  // masters that carry loss, by their numbers in the piece, distinct
	Labels  []int32   // class of each target
	Multi   []uint8   // instead of Labels, several labels per target
	Weights []float32 // weight of each target's loss; nil: all 1
	Loss    *Loss     // what a class costs; nil: the cross-entropy
}

// NewPieceTrainer returns a trainer on pieces, which are all or those that are computed here; execs makes what one goroutine
// runs kernels on. With scratch, a directory, activations and their gradients lie in files of it, which the system writes out where memory
// is short. m is bound to graph.Elsewhere, of the whole graph's size. What the whole graph says of nodes, all pieces tell each other
// before it returns.
func (m *Model) NewPieceTrainer(ctx context.Context, execs func() *cpu.Exec, pieces []*Piece, ex Exchange, scratch string) (t *PieceTrainer, err error) {
	return newPieceTrainer(ctx, m.onPieces, execs, pieces, ex, scratch)
}

// newPieceTrainer is NewPieceTrainer with models that onPieces returns.
func newPieceTrainer(ctx context.Context, onPieces func(context.Context, []*Piece, Exchange) ([]*Model, error), execs func() *cpu.Exec, pieces []*Piece, ex Exchange, scratch string) (t *PieceTrainer, err error) {
	err = graph.Guard(func() error {
		models, err := onPieces(ctx, pieces, ex)
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
			t.engines = append(t.engines, newPieceEngine(models[i], p, p.ids(), ex, execs(), scratch))
		}
		if len(t.engines) == 0 {
			return errors.New("no piece with nodes is computed here")
		}
		t.exec = execs()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compute: training over pieces: %w", err)
	}
	return t, nil
}

func newPieceEngine(m *Model, p *Piece, ids []uint32, ex Exchange, x *cpu.Exec, scratch string) *pieceEngine {
	e := &pieceEngine{core: newCore[float32](m, x, true), piece: p, grad: make([]float32, m.layout.Len()), trims: !m.AllRows()}
	e.turned = make([]atomic.Bool, len(e.core.layers))
	e.halo = halo{piece: p, exchange: ex, mean: max(p.mean(), 1), part: leastPart, ids: ids}
	e.core.tape.halo = &e.halo
	e.core.tape.fix()
	e.core.tape.spill(scratch)
	for range e.core.layers {
		e.blocks = append(e.blocks, p.whole())
	}
	if p.Partial != nil {
		e.blocks = append(e.blocks, graph.Block{NumDst: len(p.Targets.IDs), NumSrc: p.in(), Indptr: p.Partial.Indptr, Indices: p.Partial.Indices})
		e.halo.rows = &e.blocks[len(e.blocks)-1]
	}
	e.core.tape.last(e.blocks)
	return e
}

// Beside returns a trainer of the same pieces that computes another batch at the same time: what it holds is its own, and rounds are named by
// batch. It takes what t's Search found.
func (t *PieceTrainer) Beside(execs func() *cpu.Exec, scratch string) *PieceTrainer {
	other := &PieceTrainer{exchange: t.exchange, places: t.places}
	for _, e := range t.engines {
		beside := newPieceEngine(e.core.model, e.piece, e.halo.ids, t.exchange, execs(), scratch)
		beside.again = e.again
		other.engines = append(other.engines, beside)
	}
	return other
}

// Recompute has the next gradients keep no activations but each layer's results, and compute the others again where the backward pass
// needs them: less memory, for another forward pass, and its rows, of all layers but the last. No bit changes. All that compute
// pieces call it, or none.
func (t *PieceTrainer) Recompute() {
	for _, e := range t.engines {
		e.again = true
	}
}

// Close gives back what the engines hold.
func (t *PieceTrainer) Close() {
	for i, e := range t.engines {
		if t.inputs != nil {
			e.core.tape.mem.free(t.inputs[i])
		}
		e.core.close()
	}
}

// Bytes returns how much memory the engines hold from one step to the next: activations, their gradients and what backward passes
// need of edges. What lies in files, for which the system has memory as far as there is some, is none of it.
func (t *PieceTrainer) Bytes() int64 {
	n := t.Shared()
	for _, e := range t.engines {
		n += e.core.tape.held() + 4*int64(len(e.halo.ids)+len(e.grad)+cap(e.halo.table)+cap(e.halo.back)+cap(e.halo.sums))
		for l := range e.halo.active {
			n += e.halo.active[l].sources.bytes() + e.halo.active[l].targets.bytes()
		}
		for l := range e.core.layers {
			if b := &e.blocks[l]; !isWhole(b, e.piece.In) {
				n += blockBytes(b)
			}
		}
	}
	return n
}

// Shared returns how much of Bytes there is once for t and trainers beside it: features of other pieces' nodes.
func (t *PieceTrainer) Shared() (n int64) {
	for i, inputs := range t.inputs {
		if !t.engines[i].core.tape.inFiles {
			n += 4 * int64(len(inputs))
		}
	}
	return n
}

// Gradient computes the gradients of the batch that Use or Take was told last: one vector for each piece with masters that is computed here,
// in their order, valid until the next call, and the Stats of each. Sum adds them up; before, Model.Observe takes what the first of them carries.
// All that compute pieces call it alike. After an error the trainer is of no more use.
func (t *PieceTrainer) Gradient(ctx context.Context, params []float32, key rng.Key) (grads [][]float32, stats []Stats, err error) {
	t.step++
	stats = make([]Stats, len(t.engines))
	all, ctx := errgroup.WithContext(ctx)
	for i, e := range t.engines {
		grads = append(grads, e.grad)
		all.Go(func() error {
			return graph.Guard(func() (err error) {
				stats[i], err = e.gradient(ctx, t.step, params, key, i == 0)
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
// which all places have then. It overwrites grads, and may return one of them. stops, alike at all places, is whether any of them gave stop.
func (t *PieceTrainer) Sum(ctx context.Context, grads [][]float32, stats []Stats, stop bool) (sum []float32, total Stats, stops bool, err error) {
	here, mine := t.engines[0].piece.Index, map[int]Stats{}
	for i, e := range t.engines {
		mine[e.piece.Index] = stats[i]
	}
	said, err := t.places.Share(ctx, t.exchange, fmt.Sprintf("step-%d-stats", t.step), here, func(piece int) ([]float32, error) {
		s := mine[piece]
		asked := 0.0
		if stop {
			asked = 1
		}
		return exactly(s.Loss, s.Weight, float64(s.Count), float64(s.Correct), asked), nil
	}, func(int) int { return 2 * 5 })
	if err == nil {
		sum, err = t.places.sumTree(ctx, t.exchange, fmt.Sprintf("step-%d-gradient", t.step), here, grads)
	}
	if err != nil {
		return nil, total, false, fmt.Errorf("compute: training over pieces: %w", err)
	}
	for _, e := range t.engines {
		e.halo.received() // by pieces that have a gradient
	}
	for _, w := range said {
		if w == nil {
			continue
		}
		total.Loss, total.Weight = total.Loss+number(w, 0), total.Weight+number(w, 1)
		total.Count, total.Correct = total.Count+int(number(w, 2)), total.Correct+int(number(w, 3))
		stops = stops || number(w, 4) != 0
	}
	return sum, total, stops, nil
}

// last returns the last layer's block.
func (e *pieceEngine) last() *graph.Block { return &e.blocks[len(e.core.layers)-1] }

func (b *PieceBatch) input() *Input {
	return &Input{Targets: b.Targets, Labels: b.Labels, Multi: b.Multi, Weights: b.Weights, Loss: b.Loss}
}

// gradient computes what Gradient does, of a piece; reports: with what Observe takes.
func (e *pieceEngine) gradient(ctx context.Context, step int, params []float32, key rng.Key, reports bool) (Stats, error) {
	c, p := e.core, e.piece
	if e.halo.active == nil {
		return Stats{}, errors.New("there is no batch to use")
	}
	if len(params) != len(e.grad) {
		return Stats{}, fmt.Errorf("%d parameters given, the model has %d", len(params), len(e.grad))
	}
	e.halo.begin(ctx, step)
	began := time.Now()
	c.tape.Reset()
	c.bind(params, e.grad)
	blocks := e.blocks[:len(c.layers)]
	input := func() *Value[float32] {
		x := c.input(p.Features, p.Masters, nil)
		x.fixed = true
		return x
	}
	var y *Value[float32]
	backward := c.tape.Backward
	if e.again {
		r := recomputed[float32]{core: c, blocks: blocks, input: input, key: key}
		y, backward = r.forward(), r.backward
	} else {
		y = c.forward(blocks, input(), key)
	}
	if e.halo.err != nil {
		return Stats{}, e.halo.err
	}
	var stats Stats
	later, err := c.loss(y, e.batch.input())
	if err == nil {
		stats = later()
		err = finite(stats.Loss)
	}
	if err != nil {
		return stats, fmt.Errorf("piece %d: %w", p.Index, err)
	}
	e.forward = time.Since(began)
	backward()
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
