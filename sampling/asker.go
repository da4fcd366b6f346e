package sampling

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
)

// asker asks the owners of a divided graph's rows. It belongs to one sampler.
type asker struct {
	ctx     context.Context // of Within
	p       *Prepared
	owned   []ownedRows // by owner
	asks    []Ask
	answers []Answer
	set     []uint32 // of the last question
	sorted  []uint32 // what it may lie in
}

// ownedRows are those rows that an owner has, and what of its answer was read.
type ownedRows struct {
	nodes           []uint32
	beside          []uint64
	at, rows, entry int // where its question is, and its next row and entry
}

// newAsker returns one of a divided graph; nil: the graph is whole.
func (p *Prepared) newAsker() *asker {
	if p.here == nil {
		return nil
	}
	return &asker{ctx: context.Background(), p: p, owned: make([]ownedRows, len(p.here.borders)-1)}
}

// asking are samplers that ask, if their graph is divided.
type asking interface{ asks() *asker }

// Within has s, where its rows have owners, ask them as long as ctx lets it; without, for ever. It returns s.
func Within(ctx context.Context, s Sampler) Sampler {
	if g, ok := s.(*guarded); ok {
		if a, ok := g.sampler.(asking); ok && a.asks() != nil {
			a.asks().ctx = ctx
		}
	}
	return s
}

// ask asks q of all owners of q.Nodes. What they answer is read by row.
func (a *asker) ask(q Ask) error {
	for o := range a.owned {
		own := &a.owned[o]
		*own = ownedRows{nodes: own.nodes[:0], beside: own.beside[:0]}
	}
	for i, v := range q.Nodes {
		own := &a.owned[a.p.table[v/pieces.Border]]
		own.nodes = append(own.nodes, v)
		if len(q.Beside) > 0 {
			own.beside = append(own.beside, q.Beside[i])
		}
	}
	a.asks = a.asks[:0]
	for o := range a.owned {
		if own := &a.owned[o]; len(own.nodes) > 0 {
			own.at = len(a.asks)
			q.Owner, q.Nodes, q.Beside = o, own.nodes, own.beside
			a.asks = append(a.asks, q)
		}
	}
	a.answers = slices.Grow(a.answers[:0], len(a.asks))[:len(a.asks)]
	if len(a.asks) == 0 {
		return nil
	}
	if err := a.p.draw(a.ctx, a.asks, a.answers); err != nil {
		return err
	}
	for i := range a.asks {
		if err := a.answers[i].check(&a.asks[i], a.p.edgeIDs(), a.p.caches != nil, a.p.g); err != nil {
			return fmt.Errorf("sampling: piece %d answered %w", a.asks[i].Owner, err)
		}
	}
	return nil
}

// entries returns how many entries the rows have in all.
func (a *asker) entries() (n int) {
	for i := range a.answers {
		n += len(a.answers[i].Sources)
	}
	return n
}

// row returns what was answered of the next row, which must be asked for in the order of the question's Nodes: v's. It is
// row r of the answer, whose entries from and up to end are its.
func (a *asker) row(v uint32) (of *Answer, r, from, end int) {
	o := &a.owned[a.p.table[v/pieces.Border]]
	of, r, from = &a.answers[o.at], o.rows, o.entry
	end = from + int(of.Counts[r])
	o.rows, o.entry = r+1, end
	return of, r, from, end
}

// step takes the nodes in at on by one entry of their rows, each the one that its draw chooses, and returns how many went on: a node without entries
// stays.
func (a *asker) step(id ID, at []uint32, draws []uint64) (walking int, err error) {
	if err := a.ask(Ask{ID: id, Want: WantOne, Nodes: at, Beside: draws}); err != nil {
		return 0, err
	}
	for i, v := range at {
		if of, _, from, end := a.row(v); from < end {
			at[i] = of.Sources[from]
			walking++
		}
	}
	return walking, nil
}

// among asks for the entries of nodes' rows whose sources are in s, which is numbered. f is told each row's, in the order of the row, by
// their sources' numbers in s, and how long the row is; ids are those of the edges, if the batches have them. They are valid during the call.
func (a *asker) among(id ID, nodes []uint32, s *nodeSet, f func(r int, local []uint32, edgeIDs []int64, degree int)) error {
	if a.set = s.nodes; !slices.IsSorted(a.set) {
		a.sorted = append(a.sorted[:0], s.nodes...)
		slices.Sort(a.sorted)
		a.set = a.sorted
	}
	if err := a.ask(Ask{ID: id, Want: WantAmong, Nodes: nodes, Set: a.set}); err != nil {
		return err
	}
	for r, v := range nodes {
		of, row, from, end := a.row(v)
		var edges []int64
		if a.p.edgeIDs() {
			edges = of.EdgeIDs[from:end]
		}
		local := of.Sources[from:end]
		for e, u := range local {
			id, is := s.id(u)
			if !is {
				return fmt.Errorf("sampling: piece %d answered node %d, which is not one of those that were asked for", a.p.table[v/pieces.Border], u)
			}
			local[e] = id
		}
		f(r, local, edges, int(of.Degrees[row]))
	}
	return nil
}

