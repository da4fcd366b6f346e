package pieces

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/gnnactor/gnnactor/graph"
)

// Summary is what is known of a set without its pieces: what a plan of work over them is made from.
type Summary struct {
	Nodes    int64        `json:"nodes"`
	EdgesLie string       `json:"edges_lie"`
	Pieces   []PieceInfo  `json:"pieces"`
	Reads    [][]int64    `json:"reads"` // of each piece, how many masters of each other one its edges come from
	Values   *NodeSummary `json:"node_values,omitempty"`
}

// NodeSummary says what the pieces hold of a node.
type NodeSummary struct {
	Features     int     `json:"features"`
	FeatureBytes int64   `json:"feature_bytes"`  // of a row, as it is stored
	NonZero      float64 `json:"non_zero_share"` // of the features, in some rows
	Classes      int     `json:"classes"`
	MultiLabel   bool    `json:"multi_label"`
	EdgeBytes    int64   `json:"edge_bytes"` // of an edge
}

// Check reports a summary that is none of a set whose edges lie with their targets.
func (s *Summary) Check() error {
	switch {
	case len(s.Pieces) == 0 || len(s.Pieces) > MaxPieces || len(s.Reads) != len(s.Pieces):
		return fmt.Errorf("pieces: a report of %d pieces, and of what %d of them read; make it with 'gnnactor inspect SET --output json'", len(s.Pieces), len(s.Reads))
	case s.EdgesLie != EdgesAtTarget:
		return fmt.Errorf("pieces: edges lie at %q; what is planned needs them at their targets (--edges target)", s.EdgesLie)
	case s.Values == nil || s.Values.Features < 1 || s.Values.Classes < 1:
		return errors.New("pieces: the nodes have no features, or no labels; add them to the data")
	}
	nodes := int64(0)
	for i, p := range s.Pieces {
		pairs := int64(0)
		for q, n := range s.Reads[i] {
			if n < 0 || q < len(s.Pieces) && n > s.Pieces[q].Masters || n > 0 && q == i {
				return fmt.Errorf("pieces: piece %d reads %d masters of piece %d", i, n, q)
			}
			pairs += n
		}
		if nodes += p.Masters; p.Masters < 0 || p.Masters > graph.MaxNodes || p.Edges < 0 || len(s.Reads[i]) != len(s.Pieces) || pairs != p.Sources {
			return fmt.Errorf("pieces: piece %d of %d nodes reads %d masters of others, and says %d", i, p.Masters, pairs, p.Sources)
		}
	}
	if nodes != s.Nodes || nodes < 1 {
		return fmt.Errorf("pieces: the pieces have %d of %d nodes", nodes, s.Nodes)
	}
	return nil
}

// probedRows is how many rows of a piece are looked at for what is not zero.
const probedRows = 64

// Summary opens one piece after the other, and reads the ids of nodes that others own.
func (s *Set) Summary(ctx context.Context) (*Summary, error) {
	sum := &Summary{Nodes: s.m.Nodes, EdgesLie: s.m.Edges, Pieces: s.m.Pieces}
	b := s.Borders()
	values, others := 0, 0
	for i := range s.m.Pieces {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p, err := s.OpenPiece(i)
		if err != nil {
			return nil, err
		}
		err = graph.Guard(func() error {
			reads, at := make([]int64, len(s.m.Pieces)), 0
			for q := range reads {
				end := sort.Search(len(p.Sources), func(k int) bool { return p.Sources[k] >= b[q+1] })
				reads[q], at = int64(end-at), end
			}
			sum.Reads = append(sum.Reads, reads)
			f, l := p.Dataset().NodeFeatures, p.Dataset().Labels
			if f == nil || l == nil {
				return nil
			}
			sum.Values = &NodeSummary{Features: f.Cols, FeatureBytes: int64(max(f.Stride, f.Cols*f.DType.Size())), Classes: l.NumClasses, MultiLabel: l.IsMulti(), EdgeBytes: 4}
			if p.In.Weights != nil {
				sum.Values.EdgeBytes = 8
			}
			row := make([]float32, f.Cols)
			for k := range min(p.Masters, probedRows) {
				f.Row(row, k*(p.Masters/min(p.Masters, probedRows)))
				for _, x := range row {
					if values++; x != 0 {
						others++
					}
				}
			}
			return nil
		})
		if err := errors.Join(err, p.Close()); err != nil {
			return nil, err
		}
	}
	if sum.Values != nil {
		sum.Values.NonZero = float64(others) / float64(max(values, 1))
	}
	return sum, nil
}
