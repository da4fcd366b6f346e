package pieces

import (
	"sort"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Halo says how a piece is computed with the others: which rows they exchange, and, where nodes' edges lie in several pieces, which sums.
// A master's row goes once to each piece that has it among its sources; a sum goes once from each piece that has its node among its targets.
type Halo struct {
	In      *graph.Graph // the masters' rows
	Partial *graph.Graph // those of Targets, of which none is empty; nil: edges lie with their targets

	Reads []int      // Sources[Reads[q]:Reads[q+1]] are masters of piece q: one more than there are pieces
	Sums  []int      // the same of Targets, where Partial is not nil
	Sends [][]uint32 // of each piece the masters here that are among its sources, ascending, by their numbers here; nil where Partial is not: pieces have to be asked
}

// Halo returns what piece p exchanges with the others. Where edges lie with their targets it reads those that leave p's masters; then
// Sends takes 4 bytes for each of its nodes, else Partial 8 for each of Targets.
func (s *Set) Halo(p *store.Piece) (h *Halo, err error) {
	for i, q := range s.m.Pieces {
		if q.Masters == 0 && q.Edges > 0 {
			return nil, dataerr.Bad("%s: piece %d has %d edges and no nodes; divide the graph again", s.dir, i, q.Edges)
		}
	}
	err = graph.Guard(func() error {
		if s.m.Edges == EdgesAtTarget {
			h, err = s.halo(p)
		} else {
			h, err = s.partial(p)
		}
		return err
	})
	return h, err
}

// owners returns where ids of each piece begin, and how many there are.
func (b Borders) owners(ids []uint32) (at []int) {
	for _, border := range b {
		at = append(at, sort.Search(len(ids), func(k int) bool { return ids[k] >= border }))
	}
	return at
}

// partial is halo where edges lie elsewhere.
func (s *Set) partial(p *store.Piece) (*Halo, error) {
	n, g := p.Masters, p.In
	end := g.Indptr[n]
	part := func(from, to int64) *graph.Graph {
		rows := &graph.Graph{Indices: g.Indices[from:to]}
		if g.Weights != nil {
			rows.Weights = g.Weights[from:to]
		}
		return rows
	}
	h := &Halo{In: part(0, end), Partial: part(end, g.NumEdges()), Reads: s.Borders().owners(p.Sources), Sums: s.Borders().owners(p.Targets)}
	h.In.Indptr, h.Partial.Indptr = g.Indptr[:n+1], make([]int64, g.NumNodes()-n+1)
	if len(p.Targets) != g.NumNodes()-n {
		return nil, dataerr.Bad("%s: it has rows of %d nodes of other pieces, and names %d; divide the graph again", s.PieceDir(int(p.Of.Index)), g.NumNodes()-n, len(p.Targets))
	}
	for i := range p.Targets {
		h.Partial.Indptr[i+1] = g.Indptr[n+i+1] - end
		if h.Partial.Indptr[i+1] <= h.Partial.Indptr[i] {
			return nil, dataerr.Bad("%s: node %d of another piece has a row without edges; divide the graph again", s.PieceDir(int(p.Of.Index)), p.Targets[i])
		}
	}
	return h, nil
}

func (s *Set) halo(p *store.Piece) (*Halo, error) {
	b, n, own := s.Borders(), len(s.m.Pieces), int(p.Of.Index)
	h := &Halo{In: p.In, Reads: b.owners(p.Sources), Sends: make([][]uint32, n)}
	table := b.Table()
	last := make([]int, n) // the last master that each piece was given, and one
	for u := range p.Masters {
		for _, t := range p.Out.InNeighbors(uint32(u)) {
			if int(t) < p.Masters {
				continue
			}
			q := int(table[p.Targets[int(t)-p.Masters]/Border])
			if q == own {
				return nil, dataerr.Bad("%s: node %d of another piece is one of its own; divide the graph again", s.PieceDir(own), p.Targets[int(t)-p.Masters])
			}
			if last[q] != u+1 {
				h.Sends[q], last[q] = append(h.Sends[q], uint32(u)), u+1
			}
		}
	}
	return h, nil
}
