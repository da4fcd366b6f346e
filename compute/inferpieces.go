package compute

import (
	"context"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Activations keep matrices of pieces from one layer to the next.
type Activations interface {
	// Put keeps m, which is not changed any more, by a name.
	Put(name string, piece int, m cpu.Matrix[float32]) error
	// Has tells whether Put kept it, for Get.
	Has(name string, piece int) bool
	// Get returns what Put kept. The caller does not change it.
	Get(name string, piece int) (cpu.Matrix[float32], error)
	// Drop lets go of what has the name, of a piece.
	Drop(name string, piece int) error
}

// PieceOutputs is the name by which InferPieces leaves a model's outputs among the activations: of each
// piece with masters a matrix with a row for each.
const PieceOutputs = "outputs"

// PieceRound is the name of the round in which rows for layer l are exchanged.
func PieceRound(l int) string { return fmt.Sprintf("layer-%d", l) }

// PieceRounds are the names of all rounds in which rows of layer l are exchanged: those that edges read, those that attention reads of
// targets, and what is summed for them.
func PieceRounds(l int) []string {
	return []string{PieceRound(l), targetsRound(l), sumsRound(l)}
}

func targetsRound(l int) string { return PieceRound(l) + "-targets" }
func sumsRound(l int) string    { return PieceRound(l) + "-sums" }

// PieceInference says how InferPieces computes.
type PieceInference struct {
	Pieces      []*Piece // those that are computed here: all, or some each in several places
	Exchange    Exchange
	Activations Activations
	Chunk       int // rows computed at once; below 1: DefaultChunk
	// Done, which may be nil, is told after each layer how many of how many are done: with a decoder and
	// jumping knowledge, the layers behind the convolutions are one more.
	Done func(done, of int)
}

// InferPieces is Infer for all nodes of a divided graph, layer by layer over pieces: Transform on
// masters, one exchange of the rows that other pieces read, each sent once to each that does, then
// Gather, Sum and Apply where the edges lie. The bits are those of Infer on the graph whose ids the
// pieces have, if edges lie with their targets; else they are a function of the pieces. m is bound to graph.Elsewhere, of the whole graph's size.
//
// Memory is needed for what the model makes of one piece's nodes and of those that it reads, at a time,
// beside what Activations and Exchange hold, and 4 bytes a node for gcn and mixhop. What is among the activations
// already is not computed again: a call that was interrupted goes on from the layer that the last of the places was in, if Activations
// outlived it.
func (m *Model) InferPieces(ctx context.Context, x *cpu.Exec, params []float32, in PieceInference) error {
	err := graph.Guard(func() error { return m.inferPieces(ctx, x, params, in) })
	if err != nil {
		return fmt.Errorf("compute: inference over pieces: %w", err)
	}
	return nil
}

func (m *Model) inferPieces(ctx context.Context, x *cpu.Exec, params []float32, in PieceInference) error {
	if len(params) != m.layout.Len() {
		return fmt.Errorf("%d parameters given, the model has %d", len(params), m.layout.Len())
	}
	if in.Chunk < 1 {
		in.Chunk = DefaultChunk
	}
	if len(in.Pieces) == 0 {
		return nil
	}
	models, err := m.onPieces(ctx, in.Pieces, in.Exchange)
	if err != nil {
		return err
	}
	c := newCore[float32](m, x, false)
	defer c.close()
	r := piecesRun{inference{core: c, ctx: ctx, params: params, chunk: in.Chunk}, in, models, nil, 0}
	rounds := len(c.layers)
	if m.spec.head() {
		rounds++
	}
	if r.places, err = FindPlaces(ctx, in.Exchange, "places", in.Pieces); err != nil {
		return err
	}
	start, err := r.agree("reached", r.reached(rounds))
	if err != nil {
		return err
	}
	for l := start; l < rounds; l++ {
		if l == len(c.layers) {
			err = r.heads()
		} else {
			err = r.convolve(l)
		}
		if err != nil {
			return err
		}
		if in.Done != nil {
			in.Done(l+1, rounds)
		}
	}
	return nil
}

// piecesRun runs one layer after the other on all pieces of a place.
type piecesRun struct {
	inference
	PieceInference
	models []*Model
	places Places
	left   int64 // bytes of what is no longer used if Activations are in files
}

// agree returns the least n that a place has; it returns when all have one.
func (r *piecesRun) agree(round string, n int) (int, error) {
	i := slices.IndexFunc(r.Pieces, func(p *Piece) bool { return p.Masters > 0 })
	if i < 0 {
		return n, nil
	}
	said, err := r.places.Share(r.ctx, r.Exchange, round, r.places[r.Pieces[i].Index], func(int) ([]float32, error) { return []float32{float32(n)}, nil }, func(int) int { return 1 })
	for _, w := range said {
		if w != nil {
			n = min(n, int(w[0]))
		}
	}
	return n, err
}

// each has do called for each piece with masters, to which r is bound then.
func (r *piecesRun) each(do func(p *Piece) error) error {
	for i, p := range r.Pieces {
		if p.Masters == 0 {
			continue
		}
		r.collect() // what the piece before has left
		r.core.on(r.models[i])
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

// collect collects what is left, and the tape, which has tables of before.
func (r *piecesRun) collect() {
	r.renew(r.left)
	r.left = 0
}

// resultOf is the name of layer l's results among the activations.
func (r *piecesRun) resultOf(l int) string {
	if l == len(r.layers) || l == len(r.layers)-1 && !r.model.spec.head() {
		return PieceOutputs
	}
	return fmt.Sprintf("layer-%d", l)
}

// reached returns the first layer whose results are not among the activations.
func (r *piecesRun) reached(layers int) int {
	for l := layers; l > 0; l-- {
		if !slices.ContainsFunc(r.Pieces, func(p *Piece) bool { return p.Masters > 0 && !r.Activations.Has(r.resultOf(l-1), p.Index) }) {
			return l
		}
	}
	return 0
}

// load sets r.values to what layer l reads of p's masters.
func (r *piecesRun) load(l int, p *Piece) error {
	if l == 0 {
		r.values = p.Features
		return nil
	}
	m, err := r.Activations.Get(r.resultOf(l-1), p.Index)
	r.values = graph.NewFeatures(m.Rows, m.Cols, m.Data)
	r.left += 4 * int64(len(m.Data))
	return err
}

// convolve computes layer l on all pieces.
func (r *piecesRun) convolve(l int) error {
	round := PieceRound(l)
	made := func(k int) string { return fmt.Sprintf("sent-%d-%d", l, k) }
	var stays []bool // of each result of Transform: that it is the values themselves
	// read returns what edges of p read of nodes: a row for each of its nodes.
	read := func(p *Piece) ([]*graph.Features, error) {
		tables := make([]*graph.Features, len(stays))
		for k := range tables {
			if stays[k] {
				continue
			}
			m, err := r.Activations.Get(made(k), p.Index)
			if err != nil {
				return nil, err
			}
			tables[k] = graph.NewFeatures(m.Rows, m.Cols, m.Data)
			r.left += 4 * int64(len(m.Data))
		}
		all, err := p.receive(r.ctx, r.Exchange, round, r.values, tables)
		for _, t := range all { // others' rows were read beside them
			r.left += 4 * int64(len(p.Sources.IDs)*t.Cols)
		}
		return all, err
	}
	var parts partialLayer
	err := r.each(func(p *Piece) error {
		if err := r.load(l, p); err != nil {
			return err
		}
		sent, err := r.transform(l, &nodeSet{n: p.Masters}, 0)
		if err != nil {
			return err
		}
		tables := make([]*graph.Features, max(len(sent), 1))
		for k, m := range sent {
			if m != nil {
				tables[k] = graph.NewFeatures(m.Rows, m.Cols, m.Data)
				if err := r.Activations.Put(made(k), p.Index, *m); err != nil {
					return err
				}
			}
		}
		stays = stays[:0]
		for _, t := range tables {
			stays = append(stays, t == nil)
			if t != nil {
				r.left += int64(len(t.Data))
			}
		}
		if err := p.send(r.ctx, r.Exchange, round, &p.Sources, r.values, tables); err != nil {
			return err
		}
		if p.Partial == nil {
			return nil
		}
		return r.sendTargets(l, p, &parts)
	})
	if err == nil && r.Pieces[0].Partial != nil {
		err = r.each(func(p *Piece) error {
			if err := r.load(l, p); err != nil {
				return err
			}
			all, err := read(p)
			if err != nil {
				return err
			}
			return r.partial(l, p, all, &parts)
		})
	}
	if err != nil {
		return err
	}
	err = r.each(func(p *Piece) error {
		if r.Activations.Has(r.resultOf(l), p.Index) {
			return nil
		}
		if err := r.load(l, p); err != nil {
			return err
		}
		if p.Partial != nil {
			if err := r.join(l, p, &parts); err != nil {
				return err
			}
		} else {
			all, err := read(p)
			if err != nil {
				return err
			}
			r.collect()
			if err := r.compute(l, p, all); err != nil {
				return err
			}
			for _, t := range all {
				r.left += int64(len(t.Data))
			}
		}
		for k := range stays {
			if err := r.Activations.Drop(made(k), p.Index); err != nil {
				return err
			}
		}
		r.left += 4 * int64(len(r.out.Data))
		err := r.Activations.Put(r.resultOf(l), p.Index, r.out)
		r.out = cpu.Matrix[float32]{} // Put may have moved it elsewhere
		return err
	})
	if err != nil || l == 0 || r.model.spec.JumpingKnowledge != "" {
		return err
	}
	if _, err := r.agree("done-"+round, l); err != nil { // until then others may have to be sent it again
		return err
	}
	return r.each(func(p *Piece) error { return r.Activations.Drop(r.resultOf(l-1), p.Index) })
}

// compute sets r.out to layer l's results for p's masters, given what edges read: a row for each of p's nodes.
func (r *piecesRun) compute(l int, p *Piece, read []*graph.Features) error {
	r.out = cpu.Matrix[float32]{}
	return r.chunks(l, p, read, func(c *Context[float32], x *Value[float32], h []*Value[float32], i int) {
		r.put(l, c, x, h, i, p.Masters)
	})
}

// chunks has do called for each chunk of p's masters, from the i-th: with their old values x and those that edges into them read.
func (r *piecesRun) chunks(l int, p *Piece, read []*graph.Features, do func(c *Context[float32], x *Value[float32], h []*Value[float32], i int)) error {
	r.rows.reset(p.In, &nodeSet{n: p.in()}, &nodeSet{n: p.Masters}, false)
	return r.someOf(p.Masters, func(i, n int) error {
		c, err := r.begin(l, r.rows.cut(i, n, nil))
		if err != nil {
			return err
		}
		var h []*Value[float32]
		for _, t := range read {
			h = append(h, c.Table(t, r.rows.block.NumSrc, r.rows.positions))
		}
		do(c, r.old(i, n), h, i)
		return nil
	})
}

// someOf has do called for each chunk of rows.
func (r *piecesRun) someOf(rows int, do func(i, n int) error) error {
	for i := 0; i < rows; i += r.chunk {
		if err := do(i, min(r.chunk, rows-i)); err != nil {
			return err
		}
	}
	return nil
}

// old returns the old values of n masters, from the i-th.
func (r *piecesRun) old(i, n int) *Value[float32] {
	r.ids = resized(r.ids, n)
	for k := range r.ids {
		r.ids[k] = uint32(i + k)
	}
	return r.inference.input(r.values, n, r.ids)
}

// heads computes what follows the convolutions.
func (r *piecesRun) heads() error {
	jumps := r.model.spec.JumpingKnowledge != ""
	return r.each(func(p *Piece) (err error) {
		r.kept = r.kept[:0]
		for l := range r.layers {
			if !jumps || r.layers[l].inner {
				continue
			}
			m, err := r.Activations.Get(r.resultOf(l), p.Index)
			if err != nil {
				return err
			}
			r.kept = append(r.kept, m)
		}
		if r.out, err = r.Activations.Get(r.resultOf(len(r.layers)-1), p.Index); err != nil {
			return err
		}
		if err := r.finish(p.Masters); err != nil {
			return err
		}
		return r.Activations.Put(PieceOutputs, p.Index, r.out)
	})
}

// PieceMemory is what InferPieces takes at most, in bytes.
type PieceMemory struct {
	Peak, Kept int64 // what it computes of the largest piece; what Activations and an Exchange in memory keep of all
	// Of rows, not of sums, in a round: what pieces elsewhere are sent, and send, and the largest message.
	Sent, Received, Message int64
}

// PieceMemory returns what InferPieces takes of pieces.
func (m *Model) PieceMemory(pieces []*Piece) PieceMemory {
	s := &m.spec
	// Of a node in each layer: what it has, what Transform makes of that for others to read, and what comes of it.
	type values struct{ old, sent, made int64 }
	var layers []values
	old, in, widest := int64(0), int64(s.InDim), int64(0) // features are mapped
	heads, copies := int64(0), int64(1)                   // of a message
	if s.Model == "gat" || m.custom != nil {              // its rows go to several tables
		heads, copies = int64(s.heads()), 2
	}
	for l := range s.Layers {
		out := int64(s.Hidden)
		if l == s.Layers-1 && !s.head() {
			out = int64(s.OutDim)
		}
		v := values{old, max(in, out*int64(max(s.heads(), s.widening()))) + heads, out * int64(s.widening())}
		layers = append(layers, v)
		old, in, widest = v.made, v.made, max(widest, v.sent, v.made)
	}
	told, most := int64(1), int64(0)
	if s.Model == "gatv2" {
		told = 2
	}
	if s.Model == "sage" && s.reduce() == cpu.Max {
		most = 1
	}
	stay := int64(2)
	if s.JumpingKnowledge != "" {
		stay = int64(s.Layers)
		layers = append(layers, values{(stay + 1) * old, 0, old}) // they are joined, or the largest are found
	}
	var masters, reads, sums, largest, round, sent, received, longest int64
	for _, v := range layers {
		round = max(round, v.sent)
	}
	here := map[int]bool{}
	for _, p := range pieces {
		here[p.Index] = true
	}
	for _, p := range pieces {
		n, others, message := int64(p.Masters), int64(len(p.Sources.IDs)), 0
		masters, reads = masters+n, reads+others
		if p.Partial != nil {
			sums += n
		}
		for q := range p.pieces() {
			in := p.Sources.Reads[q+1] - p.Sources.Reads[q]
			message = max(message, in)
			if !here[q] {
				received += int64(in)
			}
		}
		for q, ids := range p.Sources.Sends {
			message = max(message, len(ids))
			if !here[q] {
				sent += int64(len(ids))
			}
		}
		longest = max(longest, int64(message))
		targets := int64(len(p.Targets.IDs))
		sums += targets
		for _, v := range layers {
			if p.Partial == nil {
				// What Transform made is collected when rows are together, before results are made.
				largest = max(largest, n*(v.old+2*v.sent)+(others+copies*int64(message))*v.sent, n*(v.old+v.sent+v.made)+others*v.sent+2*(n+others))
				continue
			}
			// First sums are made, of masters, and then for others, with what attention reads of those; then masters' are put together, by
			// messages of no more rows than masters, and, of maxima, with a number for each.
			first := n*(v.old+2*v.sent) + (others+copies*int64(message)+max(n, told*targets))*v.sent
			largest = max(largest, first+2*(n+others), n*(v.old+(2+most)*v.sent+v.made))
		}
	}
	return PieceMemory{
		Peak: 4 * (largest + masters + reads), Kept: 4 * (masters*stay + masters + reads + sums) * widest,
		Sent: 4 * sent * round, Received: 4 * received * round, Message: 4 * longest * round,
	}
}