// induce is inducer.induce of a divided graph.
func (a *asker) induce(s *nodeSet, id ID, out *block) error {
	out.indptr = append(resize(out.indptr, len(s.nodes)+1)[:0], 0)
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	return a.among(id, s.nodes, s, func(_ int, local []uint32, edgeIDs []int64, _ int) {
		if !slices.IsSorted(local) {
			sort.Stable(byNumber{local, edgeIDs})
		}
		out.indices = append(out.indices, local...)
		out.edgeIDs = append(out.edgeIDs, edgeIDs...)
		out.indptr = append(out.indptr, int64(len(out.indices)))
	})
}

// byNumber sorts numbers, and the ids of edges with them, if there are any.
type byNumber struct {
	numbers []uint32
	edgeIDs []int64
}

func (b byNumber) Len() int           { return len(b.numbers) }
func (b byNumber) Less(i, j int) bool { return b.numbers[i] < b.numbers[j] }
func (b byNumber) Swap(i, j int) {
	b.numbers[i], b.numbers[j] = b.numbers[j], b.numbers[i]
	if b.edgeIDs != nil {
		b.edgeIDs[i], b.edgeIDs[j] = b.edgeIDs[j], b.edgeIDs[i]
	}
}

// divided samples a divided graph whose owners draw the entries of rows.
type divided struct {
	*asker
	depth int
	want  Want
	ids   idMap
	dated *dated // of temporal samplers
}

// newDivided returns a sampler of so many layers.
func (p *Prepared) newDivided(depth int, want Want) *divided {
	s := &divided{asker: p.newAsker(), depth: depth, want: want}
	if p.spec.Temporal {
		s.dated = new(dated)
	}
	return s
}

func (s *divided) asks() *asker { return s.asker }

// Sample implements Sampler.
func (s *divided) Sample(b *Batch, key rng.Key, seeds []uint32) error {
	s.ids.clear()
	b.start(s.depth)
	var err error
	if b.nodes, err = s.ids.seed(seeds, b.nodes, s.p.g.NumNodes()); err != nil {
		return err
	}
	if s.dated != nil {
		s.dated.seed(seeds, s.p.times.Node)
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
	q := Ask{ID: b.ID, Key: key, Hop: hop, Want: s.want, Nodes: b.nodes}
	if s.dated != nil {
		q.Beside = s.dated.beside()
	}
	if err := s.ask(q); err != nil {
		return err
	}
	rows, entries, edgeIDs, weights := len(b.nodes), s.entries(), s.p.edgeIDs(), s.p.caches != nil
	out := &b.scratch[i]
	out.indptr = resize(out.indptr, rows+1)
	out.indptr[0] = 0
	out.indices, out.edgeIDs, out.weights = resize(out.indices, entries)[:0], out.edgeIDs[:0], out.weights[:0]
	for r, v := range b.nodes {
		a, _, from, end := s.row(v)
		out.indices = append(out.indices, a.Sources[from:end]...)
		if edgeIDs {
			out.edgeIDs = append(out.edgeIDs, a.EdgeIDs[from:end]...)
		}
		if weights {
			out.weights = append(out.weights, a.Weights[from:end]...)
		}
		out.indptr[r+1] = int64(len(out.indices))
	}
	if s.dated != nil {
		for r := range rows {
			for e, u := range out.indices[out.indptr[r]:out.indptr[r+1]] {
				out.indices[int(out.indptr[r])+e] = s.dated.number(b, u, s.dated.when[r])
			}
		}
	} else {
		s.ids.reserve(b.nodes, entries)
		b.nodes = reserve(b.nodes, entries)
		prefetchSlots(&s.ids, out.indices[:min(lookupSize, entries)])
		for from := 0; from < entries; from += lookupSize {
			to := min(from+lookupSize, entries)
			prefetchSlots(&s.ids, out.indices[to:min(to+lookupSize, entries)])
			b.nodes = s.ids.number(out.indices[from:to], b.nodes)
		}
	}
	b.Blocks[i] = graph.Block{NumDst: rows, NumSrc: len(b.nodes), Indptr: out.indptr, Indices: out.indices}
	if edgeIDs {
		b.Blocks[i].EdgeIDs = out.edgeIDs
	}
	if weights {
		b.Blocks[i].Weights = out.weights
	}
	return nil
}
