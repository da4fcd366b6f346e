package compute

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Piece is a piece of a divided graph, as a model computes it: a range of the nodes, its
// masters, with all edges into them. Nodes have numbers of the piece: masters come first, in the
// order of their ids, then Others.
type Piece struct {
	Index    int             // among all pieces
	First    uint32          // id of the first master
	Masters  int             // how many there are
	Borders  []uint32        // id of the first master of each piece and, last, the number of nodes
	In       *graph.Graph    // the rows of the masters, whose entries are numbers of the piece
	Others   []uint32        // ids, ascending, of nodes of other pieces that In names
	Reads    []int           // Others[Reads[q]:Reads[q+1]] are masters of piece q: one more than there are pieces
	Sends    [][]uint32      // of each piece the masters here that it has among its Others, ascending
	Features *graph.Features // a row for each master
}

// check tells whether what p says of itself fits together.
func (p *Piece) check(spec *Spec) error {
	pieces := len(p.Sends)
	switch {
	case p.Index >= pieces || len(p.Borders) != pieces+1 || p.Borders[p.Index] != p.First || int(p.Borders[p.Index+1]-p.First) != p.Masters:
		return fmt.Errorf("piece %d of %d with %d nodes from %d does not fit the borders", p.Index, pieces, p.Masters, p.First)
	case p.In.NumNodes() != p.Masters:
		return fmt.Errorf("piece %d has the rows of %d nodes, but %d masters; computing needs all edges with their targets ('gnnactor partition --edges target')", p.Index, p.In.NumNodes(), p.Masters)
	case len(p.Reads) != pieces+1 || p.Reads[pieces] != len(p.Others):
		return fmt.Errorf("piece %d of %d reads %d rows and knows where %d of them are", p.Index, pieces, len(p.Others), p.Reads[len(p.Reads)-1])
	case p.Features == nil:
		return fmt.Errorf("piece %d has no node features; the model needs %d per node", p.Index, spec.InDim)
	case p.Features.Cols != spec.InDim || p.Features.Rows < p.Masters:
		return fmt.Errorf("piece %d has %d×%d features for %d nodes; the model needs %d per node", p.Index, p.Features.Rows, p.Features.Cols, p.Masters, spec.InDim)
	}
	return nil
}

// empty tells whether piece q has no masters: nobody computes it.
func (p *Piece) empty(q int) bool { return p.Borders[q] == p.Borders[q+1] }

// Exchange carries rows of masters from piece to piece, wherever those are computed. A round is a
// name; in it a piece sends to another once at most. Methods may be called by several goroutines.
type Exchange interface {
	// Send gives rows, which nobody changes any more, to the piece to. It does not wait for that.
	Send(ctx context.Context, round string, from, to int, rows []float32) error
	// Receive waits for what the piece from sent, and writes it to rows, which is as long. It ends with ctx.
	Receive(ctx context.Context, round string, from, to int, rows []float32) error
}

// send sends what r.values and made, Transform's results of a layer, have of the masters that
// other pieces read; where made has nil the result is the values themselves.
func (p *Piece) send(ctx context.Context, ex Exchange, round string, values *graph.Features, made []*graph.Features) error {
	for q, masters := range p.Sends {
		if q == p.Index || len(masters) == 0 {
			continue
		}
		width := 0
		for _, t := range made {
			width += orElse(t, values).Cols
		}
		rows := make([]float32, len(masters)*width)
		at := rows
		for _, t := range made {
			t = orElse(t, values)
			for _, v := range masters {
				t.Row(at, int(v))
				at = at[t.Cols:]
			}
		}
		if err := ex.Send(ctx, round, p.Index, q, rows); err != nil {
			return err
		}
	}
	return nil
}

// receive returns a table for each of made, with the rows of the masters and, behind them, those
// that the other pieces sent.
func (p *Piece) receive(ctx context.Context, ex Exchange, round string, values *graph.Features, made []*graph.Features) ([]*graph.Features, error) {
	all := make([]cpu.Matrix[float32], len(made))
	width := 0
	for k, t := range made {
		t = orElse(t, values)
		all[k] = cpu.NewMatrix[float32](p.Masters+len(p.Others), t.Cols)
		for i := range p.Masters {
			t.Row(all[k].Row(i), i)
		}
		width += t.Cols
	}
	for q := range p.Sends {
		from, n := p.Reads[q], p.Reads[q+1]-p.Reads[q]
		if n == 0 {
			continue
		}
		var rows []float32
		if len(all) == 1 {
			rows = all[0].Data[(p.Masters+from)*width:][:n*width]
		} else {
			rows = make([]float32, n*width)
		}
		if err := ex.Receive(ctx, round, q, p.Index, rows); err != nil {
			return nil, err
		}
		for k := 0; k < len(all) && len(all) > 1; k++ {
			cols := all[k].Cols
			copy(all[k].Data[(p.Masters+from)*cols:], rows[:n*cols])
			rows = rows[n*cols:]
		}
	}
	tables := make([]*graph.Features, len(all))
	for k, m := range all {
		tables[k] = graph.NewFeatures(m.Rows, m.Cols, m.Data)
	}
	return tables, nil
}

