package pieces

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/store"
)

// write writes a group's pieces: their edges when edges has found what there is of them.
func (c *creator) write(ctx context.Context, g *group, edges func(context.Context) error) error {
	writers := map[int]*store.Writer{}
	for _, i := range g.pieces {
		w, err := store.NewWriter(c.path(pieceName(i)))
		if err != nil {
			return err
		}
		defer w.Abort()
		const arrays = 12 // that are written at once, and another one's buffer
		w.SetBuffer(int(min(max(c.o.Memory/8/int64(arrays*len(g.pieces)), 1<<12), 1<<20)))
		w.SetDirect()
		w.SetName(c.ds.Name)
		classes := 0
		if c.ds.Labels != nil {
			classes = c.ds.Labels.NumClasses
		}
		w.SetPiece(store.PieceOf{Index: int64(i), Pieces: int64(c.o.Pieces), First: int64(c.p.borders[i]), Nodes: int64(c.ds.Graph.NumNodes())},
			int(c.p.borders[i+1]-c.p.borders[i]), classes)
		writers[i] = w
	}
	eg, ctx := errgroup.WithContext(ctx)
	shared, complete := make(chan struct{}), false // the values, which are written of all pieces in one pass, while edges are read
	eg.Go(func() error {
		defer close(shared)
		err := graph.Guard(func() error { return c.values(ctx, writers) })
		complete = err == nil
		return err
	})
	var telling sync.Mutex
	done := g.to - len(g.pieces)
	piece := func(i int) error {
		if err := c.topology(ctx, g, i, writers[i]); err != nil {
			return err
		}
		if <-shared; !complete {
			return nil // whose error is another one's
		}
		if err := writers[i].Commit(ctx); err != nil {
			return err
		}
		telling.Lock()
		defer telling.Unlock()
		done++
		c.o.Progress("writing pieces", int64(done), int64(c.o.Pieces))
		return nil
	}
	eg.Go(func() error {
		if err := edges(ctx); err != nil {
			return err
		}
		c.o.Progress("writing pieces", int64(g.from), int64(c.o.Pieces))
		for _, i := range g.pieces {
			eg.Go(func() error { return graph.Guard(func() error { return piece(i) }) })
		}
		return nil
	})
	return eg.Wait()
}

// topology writes the edges of a piece.
func (c *creator) topology(ctx context.Context, g *group, i int, w *store.Writer) error {
	eg, ctx := errgroup.WithContext(ctx)
	eg.Go(func() error {
		return graph.Guard(func() error {
			if c.in == nil {
				return c.ownRows(ctx, i, g.in[i], w)
			}
			return c.sorted(ctx, g, c.in[i], g.out[i], g.in[i], w, inArrays)
		})
	})
	eg.Go(func() error {
		return graph.Guard(func() error { return c.sorted(ctx, g, c.out[i], g.in[i], g.out[i], w, outArrays) })
	})
	return eg.Wait()
}

// The arrays of a piece's edges by target and by source: the rows' bounds, their entries and weights, and
// which nodes of other pieces the entries name.
var (
	inArrays  = [4]string{arrays.Indptr, arrays.Indices, arrays.Weights, arrays.Sources}
	outArrays = [4]string{arrays.OutIndptr, arrays.OutIndices, arrays.OutWeights, arrays.Targets}
)

// sorted writes the edges of buckets.
func (c *creator) sorted(ctx context.Context, g *group, k *buckets, keys, others *numbering, w *store.Writer, names [4]string) error {
	var out rows
	defer out.close()
	if err := out.begin(w, names, c.ds.Graph.Weights != nil, others); err != nil {
		return err
	}
	g.slots <- struct{}{}
	defer func() { <-g.slots }()
	if err := k.sort(ctx, c.did.Readers, keys, others, c.did.Limit, &out); err != nil {
		return err
	}
	return out.finish()
}

// ownRows writes the rows of a piece's masters as the graph has them: ids are in its order.
func (c *creator) ownRows(ctx context.Context, piece int, others *numbering, w *store.Writer) error {
	g := c.ds.Graph
	var out rows
	defer out.close()
	if err := errors.Join(out.begin(w, inArrays, g.Weights != nil, others), out.end()); err != nil {
		return err
	}
	room, other := make([]uint32, translated), make([]uint32, translated)
	from, end := c.rowsOf(map[int]*store.Writer{piece: w})
	for v := from; v < end; v++ {
		if v%(1<<12) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c.p.of(c.p.idOf(uint32(v))) != piece {
			continue
		}
		for at, end := g.Indptr[v], g.Indptr[v+1]; at < end; {
			row := c.p.idsOf(room, g.Indices[at:min(end, at+translated)])
			for i, id := range row {
				other[i] = others.of(id)
			}
			var weight []float32
			if g.Weights != nil {
				weight = g.Weights[at : at+int64(len(row))]
			}
			if err := out.put(other[:len(row)], arrays.Bytes(weight)); err != nil {
				return err
			}
			at += int64(len(row))
		}
		out.edges += g.Indptr[v+1] - g.Indptr[v]
		if err := out.end(); err != nil {
			return err
		}
	}
	return out.finish()
}
