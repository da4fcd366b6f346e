package pieces

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// shape returns the rows and columns of the grid of pieces in which edges lie: the piece of an
// edge has the row of its source's and the column of its target's.
func shape(edges string, pieces int) (rows, cols int) {
	switch edges {
	case EdgesAtTarget:
		return 1, pieces
	case EdgesAtSource:
		return pieces, 1
	}
	for rows = int(math.Sqrt(float64(pieces))); pieces%rows != 0; rows-- {
	}
	return rows, pieces / rows
}

// home returns the piece in which an edge lies, of the pieces of its ends. No edge lies in a piece without masters, which nobody computes.
func (c *creator) home(source, target int) int {
	home := source/c.c*c.c + target%c.c
	if c.p.borders[home] == c.p.borders[home+1] {
		return target
	}
	return home
}

// makeBuckets cuts the keys of each piece's edges by how many are expected. Out's are expected to
// be as many as In's: where that is not so, buckets are larger or smaller, and sorted as well.
func (c *creator) makeBuckets() {
	n := c.ds.Graph.NumNodes()
	named := func(name string, byRow bool) *buckets {
		return &buckets{dir: c.path(scratchDir), name: name, id: c.p.id, byRow: byRow, weighted: c.ds.Graph.Weights != nil}
	}
	degree := make([]float64, (n+Border-1)/Border) // of the chunks' nodes
	for v := range n {
		degree[c.p.idOf(uint32(v))/Border] += float64(c.ds.Graph.Indptr[v+1] - c.ds.Graph.Indptr[v])
	}
	limit := float64(c.did.Limit) * 0.9
	for p := range c.o.Pieces {
		first, end := c.p.borders[p], c.p.borders[p+1]
		from, to := first, end
		out := func(chunk int) float64 { return degree[chunk] }
		if c.o.Edges != EdgesAtTarget { // any node may be an end of its edges
			from, to = 0, uint32(n)
			in := func(chunk int) float64 {
				if int(c.p.piece[chunk])%c.c != p%c.c {
					return 0
				}
				return degree[chunk] / float64(c.r)
			}
			out = func(chunk int) float64 {
				if int(c.p.piece[chunk])/c.c != p/c.c {
					return 0
				}
				return degree[chunk] / float64(c.c)
			}
			c.in = append(c.in, named(fmt.Sprintf("in-%d", p), true).cut(from, to, n, in, limit, first, end))
		}
		c.out = append(c.out, named(fmt.Sprintf("out-%d", p), false).cut(from, to, n, out, limit, first, end))
	}
}

// sorters is how many buckets are sorted at a time.
const sorters = 4

// sortLimit is how many edges are sorted at once: few enough for a processor's cache, unless buckets
// were too many then.
func (c *creator) sortLimit() int {
	if c.o.limit > 0 {
		return c.o.limit
	}
	return int(min(c.o.Memory/8/(18*sorters), max(1<<21, c.ds.Graph.NumEdges()/256)))
}

// scan reads the graph once, marks which nodes the group's pieces name, and fills the buckets unless
// they are full.
func (c *creator) scan(ctx context.Context, into *group, fill bool) error {
	count := 0 // of buckets
	if fill {
		scratch := c.path(scratchDir)
		if err := errors.Join(os.RemoveAll(scratch), os.MkdirAll(scratch, 0o777)); err != nil {
			return dataerr.Writing(scratch, err)
		}
		for _, side := range [][]*buckets{c.in, c.out} {
			for _, k := range side {
				count += len(k.ends)
			}
		}
	}
	g, readers := c.ds.Graph, c.did.Readers
	var cut atomic.Int64
	var telling sync.Mutex
	var done int64
	eg, ctx := errgroup.WithContext(ctx)
	for r := range readers {
		eg.Go(func() error {
			return graph.Guard(func() error {
				rd := reader{c: c, into: into, marked: make([]int, c.o.Pieces)}
				if fill {
					buffer := int(min(max(c.o.Memory/4/int64(readers*count), 1<<10), 1<<18))
					rd.fill(r, buffer)
				}
				err := rd.read(ctx, split(g, r, readers), split(g, r+1, readers), func(edges int64) {
					telling.Lock()
					defer telling.Unlock()
					done += edges
					c.o.Progress("reading edges", done, g.NumEdges())
				})
				cut.Add(rd.crossing)
				return err
			})
		})
	}
	if err := eg.Wait(); err != nil {
		return err
	}
	c.did.Cut = cut.Load()
	for _, side := range [][]*numbering{into.in, into.out} {
		for _, m := range side {
			if m != nil {
				m.number()
			}
		}
	}
	return nil
}

