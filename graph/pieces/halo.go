package pieces

import (
	"fmt"
	"sort"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Halo says which rows pieces exchange where edges lie with their targets: a master's goes once to
// each piece that has it among its sources.
type Halo struct {
	Reads []int      // Sources[Reads[q]:Reads[q+1]] are masters of piece q: one more than there are pieces
	Sends [][]uint32 // of each piece the masters here that are among its sources, ascending, by their numbers here
}

// Halo returns what piece p exchanges with the others. It reads the edges that leave p's masters;
// Sends takes 4 bytes for each of its nodes.
func (s *Set) Halo(p *store.Piece) (h *Halo, err error) {
	if s.m.Edges != EdgesAtTarget {
		return nil, fmt.Errorf("pieces: edges lie at %q, so that nodes' sums are in several pieces; divide the graph with --edges target", s.m.Edges)
	}
	err = graph.Guard(func() error {
		h, err = s.halo(p)
		return err
	})
	return h, err
}

func (s *Set) halo(p *store.Piece) (*Halo, error) {
	b, n, own := s.Borders(), len(s.m.Pieces), int(p.Of.Index)
	h := &Halo{Reads: make([]int, n+1), Sends: make([][]uint32, n)}
	for q := range n + 1 {
		h.Reads[q] = sort.Search(len(p.Sources), func(k int) bool { return p.Sources[k] >= b[q] })
	}
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
