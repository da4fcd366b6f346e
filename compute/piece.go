package compute

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Piece is a piece of a divided graph, as a model computes it: a range of the nodes, its
// masters, and edges. Sources of edges have numbers of the piece: masters come first, in the
// order of their ids, then the mirrors Sources.
//
// Where edges lie with their targets, In has all edges into the masters. Elsewhere (a vertex-cut, or edges with
// their sources) In has those that lie here, and Partial has edges into masters of other pieces, whose
// sums go there: a node's sum is made of its piece's and then the others', in the order of the pieces.
type Piece struct {
	Index    int             // among all pieces
	First    uint32          // id of the first master
	Masters  int             // how many there are
	Borders  []uint32        // id of the first master of each piece and, last, the number of nodes
	In       *graph.Graph    // the rows of the masters
	Partial  *graph.Graph    // a row for each of the mirrors Targets, none without entries; nil: in all pieces edges lie with their targets
	Sources  Mirrors         // nodes of other pieces that edges here come from
	Targets  Mirrors         // nodes of other pieces that edges here lead to, of Partial
	Features *graph.Features // a row for each master
}

// Mirrors are nodes of other pieces that edges of a piece name, and nodes here that others name so.
type Mirrors struct {
	IDs   []uint32   // ascending
	Reads []int      // IDs[Reads[q]:Reads[q+1]] are masters of piece q: one more than there are pieces
	Sends [][]uint32 // of each piece the masters here that it has among its mirrors, ascending, by their numbers here; where Partial is set, pieces tell each other
}

// pieces returns how many pieces there are.
func (p *Piece) pieces() int { return len(p.Borders) - 1 }

// mean returns how many masters a piece has on average of those that have any.
func (p *Piece) mean() int {
	some := 0
	for q := range p.pieces() {
		if !p.empty(q) {
			some++
		}
	}
	return int(p.Borders[p.pieces()]) / max(some, 1)
}

// ids returns the ids of all its nodes: masters, then mirrors of sources.
func (p *Piece) ids() []uint32 {
	ids := make([]uint32, 0, p.in())
	for v := range p.Masters {
		ids = append(ids, p.First+uint32(v))
	}
	return append(ids, p.Sources.IDs...)
}

// in returns how many rows of sources edges here read: masters, then mirrors.
func (p *Piece) in() int { return p.Masters + len(p.Sources.IDs) }

// check tells whether what p says of itself fits together.
func (p *Piece) check(spec *Spec) error {
	pieces := p.pieces()
	targets := 0
	if p.Partial != nil {
		targets = p.Partial.NumNodes()
	}
	switch {
	case p.Index >= pieces || len(p.Borders) != pieces+1 || p.Borders[p.Index] != p.First || int(p.Borders[p.Index+1]-p.First) != p.Masters:
		return fmt.Errorf("piece %d of %d with %d nodes from %d does not fit the borders", p.Index, pieces, p.Masters, p.First)
	case p.In.NumNodes() != p.Masters || targets != len(p.Targets.IDs):
		return fmt.Errorf("piece %d has the rows of %d of its masters and of %d other nodes, for %d and %d", p.Index, p.In.NumNodes(), targets, p.Masters, len(p.Targets.IDs))
	case len(p.Sources.Reads) != pieces+1 || p.Sources.Reads[pieces] != len(p.Sources.IDs) || targets > 0 && (len(p.Targets.Reads) != pieces+1 || p.Targets.Reads[pieces] != targets):
		return fmt.Errorf("piece %d of %d does not know where all of the %d rows are that it reads, and the %d that it sums", p.Index, pieces, len(p.Sources.IDs), targets)
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

// send sends what values and made, Transform's results of a layer, have of the masters that
// other pieces mirror as m says; where made has nil the result is the values themselves.
func (p *Piece) send(ctx context.Context, ex Exchange, round string, m *Mirrors, values *graph.Features, made []*graph.Features) error {
	for q, masters := range m.Sends {
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
		all[k] = cpu.NewMatrix[float32](p.in(), t.Cols)
		for i := range p.Masters {
			t.Row(all[k].Row(i), i)
		}
		width += t.Cols
	}
	for q := range p.pieces() {
		from, n := p.Sources.Reads[q], p.Sources.Reads[q+1]-p.Sources.Reads[q]
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
		for q := range p.pieces() {
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
		said = make([][]float32, p.pieces())
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
	models, err := m.onGraphs(ctx, pieces, ex)
	if err != nil {
		return nil, err
	}
	return models, bindPieces(ctx, models, pieces, ex)
}

// onGraphs is onPieces whose features do not count as sparse yet.
func (m *Model) onGraphs(ctx context.Context, pieces []*Piece, ex Exchange) ([]*Model, error) {
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
	}
	elsewhere, err := m.onPartial(ctx, models, pieces, ex)
	if err != nil {
		return nil, err
	}
	for i, p := range pieces {
		if !norm {
			break
		}
		models[i].norm = gcnNormOf(p.In, elsewhere[i])
		factors[i] = graph.NewFeatures(p.Masters, 1, models[i].norm.invSqrt)
		if err := p.send(ctx, ex, "factors", &p.Sources, nil, factors[i:i+1]); err != nil {
			return nil, err
		}
		if err := p.send(ctx, ex, "factors-targets", &p.Targets, nil, factors[i:i+1]); err != nil {
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
		n := models[i].norm
		n.invSqrt, _, _ = all[0].Float32s()
		n.targets = make([]float32, len(p.Targets.IDs))
		if err := p.receiveTargets(ctx, ex, "factors-targets", n.targets); err != nil {
			return nil, err
		}
	}
	return models, nil
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