func orElse(t, values *graph.Features) *graph.Features {
	if t == nil {
		return values
	}
	return t
}

// share tells all pieces what each of pieces says, and returns what each of all says; of one without masters nothing.
func share(ctx context.Context, ex Exchange, round string, pieces []*Piece, say func(p *Piece) []float32) (said [][]float32, err error) {
	mine := make([][]float32, len(pieces))
	for i, p := range pieces {
		if p.empty(p.Index) {
			continue
		}
		words := say(p)
		mine[i] = words
		for q := range p.Sends {
			if q != p.Index && !p.empty(q) {
				if err := ex.Send(ctx, round, p.Index, q, words); err != nil {
					return nil, err
				}
			}
		}
	}
	for i, p := range pieces {
		if p.empty(p.Index) {
			continue
		}
		said = make([][]float32, len(p.Sends))
		said[p.Index] = mine[i]
		for q := range said {
			if q != p.Index && !p.empty(q) {
				said[q] = make([]float32, len(mine[i]))
				if err := ex.Receive(ctx, round, q, p.Index, said[q]); err != nil {
					return nil, err
				}
			}
		}
	}
	return said, nil
}

// onPieces returns m bound to each of pieces, which are all or those that are computed here: what
// the whole graph says of their nodes, they tell each other.
func (m *Model) onPieces(ctx context.Context, pieces []*Piece, ex Exchange) ([]*Model, error) {
	if m.spec.EdgeDim > 0 {
		return nil, fmt.Errorf("a divided graph has no edge features; the model needs %d per edge", m.spec.EdgeDim)
	}
	models := make([]*Model, len(pieces))
	_, norm := m.NeedsFacts()
	factors := make([]*graph.Features, len(pieces))
	for i, p := range pieces {
		if err := p.check(&m.spec); err != nil {
			return nil, err
		}
		on := *m
		on.graph, on.norm, on.sparse, on.sparseOf = p.In, nil, nil, p.Features
		models[i] = &on
		if !norm {
			continue
		}
		on.norm = newGCNNorm(p.In)
		factors[i] = graph.NewFeatures(p.Masters, 1, on.norm.invSqrt)
		if err := p.send(ctx, ex, "factors", nil, factors[i:i+1]); err != nil {
			return nil, err
		}
	}
	for i, p := range pieces {
		if !norm {
			break
		}
		all, err := p.receive(ctx, ex, "factors", nil, factors[i:i+1])
		if err != nil {
			return nil, err
		}
		models[i].norm.invSqrt, _, _ = all[0].Float32s()
	}
	return models, bindPieces(ctx, models, pieces, ex)
}

// bindPieces is BindFeatures for the table that the pieces have between them: it makes the choice
// that BindFeatures makes of the whole.
func bindPieces(ctx context.Context, models []*Model, pieces []*Piece, ex Exchange) error {
	rows, cols := models[0].nodes, models[0].spec.InDim
	if !maySparse(rows, cols) {
		return nil
	}
	row := make([]float32, cols)
	probes := min(rows, sparseProbe)
	count := func(p *Piece, from, to, step int) (n int) {
		for v := from; v < to; v += step {
			p.Features.Row(row, v)
			for _, x := range row {
				if x != 0 {
					n++
				}
			}
		}
		return n
	}
	sum := func(round string, of func(p *Piece) int) (total int, err error) {
		said, err := share(ctx, ex, round, pieces, func(p *Piece) []float32 { // 16 bits at a time are exact
			n := of(p)
			return []float32{float32(n & 0xffff), float32(n >> 16 & 0xffff), float32(n >> 32)}
		})
		for _, w := range said {
			if w == nil {
				continue
			}
			total += int(w[0]) + int(w[1])<<16 + int(w[2])<<32
		}
		return total, err
	}
	found, err := sum("probes", func(p *Piece) int {
		step := rows / probes
		first := (int(p.First) + step - 1) / step // probe k is of row k·step
		n := 0
		for k := first; k < probes && k*step < int(p.First)+p.Masters; k++ {
			n += count(p, k*step-int(p.First), k*step-int(p.First)+1, 1)
		}
		return n
	})
	if err != nil || found*sparseShare > probes*cols {
		return err
	}
	found, err = sum("values", func(p *Piece) int { return count(p, 0, p.Masters, 1) })
	if err != nil || found*sparseShare > rows*cols {
		return err
	}
	for i, p := range pieces {
		models[i].sparse = cpu.NewSparse(p.Features)
	}
	return nil
}
