package sampling

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// Sampling of a divided graph has two halves, which may be in two processes. Draws are counted, not
// streamed, so whoever owns a row draws its entries for anybody (Drawers); whoever samples asks the
// owners of a layer's rows, all at once, and numbers what they answer into a block
// (PrepareDivided). The batches are those of the whole graph, bit for bit: a layer is one round
// of questions.

// Ask has an owner draw the entries of some rows of a layer.
type Ask struct {
	Owner int // of all Nodes
	ID    ID  // of the micro-batch, with its key
	Key   rng.Key
	Hop   int      // of the layer, counted from the seeds outward
	Whole bool     // all entries, whatever the sampler
	Nodes []uint32 // whose rows, by their ids in the whole graph
}

// Answer is what an owner drew, row after row in the order of Ask.Nodes. Its memory belongs to
// whoever asked, and is used again.
type Answer struct {
	Counts  []uint32 // entries of each row
	Sources []uint32 // ids in the whole graph
	EdgeIDs []int64  // positions in the whole graph; empty unless the batches have them
}

// check reports an answer that is none to q, for a graph of so many nodes and edges.
func (a *Answer) check(q *Ask, edgeIDs bool, g *graph.Graph) error {
	entries := uint64(0)
	for _, n := range a.Counts {
		entries += uint64(n)
	}
	switch {
	case len(a.Counts) != len(q.Nodes) || entries != uint64(len(a.Sources)):
		return fmt.Errorf("%d rows with %d entries, of which it lists %d, to a question for %d rows", len(a.Counts), entries, len(a.Sources), len(q.Nodes))
	case len(a.Sources) > 0 && int(largest(a.Sources)) >= g.NumNodes():
		return fmt.Errorf("node %d of %d", largest(a.Sources), g.NumNodes())
	case edgeIDs && len(a.EdgeIDs) != len(a.Sources):
		return fmt.Errorf("%d ids of %d edges", len(a.EdgeIDs), len(a.Sources))
	case edgeIDs && len(a.EdgeIDs) > 0 && (slices.Min(a.EdgeIDs) < 0 || slices.Max(a.EdgeIDs) >= g.NumEdges()):
		return fmt.Errorf("edges %d to %d of %d", slices.Min(a.EdgeIDs), slices.Max(a.EdgeIDs), g.NumEdges())
	}
	return nil
}

// Owners have the rows of a divided graph.
type Owners interface {
	// Borders say which owner has which nodes.
	Borders() pieces.Borders
	// Draw has the owner of asks[i] fill answers[i], for all i at once: it is one round, in which
	// nobody is asked twice. The asks are of one hop of one batch. It may be called by any goroutines.
	// When an owner is away it waits, and ends with ctx.
	Draw(ctx context.Context, asks []Ask, answers []Answer) error
}

// Within has s, where its rows have owners, ask them as long as ctx lets it; without, for ever. It returns s.
func Within(ctx context.Context, s Sampler) Sampler {
	if g, ok := s.(*guarded); ok {
		if d, ok := g.sampler.(*divided); ok {
			d.ctx = ctx
		}
	}
	return s
}

// Rows are rows of a divided graph that lie together. Sources have numbers there: the rows' own
// nodes first, then others.
type Rows struct {
	Graph  *graph.Graph // rows by target, of numbers
	First  uint32       // id of the first row's node in the whole graph; the others follow
	Others []uint32     // ids of the other sources
	Edge   int64        // id of the first edge, its position in the whole graph
}

// PieceRows returns the rows of piece i of a partition set, p, which end with it.
func PieceRows(set *pieces.Set, i int, p *store.Piece) (Rows, error) {
	if _, _, edges := set.Method(); edges != pieces.EdgesAtTarget {
		return Rows{}, fmt.Errorf("sampling: edges lie at their %s, and a row in several pieces; divide the graph with --edges target", edges)
	}
	r := Rows{Graph: p.In, First: uint32(p.Of.First), Others: p.Sources}
	for _, before := range set.Pieces()[:i] {
		r.Edge += before.Edges
	}
	return r, nil
}

// name sets ids[i] to the id of number[i] in the whole graph; they may be the same memory.
func (r *Rows) name(ids, numbers []uint32) {
	n := uint32(r.Graph.NumNodes())
	for i, u := range numbers {
		if u < n {
			ids[i] = r.First + u
		} else {
			ids[i] = r.Others[u-n]
		}
	}
}

// UndividedOnly says why the sampler cannot draw from a divided graph; "": it can.
func (s Spec) UndividedOnly() string {
	switch {
	case s.Inductive:
		return "inductive: the graph of the training nodes is made of the whole one"
	case s.Temporal:
		return "temporal: who owns a row does not know the times of its sources"
	}
	switch s.Name {
	case "neighbor", "khop", "labor":
		return ""
	case "full":
		return "full: a batch is the whole graph"
	case "frontier":
		return "frontier: what it draws next depends on each node that it has drawn, a round of questions for each"
	case "ladies":
		return "ladies: it draws among all neighbours of a layer's nodes, whose lists would all be sent"
	}
	return s.Name + ": what it prepares of the whole graph is not made of a divided one yet"
}

