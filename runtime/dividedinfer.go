package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
)

// Outputs are what a model made of every node of a divided graph.
type Outputs struct {
	d    *Divided
	kept compute.Activations
	Cols int
	// where pieces are computed elsewhere, too:
	ex     compute.Exchange
	places compute.Places
	here   int
	// Sent are the bytes of values that pieces here sent others, layer by layer (Model.Blocks).
	Sent []int64
}

// Infer computes the model's outputs for all nodes, exactly, as Runtime.Embed does. What is made of nodes lies in
// memory, or, if scratch is not empty, in files of that directory, piece by piece: a call that was interrupted,
// or killed, goes on from the layer that it was in when the same is computed there again; the caller removes
// the directory. done, which may be nil, hears of each layer. With Config.Data.Verify the set is verified, too.
func (d *Divided) Infer(ctx context.Context, scratch string, done func(done, of int)) (_ *Outputs, err error) {
	defer func() { err = damaged(err) }()
	exec := cpu.NewExec(d.pool, d.kernels)
	exec.SetPrecision(d.cfg.precision)
	o := &Outputs{d: d, Cols: d.model.Spec().OutDim, ex: d.exchange(nil)}
	if d.Spreads() {
		if o.places, o.here, err = d.alike(ctx, o.ex); err != nil {
			return nil, err
		}
	}
	if err := d.fits(scratch != "", o.places.Others()); err != nil {
		return nil, err
	}
	var keep interface {
		compute.Activations
		compute.Exchange
	} = compute.NewMemoryExchange()
	var between compute.Exchange // the pieces
	if scratch != "" {
		files, err := compute.OpenFileExchange(scratch, d.about())
		if err != nil {
			return nil, err
		}
		if keep = files; d.Spreads() {
			between = &scratchExchange{o.ex.(roundsOf), files, func(piece int) bool { return d.opened[piece] != nil }}
		}
	}
	if o.kept = keep; !d.Spreads() {
		o.ex = keep
	}
	counted := compute.NewCounted(cmp.Or(between, o.ex))
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return graph.Guard(func() error {
			return d.model.InferPieces(ctx, exec, d.params, compute.PieceInference{
				Pieces: d.pieces, Exchange: counted, Activations: keep, Chunk: d.cfg.Memory.EvalChunk, Done: done,
			})
		})
	})
	if d.cfg.Data.Verify {
		both.Go(func() error {
			return graph.Guard(func() error { return d.verify(ctx) })
		})
	}
	if err := both.Wait(); err != nil {
		return nil, err
	}
	for l := range d.model.Blocks() {
		sent := int64(0)
		for _, round := range compute.PieceRounds(l) {
			sent += counted.Bytes(round)
		}
		o.Sent = append(o.Sent, sent)
	}
	return o, nil
}

// about says what values in a scratch directory were computed from.
func (d *Divided) about() string {
	h := sha256.New()
	for _, v := range d.params {
		fmt.Fprintf(h, "%x ", v)
	}
	b, err := json.MarshalIndent(map[string]any{
		"version": 1, "data": d.set.Fingerprint(), "normalize_features": d.cfg.Data.NormalizeFeatures, "model": d.model.Spec(),
		"parameters": fmt.Sprintf("%x", h.Sum(nil)), "precision": d.cfg.precision.String(), "kernels": d.kernels.String(),
	}, "", "  ")
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(b) + "\n"
}

