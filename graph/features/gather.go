package features

import "github.com/gnnactor/gnnactor/graph"

// Gatherer copies rows that lie in memory, or in a mapped file, together. It keeps its
// memory from one Gather to the next.
type Gatherer struct {
	// Limit is how many rows there are at the most; room is made for no more. 0: any
	// number.
	Limit int

	table graph.Features
	rows  int    // that table has memory for
	of    Layout // of them
}

// Rows returns how many rows were copied last.
func (g *Gatherer) Rows() int { return g.table.Rows }

// Release gives the memory up, with the table that Gather returned last; the next Gather makes it anew.
func (g *Gatherer) Release() { g.table, g.rows = graph.Features{}, 0 }

// gatherChunk is how many rows one call of For's copies.
const gatherChunk = 1 << 10

// Gather returns a table whose row i is row ids[i] of f, valid until the next call.
// Every id must be below f.Rows. each calls its argument for all chunks below n, on
// as many goroutines as it likes: a pool's For.
func (g *Gatherer) Gather(f *graph.Features, ids []uint32, each func(n int, do func(worker, chunk int))) *graph.Features {
	l := LayoutOf(f)
	if g.rows < len(ids) || g.of.fits(f) != nil {
		g.rows = len(ids) + len(ids)/4
		if g.Limit > 0 {
			g.rows = max(min(g.rows, g.Limit), len(ids))
		}
		g.table.Data = nil // not beside the new one
		g.table = *l.NewTable(g.rows)
		g.of = l
	}
	g.table.Rows, g.table.ColScale = len(ids), f.ColScale
	r := Request{IDs: ids, Dst: &g.table}
	each((len(ids)+gatherChunk-1)/gatherChunk, func(_, chunk int) {
		for i := chunk * gatherChunk; i < min((chunk+1)*gatherChunk, len(ids)); i += rowsPerCall {
			copyRun(&r, f, i, min(i+rowsPerCall, len(ids)), false)
		}
	})
	return &g.table
}
