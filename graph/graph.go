// Package graph holds graphs and the data attached to their nodes and edges. The
// packages below it keep them on disk (store), read what people have (importer), make
// graphs to measure on (generate), divide nodes into parts (partition), and serve rows
// of features (features).
//
// Node ids are uint32, edge positions int64. A graph is kept in CSC form: row
// v lists the sources of v's incoming edges, which is what message passing
// aggregates. An edge's id is its position in that list.
package graph

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// MaxNodes is how many nodes a graph may have: ids are below it, so no id is the largest
// uint32.
const MaxNodes int64 = math.MaxUint32

// Graph is a directed graph in CSC form. Its slices may lie in mapped memory:
// they are read-only, and live as long as the store.Store they came from.
type Graph struct {
	Indptr  []int64   // len NumNodes+1; row v is Indices[Indptr[v]:Indptr[v+1]]
	Indices []uint32  // sources of incoming edges, len NumEdges
	Weights []float32 // one per edge, or nil: all 1

	away *size // nil: the rows are here
}

// size is what is known of a graph whose rows lie elsewhere.
type size struct {
	nodes int
	edges int64
}

// Elsewhere returns what is known of a graph whose rows lie elsewhere: how many nodes and
// edges it has, and, if they are set, the edges' weights. Whoever asks it for a row panics.
func Elsewhere(nodes int, edges int64) *Graph { return &Graph{away: &size{nodes, edges}} }

// Away reports whether the rows lie elsewhere.
func (g *Graph) Away() bool { return g.away != nil }

// NumNodes returns n = |V|.
func (g *Graph) NumNodes() int {
	if g.away != nil {
		return g.away.nodes
	}
	return len(g.Indptr) - 1
}

// NumEdges returns |E|.
func (g *Graph) NumEdges() int64 {
	if g.away != nil {
		return g.away.edges
	}
	return int64(len(g.Indices))
}

// Degree returns d(v), the number of edges into v. Like InNeighbors it panics where
// Indptr does not fit Indices: nobody gets a number that no row can have.
func (g *Graph) Degree(v uint32) int { return len(g.InNeighbors(v)) }

// InNeighbors returns the sources of v's incoming edges. The slice aliases g.
func (g *Graph) InNeighbors(v uint32) []uint32 { return g.Indices[g.Indptr[v]:g.Indptr[v+1]] }

// Symmetric reports whether g's rows are sorted and with every edge there is its
// reverse, as often. It is one pass: the entries of row v are the next entries of
// their own rows. Rows out of order are reported as not symmetric.
func (g *Graph) Symmetric() bool {
	n := g.NumNodes()
	at := slices.Clone(g.Indptr[:n])
	for v := range n {
		for _, u := range g.InNeighbors(uint32(v)) {
			if at[u] == g.Indptr[u+1] || g.Indices[at[u]] != uint32(v) {
				return false
			}
			at[u]++
		}
	}
	return true
}

// Validate checks every invariant: monotone Indptr that spans Indices, ids
// in range, one weight per edge; of one whose rows lie elsewhere, the last. It reads the whole
// graph, unless ctx ends first: the error wraps its cause.
func (g *Graph) Validate(ctx context.Context) error {
	return g.validate(interrupt.New(ctx), g.NumNodes())
}

// ValidateRows is Validate for a graph whose rows name any of so many sources, of which its
// own nodes are the first.
func (g *Graph) ValidateRows(ctx context.Context, sources int) error {
	return g.validate(interrupt.New(ctx), sources)
}

func (g *Graph) validate(stop *interrupt.Poll, sources int) error {
	if g.Weights != nil && int64(len(g.Weights)) != g.NumEdges() {
		return fmt.Errorf("graph: %d weights for %d edges", len(g.Weights), g.NumEdges())
	}
	if g.Away() {
		return nil
	}
	if len(g.Indptr) == 0 || g.Indptr[0] != 0 {
		return fmt.Errorf("graph: indptr must start with 0")
	}
	n := g.NumNodes()
	for from, to := range stop.Pieces(n) {
		for v := from; v < to; v++ {
			if g.Indptr[v+1] < g.Indptr[v] {
				return fmt.Errorf("graph: indptr[%d] = %d is below indptr[%d] = %d; it must not decrease", v+1, g.Indptr[v+1], v, g.Indptr[v])
			}
		}
	}
	if g.Indptr[n] != int64(len(g.Indices)) {
		return fmt.Errorf("graph: indptr ends at %d but there are %d indices", g.Indptr[n], len(g.Indices))
	}
	for from, to := range stop.Pieces(len(g.Indices)) {
		for i, u := range g.Indices[from:to] {
			if int(u) >= sources {
				return fmt.Errorf("graph: indices[%d] = %d is out of range [0, %d)", from+i, u, sources)
			}
		}
	}
	return stop.Err()
}
