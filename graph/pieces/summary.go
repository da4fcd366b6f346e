package pieces

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
)

// Summary is what is known of a set without its pieces: what a plan of work over them is made from.
type Summary struct {
	Nodes    int64        `json:"nodes"`
	EdgesLie string       `json:"edges_lie"`
	Pieces   []PieceInfo  `json:"pieces"`
	Reads    [][]int64    `json:"reads"`  // of each piece, how many masters of each other one its edges come from
	Active   [][][]int64  `json:"active"` // Reads of a model's last layer, the one before and so on, of rows alone that outputs of training nodes depend on
	Values   *NodeSummary `json:"node_values,omitempty"`

	// Of all nodes, where edges lie with their targets; nil: not counted.
	InDegrees  []graph.DegreeClass `json:"in_degrees,omitempty"`
	OutDegrees []graph.DegreeClass `json:"out_degrees,omitempty"`
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
	for _, reads := range s.Active {
		for i := range s.Pieces {
			if len(reads) != len(s.Pieces) || len(reads[i]) != len(s.Pieces) {
				return fmt.Errorf("pieces: a report that does not say what piece %d of %d reads for training nodes; make it with 'gnnactor inspect SET --output json'", i, len(s.Pieces))
			}
			for q, n := range reads[i] {
				if n < 0 || q < len(s.Reads[i]) && n > s.Reads[i][q] {
					return fmt.Errorf("pieces: piece %d reads %d masters of piece %d for training nodes, and %d in all", i, n, q, s.Reads[i][q])
				}
			}
		}
	}
	for what, classes := range map[string][]graph.DegreeClass{"in": s.InDegrees, "out": s.OutDegrees} {
		for k, c := range classes {
			if c.Nodes < 0 || c.Nodes > s.Nodes || c.Nodes == 0 && c.Edges != 0 || c.Nodes > 0 && (c.Edges < 0 || bits.Len64(uint64(c.Edges/c.Nodes)) != k) {
				return fmt.Errorf("pieces: %d nodes have %d edges %s, each a number of %d binary digits", c.Nodes, c.Edges, what, k)
			}
		}
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

// eachPiece opens one piece after the other.
func (s *Set) eachPiece(ctx context.Context, do func(p *store.Piece) error) error {
	for i := range s.m.Pieces {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, err := s.OpenPiece(i)
		if err != nil {
			return err
		}
		if err := errors.Join(graph.Guard(func() error { return do(p) }), p.Close()); err != nil {
			return err
		}
	}
	return nil
}

// activeLayers is of how many layers active rows are counted, at most.
const activeLayers = 4

// ActiveReads returns Reads of the layer so many before a model's last, of rows that outputs of training nodes depend on, or of all where they were not counted.
func (s *Summary) ActiveReads(before int) [][]int64 {
	n := len(s.Active)
	switch {
	case before < n:
		return s.Active[before]
	case n > 0 && n < activeLayers:
		return s.Active[n-1]
	}
	return s.Reads
}

// countActive sets Active, until a layer more would read no other rows: a pass over the edges for each.
func (s *Set) countActive(ctx context.Context, sum *Summary) error {
	train, err := s.Split(0)
	if err != nil {
		return err
	}
	active := make([]bool, s.m.Nodes) // destinations of a layer
	for _, v := range train {
		active[v] = true
	}
	for range activeLayers {
		next := slices.Clone(active) // its sources
		var reads [][]int64
		err := s.eachPiece(ctx, func(p *store.Piece) error {
			own := active[p.Of.First:][:p.Masters]
			read := make([]bool, len(p.Sources))
			for v, is := range own {
				for k := p.In.Indptr[v]; is && k < p.In.Indptr[v+1]; k++ {
					if u := int(p.In.Indices[k]); u < p.Masters {
						next[int(p.Of.First)+u] = true
					} else {
						read[u-p.Masters] = true
					}
				}
			}
			counts, at := make([]int64, len(s.m.Pieces)), s.Borders().owners(p.Sources)
			for q := range counts {
				for k := at[q]; k < at[q+1]; k++ {
					if read[k] {
						counts[q]++
						next[p.Sources[k]] = true
					}
				}
			}
			reads = append(reads, counts)
			return nil
		})
		if err != nil {
			return err
		}
		sum.Active = append(sum.Active, reads)
		if slices.Equal(active, next) {
			break
		}
		active = next
	}
	return nil
}

// Summary opens one piece after the other, and reads the ids of nodes that others own. Where edges lie with their targets, it reads these, too, a few times.
func (s *Set) Summary(ctx context.Context) (*Summary, error) {
	sum := &Summary{Nodes: s.m.Nodes, EdgesLie: s.m.Edges, Pieces: s.m.Pieces}
	b := s.Borders()
	values, others := 0, 0
	err := s.eachPiece(ctx, func(p *store.Piece) error {
		reads, at := make([]int64, len(s.m.Pieces)), 0
		for q := range reads {
			end := sort.Search(len(p.Sources), func(k int) bool { return p.Sources[k] >= b[q+1] })
			reads[q], at = int64(end-at), end
		}
		sum.Reads = append(sum.Reads, reads)
		if sum.EdgesLie == EdgesAtTarget {
			sum.InDegrees, sum.OutDegrees = p.In.CountDegrees(sum.InDegrees), p.Out.CountDegrees(sum.OutDegrees)
		}
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
	if err != nil {
		return nil, err
	}
	if sum.EdgesLie == EdgesAtTarget {
		if err := s.countActive(ctx, sum); err != nil {
			return nil, err
		}
	}
	if sum.Values != nil {
		sum.Values.NonZero = float64(others) / float64(max(values, 1))
	}
	return sum, nil
}