// Drawers draw for anybody the entries of rows that lie in this process. Where all do, they are
// the Owners.
type Drawers struct {
	spec    Spec
	seed    uint64
	borders pieces.Borders
	mu      sync.RWMutex
	rows    map[int]*drawers
}

// drawers are those of one owner's rows, for any number of goroutines.
type drawers struct {
	*Rows
	pool sync.Pool // of *rowDrawer
}

// rowDrawer is one goroutine's.
type rowDrawer struct {
	sampled, whole *fused
	block          block
}

// NewDrawers readies the sampler of spec to draw from rows, each by its owner. What spec cannot do
// with a divided graph is an error. When ctx ends first, the error wraps its cause.
func NewDrawers(ctx context.Context, spec Spec, seed uint64, borders pieces.Borders, rows map[int]Rows) (*Drawers, error) {
	if err := spec.dividable(); err != nil {
		return nil, err
	}
	d := &Drawers{spec: spec, seed: seed, borders: borders, rows: map[int]*drawers{}}
	for owner, r := range rows {
		if err := d.Add(ctx, owner, r); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Add readies the sampler to draw from an owner's rows, too.
func (d *Drawers) Add(ctx context.Context, owner int, r Rows) error {
	one := &drawers{Rows: &r}
	sampled, err := one.prepare(ctx, d.spec, d.seed)
	if err != nil {
		return err
	}
	whole, err := one.prepare(ctx, Spec{Name: "khop", Layers: 1, EdgeIDs: d.spec.EdgeIDs}, d.seed)
	if err != nil {
		return err
	}
	one.pool.New = func() any { return &rowDrawer{sampled: sampled.factory().(*fused), whole: whole.factory().(*fused)} }
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows[owner] = one
	return nil
}

// Has reports whether an owner's rows are here.
func (d *Drawers) Has(owner int) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.rows[owner] != nil
}

func (d *drawers) prepare(ctx context.Context, spec Spec, seed uint64) (*Prepared, error) {
	ds := &graph.Dataset{Graph: d.Graph}
	p := &Prepared{spec: spec, seed: seed, given: ds, data: ds, g: d.Graph, rows: d.Rows}
	return p, p.prepare(interrupt.New(ctx))
}

// Borders implements Owners.
func (d *Drawers) Borders() pieces.Borders { return d.borders }

// Draw implements Owners.
func (d *Drawers) Draw(_ context.Context, asks []Ask, answers []Answer) error {
	for i := range asks {
		if err := d.answer(&asks[i], &answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// answer answers q. What it meets in a damaged file is an error, see graph.Guard.
func (d *Drawers) answer(q *Ask, a *Answer) error {
	d.mu.RLock()
	rows := d.rows[q.Owner]
	d.mu.RUnlock()
	if rows == nil {
		return fmt.Errorf("sampling: the rows of piece %d are not here", q.Owner)
	}
	of := rows.pool.Get().(*rowDrawer)
	if err := graph.Guard(func() error { return of.draw(rows.Rows, q, a) }); err != nil {
		return err // what may be half done is not used again
	}
	rows.pool.Put(of)
	return nil
}

func (d *rowDrawer) draw(rows *Rows, q *Ask, a *Answer) error {
	s, k := d.sampled, -1
	if q.Whole {
		s = d.whole
	} else if q.Hop < 0 || q.Hop >= len(s.fanouts) {
		return fmt.Errorf("sampling: hop %d of %d", q.Hop, len(s.fanouts))
	} else {
		k = s.fanouts[q.Hop]
	}
	n := len(q.Nodes)
	a.Counts = resize(a.Counts, n)
	local := a.Counts // until they are counted
	for i, v := range q.Nodes {
		if local[i] = v - rows.First; int(local[i]) >= rows.Graph.NumNodes() {
			return fmt.Errorf("sampling: the row of node %d is not with piece %d", v, q.Owner)
		}
	}
	s.picker.start(q.ID, q.Key, q.Hop)
	out := &d.block
	s.collect(out, local, k)
	for i := range n {
		a.Counts[i] = uint32(out.indptr[i+1] - out.indptr[i])
	}
	a.Sources = resize(a.Sources, len(out.indices))
	rows.name(a.Sources, out.indices)
	a.EdgeIDs = a.EdgeIDs[:0]
	for _, e := range out.edgeIDs {
		a.EdgeIDs = append(a.EdgeIDs, rows.Edge+e)
	}
	return nil
}

func (s Spec) dividable() error {
	if err := s.Validate(); err != nil {
		return err
	}
	if why := s.UndividedOnly(); why != "" {
		return fmt.Errorf("sampling: a divided graph cannot be sampled so: %s; choose neighbor, khop or labor, or give the whole graph", why)
	}
	return nil
}

// PrepareDivided is Prepare for a graph whose rows have owners. ds is the data, with
// graph.Elsewhere for its graph; weighted says whether its edges have weights, whose positions
// batches then list.
func PrepareDivided(spec Spec, ds *graph.Dataset, weighted bool, owners Owners) (*Prepared, error) {
	if err := spec.dividable(); err != nil {
		return nil, err
	}
	borders := owners.Borders()
	if borders.Nodes() != ds.Graph.NumNodes() {
		return nil, fmt.Errorf("sampling: owners of %d nodes for a graph of %d", borders.Nodes(), ds.Graph.NumNodes())
	}
	p := &Prepared{spec: spec, given: ds, data: ds, g: ds.Graph}
	if spec.Name != "khop" {
		if err := p.checkFanouts(); err != nil {
			return nil, fmt.Errorf("sampling: %s: %w", spec.Name, err)
		}
	}
	table := borders.Table()
	p.factory = func() Sampler {
		return &divided{
			ctx: context.Background(), g: ds.Graph, depth: spec.Depth(), whole: spec.Name == "khop", edgeIDs: spec.EdgeIDs || weighted,
			draw: owners.Draw, table: table, owned: make([]ownedRows, len(borders)-1),
		}
	}
	return p, nil
}

// divided samples a divided graph.
type divided struct {
	ctx     context.Context // of Within
	g       *graph.Graph    // its size
	depth   int
	whole   bool
	edgeIDs bool
	draw    func(context.Context, []Ask, []Answer) error
	table   []uint16 // owner of every pieces.Border nodes
	ids     idMap

	owned   []ownedRows // by owner
	asks    []Ask
	answers []Answer
}

// ownedRows are the rows of a layer that an owner has: those of nodes, and what of the answer was read.
type ownedRows struct {
	nodes           []uint32
	at, rows, entry int // where its question is, and its next row and entry
}

// Sample implements Sampler.
func (s *divided) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	s.ids.clear()
	b.start(s.depth)
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.g.NumNodes()); err != nil {
		return err
	}
	for hop := range s.depth {
		if err := s.layer(b, s.depth-1-hop, key, hop); err != nil {
			return err
		}
	}
	finish(b, len(seeds))
	return nil
}

// layer samples block i, whose destinations are the nodes so far.
func (s *divided) layer(b *Batch, i int, key rng.Key, hop int) error {
	if err := s.ask(b, key, hop); err != nil {
		return err
	}
	rows, entries := len(b.nodes), 0
	for j := range s.answers {
		entries += len(s.answers[j].Sources)
	}
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs = resize(out.indices, entries)[:0], out.edgeIDs[:0]
	for r, v := range b.nodes {
		o := &s.owned[s.table[v/pieces.Border]]
		a := &s.answers[o.at]
		end := o.entry + int(a.Counts[o.rows])
		out.indices = append(out.indices, a.Sources[o.entry:end]...)
		if s.edgeIDs {
			out.edgeIDs = append(out.edgeIDs, a.EdgeIDs[o.entry:end]...)
		}
		o.rows, o.entry = o.rows+1, end
		out.indptr[r+1] = int64(len(out.indices))
	}
	s.ids.reserve(b.nodes, entries)
	b.nodes = reserve(b.nodes, entries)
	prefetchSlots(&s.ids, out.indices[:min(lookupSize, entries)])
	for from := 0; from < entries; from += lookupSize {
		to := min(from+lookupSize, entries)
		prefetchSlots(&s.ids, out.indices[to:min(to+lookupSize, entries)])
		b.nodes = s.ids.number(out.indices[from:to], b.nodes)
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices}
	if s.edgeIDs {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
	return nil
}

// ask has the rows of all nodes so far drawn by their owners.
func (s *divided) ask(b *Batch, key rng.Key, hop int) error {
	for o := range s.owned {
		s.owned[o] = ownedRows{nodes: s.owned[o].nodes[:0]}
	}
	for _, v := range b.nodes {
		o := &s.owned[s.table[v/pieces.Border]]
		o.nodes = append(o.nodes, v)
	}
	s.asks = s.asks[:0]
	for i := range s.owned {
		if o := &s.owned[i]; len(o.nodes) > 0 {
			o.at = len(s.asks)
			s.asks = append(s.asks, Ask{Owner: i, ID: b.ID, Key: key, Hop: hop, Whole: s.whole, Nodes: o.nodes})
		}
	}
	s.answers = slices.Grow(s.answers[:0], len(s.asks))[:len(s.asks)]
	if err := s.draw(s.ctx, s.asks, s.answers); err != nil {
		return err
	}
	for j := range s.asks {
		if err := s.answers[j].check(&s.asks[j], s.edgeIDs, s.g); err != nil {
			return fmt.Errorf("sampling: piece %d answered %w", s.asks[j].Owner, err)
		}
	}
	return nil
}
