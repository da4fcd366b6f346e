package compute

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/graph"
)

// Facts are what a model looks up of a graph's nodes, besides the rows of batches.
type Facts struct {
	Degrees []uint32  // of each node: the edges into it
	InvSqrt []float32 // d̂^-½ of GCN's normalisation, of each node; nil: the model has none
	Loops   []float32 // the weights of the self-loops of GCN's normalisation; nil: all 1
}

// FactsOf returns the facts of g; norm: with those of GCN's normalisation.
func FactsOf(g *graph.Graph, norm bool) *Facts {
	f := &Facts{Degrees: make([]uint32, g.NumNodes())}
	for v := range f.Degrees {
		f.Degrees[v] = uint32(g.Degree(uint32(v)))
	}
	if norm {
		n := newGCNNorm(g)
		f.InvSqrt, f.Loops = n.invSqrt, n.loop
	}
	return f
}

// RowSource has the complete rows of a graph that lies elsewhere.
type RowSource interface {
	// Rows has use called with the rows of nodes, which are distinct, piece of them at a time
	// and in their order: b's destinations are nodes[from:], their sources, in the order of the
	// graph's rows, are named by SrcIDs, and fit the graph; edges: by EdgeIDs, too. b is use's until it returns. It ends
	// with ctx, or with the first error of use.
	Rows(ctx context.Context, nodes []uint32, piece int, edges bool, use func(from int, b *graph.Block) error) error
}

// NeedsFacts reports whether a model of a graph whose rows lie elsewhere has to be given facts of it;
// norm: with those of GCN's normalisation.
func (m *Model) NeedsFacts() (needs, norm bool) {
	norm = m.spec.Model == "gcn" || m.spec.Model == "mixhop"
	return norm || m.spec.ScaleSums, norm
}

// BindElsewhere gives a model of a graph whose rows lie elsewhere (graph.Elsewhere) what it
// looks up there: facts, nil if it needs none, and rows, which exact inference reads. It is to be
// called before the model is used.
func (m *Model) BindElsewhere(f *Facts, rows RowSource) error {
	m.rows = rows
	needs, norm := m.NeedsFacts()
	if !needs {
		return nil
	}
	for what, n := range map[string]int{"degrees": len(f.Degrees), "factors": len(f.InvSqrt), "self-loops": len(f.Loops)} {
		if n != m.nodes && (what == "degrees" || norm && (what == "factors" || f.Loops != nil)) {
			return fmt.Errorf("compute: %s of %d nodes for a graph of %d", what, n, m.nodes)
		}
	}
	m.degrees = f.Degrees
	if norm {
		m.norm = &gcnNorm{invSqrt: f.InvSqrt, loop: f.Loops}
	}
	return nil
}

// degree returns how many edges there are into v.
func (m *Model) degree(v uint32) int {
	if m.degrees != nil {
		return int(m.degrees[v])
	}
	return m.graph.Degree(v)
}