// Pieces has use called with what each piece here has: its number, the ids of nodes and a row for each, which are not use's any more when it returns.
func (o *Outputs) Pieces(use func(piece int, ids []uint32, rows cpu.Matrix[float32]) error) error {
	return graph.Guard(func() error {
		for i, p := range o.d.opened {
			if p == nil || p.Masters == 0 {
				continue
			}
			m, err := o.kept.Get(compute.PieceOutputs, i)
			if err != nil {
				return err
			}
			ids := p.Originals
			if ids == nil {
				ids = graph.Consecutive(uint32(p.Of.First), p.Masters)
			}
			if err := use(i, ids, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rows returns the outputs of nodes, by the ids that they have outside. One that there is not is an error that wraps ErrNode.
func (o *Outputs) Rows(nodes []uint32) (*Embedding, error) {
	n := o.d.set.NumNodes()
	for _, v := range nodes {
		if int(v) >= n {
			return nil, fmt.Errorf("%w: node %d is out of range [0, %d)", ErrNode, v, n)
		}
	}
	e := &Embedding{Rows: len(nodes), Cols: o.Cols, Data: make([]float32, len(nodes)*o.Cols)}
	return e, o.Pieces(func(_ int, ids []uint32, m cpu.Matrix[float32]) error {
		for i, v := range nodes {
			if at, found := slices.BinarySearch(ids, v); found {
				copy(e.Data[i*e.Cols:(i+1)*e.Cols], m.Row(at))
			}
		}
		return nil
	})
}

// Find returns the nodes of those names that are computed here, by the ids that they have outside. A name that no node has, wherever it is
// computed, is an error that wraps ErrNode.
func (o *Outputs) Find(ctx context.Context, names []string) (nodes []uint32, err error) {
	found := make([]float32, len(names)) // 1: here
	err = graph.Guard(func() error {
		for i, name := range names {
			v, ok := o.d.called(name)
			if !ok {
				v, ok = o.d.called(strings.TrimSpace(name))
			}
			if ok {
				nodes, found[i] = append(nodes, v), 1
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	everywhere := [][]float32{found}
	if o.places != nil {
		o.d.rounds++
		everywhere, err = o.places.Share(ctx, o.ex, fmt.Sprint("names-", o.d.rounds), o.here, func(int) ([]float32, error) { return found, nil }, func(int) int { return len(names) })
		if err != nil {
			return nil, err
		}
	}
	for i, name := range names {
		if !slices.ContainsFunc(everywhere, func(said []float32) bool { return said != nil && said[i] != 0 }) {
			return nil, fmt.Errorf("%w: no node is called %q", ErrNode, name)
		}
	}
	return nodes, nil
}

// Rendezvous returns when all that compute pieces have called it, so that what each did before is done: at once where all are here.
func (o *Outputs) Rendezvous(ctx context.Context) error {
	if o.places == nil {
		return nil
	}
	o.d.rounds++
	_, err := o.places.Share(ctx, o.ex, fmt.Sprint("meet-", o.d.rounds), o.here, func(int) ([]float32, error) { return []float32{1}, nil }, func(int) int { return 1 })
	return err
}

// Predict returns the most probable class of nodes, as Runtime.Predict does.
func (o *Outputs) Predict(nodes []uint32) ([]Prediction, error) {
	e, err := o.Rows(nodes)
	if err != nil {
		return nil, err
	}
	p := make([]Prediction, e.Rows)
	for i := range p {
		p[i] = predict(e.Data[i*e.Cols:(i+1)*e.Cols], o.d.cfg.multi)
	}
	return p, nil
}

// Evaluate compares the outputs of a split's nodes, as Set.Split numbers them, with their labels: what Runtime.EvaluateAUC
// says of the graph with the set's ids, where edges lie with their targets to the bit. It takes the memory of a row for each of the nodes.
func (o *Outputs) Evaluate(ctx context.Context, split int) (m Metrics, err error) {
	if d := o.d.first(); d.Labels == nil {
		return Metrics{}, errUnlabelled(d)
	}
	nodes, err := o.d.set.Split(split)
	if err != nil || len(nodes) == 0 {
		return compute.NoMetrics(), err
	}
	err = graph.Guard(func() error {
		first := o.d.first().Labels
		labels, width := &graph.Labels{NumClasses: o.Cols}, o.Cols+1 // of a row: outputs, and behind them labels
		if first.IsMulti() {
			labels.Multi, width = make([]uint8, len(nodes)*o.Cols), 2*o.Cols
		} else {
			labels.Class = make([]int32, len(nodes))
		}
		borders, table := o.d.set.Borders(), o.d.set.Borders().Table()
		of := make([][]int, len(o.d.opened)) // places of each piece's nodes
		for i, v := range nodes {
			k := table[v/pieces.Border]
			of[k] = append(of[k], i)
		}
		say := func(k int) ([]float32, error) {
			rows, err := o.kept.Get(compute.PieceOutputs, k)
			if err != nil {
				return nil, err
			}
			said, l := make([]float32, 0, len(of[k])*width), o.d.opened[k].Dataset().Labels
			for _, i := range of[k] {
				local := int(nodes[i] - borders[k])
				said = append(said, rows.Row(local)...)
				if !l.IsMulti() {
					said = append(said, float32(l.Class[local]))
					continue
				}
				for _, b := range l.Multi[local*o.Cols : (local+1)*o.Cols] {
					said = append(said, float32(b))
				}
			}
			return said, nil
		}
		said := make([][]float32, len(of))
		if o.places == nil {
			for k, some := range of {
				if len(some) > 0 && err == nil {
					said[k], err = say(k)
				}
			}
		} else {
			o.d.rounds++
			said, err = o.places.Share(ctx, o.ex, fmt.Sprint("split-", o.d.rounds), o.here, say, func(k int) int { return len(of[k]) * width })
		}
		if err != nil {
			return err
		}
		out, at := cpu.NewMatrix[float32](len(nodes), o.Cols), make([]uint32, len(nodes))
		for k, rows := range said {
			for _, i := range of[k] {
				row := rows[:width]
				rows, at[i] = rows[width:], uint32(i)
				copy(out.Row(i), row)
				for j, l := range row[o.Cols:] {
					if first.IsMulti() {
						labels.Multi[i*o.Cols+j] = uint8(l)
					} else {
						labels.Class[i] = int32(l)
					}
				}
			}
		}
		m = score(labels, out, at, true)
		return nil
	})
	return m, err
}
