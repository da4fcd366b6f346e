package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// PieceOf says which piece of which graph a store holds.
type PieceOf struct {
	Index  int64 `json:"index"`  // of the piece, from 0
	Pieces int64 `json:"pieces"` // of the graph
	First  int64 `json:"first"`  // id of the piece's first node in the divided graph
	Nodes  int64 `json:"nodes"`  // of the divided graph
}

// Piece is one piece of a divided graph: a range of its nodes, called masters, and edges.
// What is said of nodes is said of masters alone: features, labels, times, names. The recipe is the whole graph's.
//
// Edges name nodes by numbers of the piece: masters come first, in order of their ids, then
// those of Sources, in In.Indices, and those of Targets, in Out.Indices. Where edges lie with
// neither end, In has rows for Targets, too, and Out for Sources, behind the masters'.
type Piece struct {
	*Store
	Of        PieceOf
	Masters   int
	In, Out   *graph.Graph // rows by target, and by source
	Sources   []uint32     // ids, ascending, of nodes of other pieces that edges of In come from
	Targets   []uint32     // ids, ascending, of nodes of other pieces that edges of Out lead to
	Originals []uint32     // ids, ascending, that the masters have outside; nil: those that they have
}

// SetPiece makes the store one of a piece, with so many masters.
func (w *Writer) SetPiece(of PieceOf, masters, classes int) {
	w.m.Piece, w.m.NumNodes, w.m.NumClasses = &of, int64(masters), int64(classes)
}

// check tells whether the arrays that the manifest lists make a piece.
func (p *PieceOf) check(m *manifest) error {
	n := m.NumNodes
	if p.Index < 0 || p.Index >= p.Pieces || p.First < 0 || p.Nodes > graph.MaxNodes || p.First > p.Nodes-n {
		return fmt.Errorf("piece %d of %d with the nodes from %d to %d of %d is out of range", p.Index, p.Pieces, p.First, p.First+n, p.Nodes)
	}
	rows := func(name string) int64 {
		if a := m.array(name); a != nil {
			return a.Rows
		}
		return 0
	}
	for _, name := range []string{arrays.OutIndptr, arrays.OutIndices, arrays.Sources, arrays.Targets} {
		if m.array(name) == nil {
			return fmt.Errorf("array %s must be there", name)
		}
	}
	own, all := rows(arrays.Indptr)-1 == n, rows(arrays.Indptr)-1 == n+rows(arrays.Targets)
	if !own && !all {
		return fmt.Errorf("array %s has %d rows, which does not fit %d nodes", arrays.Indptr, rows(arrays.Indptr), n)
	}
	if out := rows(arrays.OutIndptr) - 1; !(own && out == n || all && out == n+rows(arrays.Sources)) {
		return fmt.Errorf("array %s has %d rows, which does not fit %d nodes", arrays.OutIndptr, out+1, n)
	}
	if (m.array(arrays.Weights) == nil) != (m.array(arrays.OutWeights) == nil) {
		return fmt.Errorf("arrays %s and %s must be there together", arrays.Weights, arrays.OutWeights)
	}
	return nil
}

// OpenPiece is Open for a store that holds a piece of a divided graph.
func OpenPiece(dir string) (*Piece, error) {
	s, err := open(dir, Whole)
	if err != nil {
		return nil, err
	}
	if s.piece == nil {
		return nil, errors.Join(dataerr.Bad("%s holds a whole graph and no piece of one; divide it with 'gnnactor partition'", dir), s.Close())
	}
	err = graph.Guard(func() error {
		if g := s.piece.Out; g.Indptr[0] != 0 || g.Indptr[g.NumNodes()] != g.NumEdges() {
			return dataerr.Bad("%s: it does not span the %d edges; divide the graph again", s.path(arrays.OutIndptr), g.NumEdges())
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s.piece, nil
}

func (s *Store) asPiece(payload map[string][]byte) *Piece {
	ids := func(name string) []uint32 { return arrays.View[uint32](payload[name]) }
	p := &Piece{
		Store: s, Of: *s.m.Piece, Masters: int(s.m.NumNodes), In: s.ds.Graph,
		Out:     &graph.Graph{Indptr: arrays.View[int64](payload[arrays.OutIndptr]), Indices: ids(arrays.OutIndices)},
		Sources: ids(arrays.Sources), Targets: ids(arrays.Targets),
	}
	if s.m.array(arrays.OutWeights) != nil {
		p.Out.Weights = arrays.View[float32](payload[arrays.OutWeights])
	}
	if s.m.array(arrays.Originals) != nil {
		p.Originals = ids(arrays.Originals)
	}
	return p
}

// Verify is Store.Verify for a piece.
func (p *Piece) Verify(ctx context.Context) error {
	if err := p.verifyFiles(ctx); err != nil {
		return err
	}
	return graph.Guard(func() error { return p.damaged(p.validate(ctx)) })
}

func (p *Piece) validate(ctx context.Context) error {
	n := p.Masters
	for _, g := range []struct {
		*graph.Graph
		name  string
		nodes int
	}{{p.In, arrays.Indptr, n + len(p.Sources)}, {p.Out, arrays.OutIndptr, n + len(p.Targets)}} {
		if err := g.ValidateRows(ctx, g.nodes); err != nil {
			return fmt.Errorf("%w (in %s)", err, g.name)
		}
	}
	first, end := uint32(p.Of.First), uint32(p.Of.First)+uint32(n)
	for _, ids := range [][]uint32{p.Sources, p.Targets} {
		if !ascend(ids) || len(ids) > 0 && int64(ids[len(ids)-1]) >= p.Of.Nodes || slices.ContainsFunc(ids, func(v uint32) bool { return v >= first && v < end }) {
			return dataerr.Bad("nodes of other pieces are out of order, or none of theirs")
		}
	}
	if p.Originals != nil && (len(p.Originals) != n || !ascend(p.Originals)) {
		return dataerr.Bad("the masters' ids outside are out of order")
	}
	if err := p.ds.Names.Validate(n); err != nil {
		return err
	}
	return p.ds.Labels.Validate(n)
}

func ascend(ids []uint32) bool {
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			return false
		}
	}
	return true
}