// split returns the first row of reader r: each reads about as many edges.
func split(g *graph.Graph, r, readers int) int {
	want := g.NumEdges() * int64(r) / int64(readers)
	if r == readers {
		return g.NumNodes()
	}
	at, _ := slices.BinarySearch(g.Indptr[:g.NumNodes()], want)
	return at
}

// reader reads a range of the graph's rows.
type reader struct {
	c        *creator
	into     *group
	in, out  []*filler // of each piece; nil: there is nothing to fill
	lanes    []*lane   // where edges lie with their targets: those of every Border sources; empty elsewhere
	marked   []int     // of each piece, the last row that is among the group's targets there, and one
	crossing int64     // edges between pieces
}

// fill makes the reader, of that number, fill the buckets, of each of which it keeps so many bytes.
func (r *reader) fill(number, buffer int) {
	c := r.c
	r.in, r.out, r.lanes = fillers(c.in, number, buffer), fillers(c.out, number, buffer), []*lane{}
	if c.o.Edges == EdgesAtTarget {
		for chunk, piece := range c.p.piece {
			r.lanes = append(r.lanes, r.out[piece].of(uint32(chunk)*Border))
		}
	}
}

// translated is how many nodes have their ids looked up at once.
const translated = 1 << 12

func (r *reader) read(ctx context.Context, from, to int, progress func(edges int64)) error {
	g, room := r.c.ds.Graph, make([]uint32, translated)
	told, v := g.Indptr[from], from
	for at, end := told, g.Indptr[to]; at < end; {
		ids := r.c.p.idsOf(room, g.Indices[at:min(end, at+translated)])
		for len(ids) > 0 {
			for g.Indptr[v+1] <= at {
				v++
			}
			n := min(int64(len(ids)), g.Indptr[v+1]-at)
			var weights []float32
			if g.Weights != nil {
				weights = g.Weights[at : at+n]
			}
			r.row(uint32(v), ids[:n], weights)
			ids, at = ids[n:], at+n
		}
		if at-told > 1<<20 || at == end {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			progress(at - told)
			told = at
		}
	}
	for _, side := range [][]*filler{r.in, r.out} {
		for _, f := range side {
			if err := f.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// row takes edges into row v, whose sources have these ids.
func (r *reader) row(v uint32, sources []uint32, weights []float32) {
	c, p, out := r.c, r.c.p, r.into.out
	target := p.idOf(v)
	tp := p.of(target)
	atTarget, in := c.o.Edges == EdgesAtTarget, r.into.in[tp]
	crossing, weight := int64(0), uint32(0)
	for i, source := range sources {
		sp := p.of(source)
		home, leaves := tp, sp // where In has it, and where Out does
		if !atTarget {
			home = c.home(sp, tp)
			in, leaves = r.into.in[home], home
		}
		if sp != tp {
			crossing++
			if in != nil {
				in.mark(source)
			}
			if r.marked[leaves] != int(v)+1 {
				r.marked[leaves] = int(v) + 1
				if m := out[leaves]; m != nil {
					m.mark(target)
				}
			}
		}
		if r.lanes == nil {
			continue
		}
		if weights != nil {
			weight = math.Float32bits(weights[i])
		}
		if atTarget {
			r.lanes[source/Border].add(source, v, weight)
		} else {
			r.out[leaves].of(source).add(source, v, weight)
			r.in[home].of(target).add(source, v, weight)
		}
	}
	r.crossing += crossing
}
