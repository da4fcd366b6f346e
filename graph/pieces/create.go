package pieces

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// Options say how Create divides a graph.
type Options struct {
	Method    string // of placing nodes, one of Methods
	Edges     string // where edges lie, one of EdgePlaces; "": EdgesAtTarget
	Pieces    int    // at least 1
	Seed      uint64 // of the method's draws
	Memory    int64  // bytes that may be allocated; 0: 1 GiB. Mapped files do not count
	Overwrite bool   // replace a partition set that is there
	// Progress, which may be nil, is told what is being done, and how much of it is. It is called by
	// several goroutines, one at a time.
	Progress func(doing string, done, of int64)

	limit int // of edges that are sorted at once; 0: by Memory
}

// minimum is what is needed beside what grows with the graph.
const minimum = 32 << 20

func (o *Options) check(g *graph.Dataset) error {
	o.Edges, o.Memory = cmp.Or(o.Edges, EdgesAtTarget), cmp.Or(o.Memory, 1<<30)
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	switch {
	case !slices.Contains(Methods(), o.Method):
		return fmt.Errorf("pieces: there is no method %q; choose one of %v", o.Method, Methods())
	case !slices.Contains(EdgePlaces(), o.Edges):
		return fmt.Errorf("pieces: edges cannot lie at %q; choose one of %v", o.Edges, EdgePlaces())
	case o.Pieces < 1 || o.Pieces > MaxPieces:
		return fmt.Errorf("pieces: a graph in %d pieces; give 1 to %d", o.Pieces, MaxPieces)
	case o.Pieces > max(g.Graph.NumNodes(), 1):
		return fmt.Errorf("pieces: %d pieces of %d nodes; give at most as many as nodes", o.Pieces, g.Graph.NumNodes())
	case g.EdgeFeatures != nil || g.EdgeTimes != nil:
		return errors.New("pieces: the edges have features or times, which a divided graph cannot hold; import the data without them")
	}
	return o.fits(g.Graph)
}

// Create divides the graph of an open store and writes the partition set to the new directory
// dir, which appears when it is complete. What was done before ctx ended, an error or a kill stays
// beside it in a directory whose name begins with a point: a call that asks for the same goes on
// from there, another begins anew. The store's files must have been checked (Store.Check,
// Store.CheckGraph), but for node features, which are compared with their checksums as they are copied.
func Create(ctx context.Context, dir string, src *store.Store, o Options) (*Set, error) {
	ds := src.Dataset()
	if err := o.check(ds); err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	if err := CheckDestination(dir, o.Overwrite); err != nil {
		return nil, err
	}
	c := &creator{o: &o, src: src, ds: ds, dir: dir, work: filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".unfinished")}
	if err := os.MkdirAll(c.work, 0o777); err != nil {
		return nil, dataerr.Writing(c.work, err)
	}
	unlock, err := dirlock.Try(c.work)
	if errors.Is(err, dirlock.ErrHeld) {
		return nil, fmt.Errorf("pieces: another process divides a graph into %s; wait for it, or choose another name", dir)
	}
	switch {
	case err == nil:
		defer unlock()
	case !errors.Is(err, dirlock.ErrNone):
		return nil, fmt.Errorf("pieces: %w", err)
	}
	if err := graph.Guard(func() error { return c.create(ctx) }); err != nil {
		return nil, fmt.Errorf("%w (the same command goes on from what it has in %s)", err, c.work)
	}
	return Open(dir)
}

// CheckDestination refuses to replace anything but an empty directory or, if asked to, a set.
func CheckDestination(dir string, overwrite bool) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && (len(list) == 0 || overwrite && IsSet(dir)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pieces: %w; choose another name", err)
	}
	if IsSet(dir) {
		return fmt.Errorf("pieces: %s is there already: %w; choose another name, or ask to overwrite it (--overwrite)", dir, os.ErrExist)
	}
	return fmt.Errorf("pieces: %s is there already and is not a partition set, so it is not overwritten; choose another name", dir)
}

// creator is one call of Create.
type creator struct {
	o         *Options
	src       *store.Store
	ds        *graph.Dataset
	copied    bool // the node features, once: they are sound
	dir, work string
	p         *placement
	r, c      int // rows and columns of the grid; a row or a column for the other places of edges
	did       scanned
	in, out   []*buckets // of each piece; in is nil where the graph has the rows of pieces as they are
	m         manifest
}

// scanned is what is kept of the first step: the edges are in buckets.
type scanned struct {
	Readers int   `json:"readers"`
	Limit   int   `json:"limit"` // of edges that are sorted at once, for which buckets were cut
	Bytes   int64 `json:"bytes"` // of all buckets
	Cut     int64 `json:"edges_cut"`
}

func (c *creator) path(name string) string { return filepath.Join(c.work, name) }

const (
	aboutFile   = "about.json"
	idsFile     = "ids"
	idsAbout    = "ids.json"
	scannedFile = "scanned.json"
	scratchDir  = "edges"
)

func (c *creator) create(ctx context.Context) error {
	if err := c.resume(); err != nil {
		return err
	}
	if err := c.place(ctx); err != nil {
		return err
	}
	c.r, c.c = shape(c.o.Edges, c.o.Pieces)
	known := c.load(scannedFile, &c.did)
	if known {
		bytes, err := c.bucketBytes()
		known = err == nil && bytes == c.did.Bytes
	}
	if !known {
		c.did = scanned{Readers: runtime.GOMAXPROCS(0), Limit: c.sortLimit()}
	}
	c.makeBuckets()
	size := c.groupSize()
	for from := 0; from < c.o.Pieces; from += size {
		g := c.newGroup(from, min(from+size, c.o.Pieces))
		if known && len(g.pieces) == 0 {
			continue
		}
		if err := c.scan(ctx, g, !known); err != nil {
			return err
		}
		if !known {
			var err error
			if c.did.Bytes, err = c.bucketBytes(); err != nil {
				return err
			}
			if err := c.save(scannedFile, c.did); err != nil {
				return err
			}
			known = true
		}
		if err := c.write(ctx, g); err != nil {
			return err
		}
	}
	return c.publish(ctx)
}

// bucketBytes returns how many bytes the buckets have.
func (c *creator) bucketBytes() (bytes int64, err error) {
	err = filepath.WalkDir(c.path(scratchDir), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("pieces: %w", err)
	}
	return bytes, nil
}

// resume makes the working directory one of this call: what another has left is removed.
func (c *creator) resume() error {
	about := struct {
		Layout               int // of the files in the directory
		Graph, Method, Edges string
		Pieces               int
		Seed                 uint64
		Memory               int64
	}{3, c.ds.Fingerprint, c.o.Method, c.o.Edges, c.o.Pieces, c.o.Seed, c.o.Memory}
	was := about
	if c.load(aboutFile, &was) && was == about {
		return nil
	}
	list, err := os.ReadDir(c.work)
	if err != nil {
		return fmt.Errorf("pieces: %w", err)
	}
	for _, e := range list {
		if err := os.RemoveAll(c.path(e.Name())); err != nil {
			return dataerr.Writing(c.path(e.Name()), err)
		}
	}
	return c.save(aboutFile, about)
}

// load reads what save wrote, and reports whether it is there.
func (c *creator) load(name string, v any) bool {
	b, err := os.ReadFile(c.path(name))
	return err == nil && json.Unmarshal(b, v) == nil
}

func (c *creator) save(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return dataerr.Writing(c.path(name), atomicfile.Write(c.path(name), 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}))
}

// place places the nodes, or reads how they were placed.
func (c *creator) place(ctx context.Context) error {
	var was struct {
		Borders []uint32
		IDs     store.IDs
	}
	if c.load(idsAbout, &was) {
		c.p = newPlacement(was.Borders)
		if was.IDs.SHA256 == "" {
			return nil
		}
		var err error
		if c.p.id, err = store.ReadIDs(c.path(idsFile), was.IDs); err == nil {
			return nil
		} // else they are placed again
	}
	c.o.Progress("placing nodes", 0, int64(c.ds.Graph.NumNodes()))
	p, err := place(ctx, c.ds.Graph, c.o, valueBytes(c.ds))
	if err != nil {
		return err
	}
	c.p, was.Borders = p, p.borders
	if p.id != nil {
		if was.IDs, err = store.WriteIDs(c.path(idsFile), p.id); err != nil {
			return err
		}
	}
	return c.save(idsAbout, was)
}

// valueBytes returns the bytes of a node's values.
func valueBytes(ds *graph.Dataset) (bytes int64) {
	if f := ds.NodeFeatures; f != nil {
		bytes += int64(f.Cols * f.DType.Size())
	}
	if l := ds.Labels; l != nil {
		bytes += 4
		if l.IsMulti() {
			bytes += int64(l.NumClasses) - 4
		}
	}
	return bytes
}

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

// home returns the piece in which an edge lies, of the pieces of its ends.
func (c *creator) home(source, target int) int { return source/c.c*c.c + target%c.c }

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
	return int(min(c.o.Memory/8/(8*sorters), max(1<<21, c.ds.Graph.NumEdges()/256)))
}

// group is pieces that are written together.
type group struct {
	from, to int   // pieces
	pieces   []int // those that are not there yet
	in, out  []*numbering
	slots    chan struct{} // for those who sort
}

// groupSize is how many pieces are written together: writers of many would take many files, and
// numberings much memory.
func (c *creator) groupSize() int {
	each := max(1, int64(c.ds.Graph.NumNodes())/8*3) // bytes of two numberings
	return int(min(max(c.o.Memory/4/each, 1), 16))
}

func (c *creator) newGroup(from, to int) *group {
	g := &group{from: from, to: to, in: make([]*numbering, c.o.Pieces), out: make([]*numbering, c.o.Pieces), slots: make(chan struct{}, sorters)}
	for i := from; i < to; i++ {
		if _, err := os.Stat(filepath.Join(c.path(pieceName(i)), store.Manifest)); err != nil {
			g.pieces = append(g.pieces, i)
			for _, side := range [][]*numbering{g.in, g.out} {
				side[i] = newNumbering(c.p.borders[i], c.p.borders[i+1], c.ds.Graph.NumNodes())
			}
		}
	}
	return g
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
				rd := reader{c: c, into: into}
				if fill {
					buffer := int(min(max(c.o.Memory/4/int64(readers*count), 1<<10), 1<<18))
					rd.in, rd.out = fillers(c.in, r, buffer), fillers(c.out, r, buffer)
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
	crossing int64     // edges between pieces
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
	c, p, in, out := r.c, r.c.p, r.into.in, r.into.out
	target := p.idOf(v)
	tp := p.of(target)
	atTarget, crossing := c.o.Edges == EdgesAtTarget, int64(0)
	for i, source := range sources {
		sp := p.of(source)
		if sp != tp {
			crossing++
		}
		home, leaves := tp, sp // where In has it, and where Out does
		if !atTarget {
			home = c.home(sp, tp)
			leaves = home
		}
		if m := in[home]; m != nil {
			m.mark(source)
		}
		if m := out[leaves]; m != nil {
			m.mark(target)
		}
		if r.out == nil {
			continue
		}
		weight := uint32(0)
		if weights != nil {
			weight = math.Float32bits(weights[i])
		}
		if r.out[leaves].add(source, source, v, weight); !atTarget {
			r.in[home].add(target, source, v, weight)
		}
	}
	r.crossing += crossing
}

// write writes a group's pieces.
func (c *creator) write(ctx context.Context, g *group) error {
	writers := map[int]*store.Writer{}
	for _, i := range g.pieces {
		w, err := store.NewWriter(c.path(pieceName(i)))
		if err != nil {
			return err
		}
		defer w.Abort()
		const arrays = 12 // that are written at once, and another one's buffer
		w.SetBuffer(int(min(max(c.o.Memory/8/int64(arrays*len(g.pieces)), 1<<12), 1<<20)))
		w.SetName(c.ds.Name)
		classes := 0
		if c.ds.Labels != nil {
			classes = c.ds.Labels.NumClasses
		}
		w.SetPiece(store.PieceOf{Index: int64(i), Pieces: int64(c.o.Pieces), First: int64(c.p.borders[i]), Nodes: int64(c.ds.Graph.NumNodes())},
			int(c.p.borders[i+1]-c.p.borders[i]), classes)
		writers[i] = w
	}
	c.o.Progress("writing pieces", int64(g.from), int64(c.o.Pieces))
	eg, ctx := errgroup.WithContext(ctx)
	shared, complete := make(chan struct{}), false // what is written of all pieces in one pass
	eg.Go(func() error {
		defer close(shared)
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error { return graph.Guard(func() error { return c.values(ctx, writers) }) })
		if c.in == nil {
			both.Go(func() error { return graph.Guard(func() error { return c.ownRows(ctx, g, writers) }) })
		}
		err := both.Wait()
		complete = err == nil
		return err
	})
	var telling sync.Mutex
	done := g.to - len(g.pieces)
	for _, i := range g.pieces {
		eg.Go(func() error {
			return graph.Guard(func() error {
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
			})
		})
	}
	return eg.Wait()
}

// topology writes the edges of a piece that are in buckets.
func (c *creator) topology(ctx context.Context, g *group, i int, w *store.Writer) error {
	eg, ctx := errgroup.WithContext(ctx)
	if c.in != nil {
		eg.Go(func() error {
			return graph.Guard(func() error { return c.sorted(ctx, g, c.in[i], g.out[i], g.in[i], w, inArrays) })
		})
	}
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

// ownRows writes the rows of the group's masters as the graph has them: ids are in its order.
func (c *creator) ownRows(ctx context.Context, to *group, writers map[int]*store.Writer) error {
	g := c.ds.Graph
	all := make([]*rows, c.o.Pieces)
	for i, w := range writers {
		all[i] = &rows{}
		defer all[i].close()
		if err := errors.Join(all[i].begin(w, inArrays, g.Weights != nil, to.in[i]), all[i].end()); err != nil {
			return err
		}
	}
	room, other := make([]uint32, translated), make([]uint32, translated)
	from, end := c.rowsOf(writers)
	for v := from; v < end; v++ {
		if v%(1<<12) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := c.p.of(c.p.idOf(uint32(v)))
		out, others := all[piece], to.in[piece]
		if out == nil {
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
	for _, out := range all {
		if out != nil {
			if err := out.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowsOf returns the range of the graph's rows in which the masters of pieces are.
func (c *creator) rowsOf(writers map[int]*store.Writer) (from, to int) {
	from, to = c.ds.Graph.NumNodes(), 0
	if c.p.id != nil {
		return 0, from
	}
	for i := range writers {
		from, to = min(from, int(c.p.borders[i])), max(to, int(c.p.borders[i+1]))
	}
	return from, to
}

// values copies what is known of nodes to their pieces, in one pass over the nodes.
func (c *creator) values(ctx context.Context, writers map[int]*store.Writer) error {
	from, to := c.rowsOf(writers)
	for _, t := range c.tables() {
		out := make([]*store.ArrayWriter, c.o.Pieces)
		for i, w := range writers {
			a, err := w.Array(t.name, t.dtype, t.cols)
			if err != nil {
				return err
			}
			defer a.Close()
			out[i] = a
		}
		copyRow := func(v int, row []byte) error {
			if v%(1<<12) == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			a := out[c.p.of(c.p.idOf(uint32(v)))]
			if a == nil {
				return nil
			}
			_, err := a.Write(row)
			return err
		}
		if t.name == arrays.NodeFeatures && !c.copied {
			if err := c.checkedRows(t, copyRow); err != nil {
				return err
			}
			c.copied = true
		} else {
			for v := from; v < to; v++ {
				if err := copyRow(v, t.row(v)); err != nil {
					return err
				}
			}
		}
		for _, a := range out {
			if a != nil {
				if err := a.Finish(); err != nil {
					return err
				}
			}
		}
	}
	if f := c.ds.NodeFeatures; f != nil && f.ColScale != nil {
		for _, w := range writers {
			if err := w.Put(arrays.NodeColScale, graph.Float32, 1, arrays.Bytes(f.ColScale)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkedRows calls f with each row of a table of the store, and compares its file with the checksums.
func (c *creator) checkedRows(t table, f func(v int, row []byte) error) error {
	r, err := c.src.CheckedReader(t.name)
	if err != nil {
		return err
	}
	defer r.Close()
	size := t.cols * t.dtype.Size()
	rows := make([]byte, size*max(1, (1<<20)/max(size, 1)))
	for v, n := 0, c.ds.Graph.NumNodes(); v < n && size > 0; {
		some := rows[:min(len(rows), (n-v)*size)]
		if _, err := io.ReadFull(r, some); err != nil {
			return err
		}
		for ; len(some) > 0; v++ {
			if err := f(v, some[:size]); err != nil {
				return err
			}
			some = some[size:]
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what is told behind the last row
		return err
	}
	return nil
}

// table is an array with a row for each node.
type table struct {
	name  string
	dtype graph.DType
	cols  int
	row   func(v int) []byte
}

func (c *creator) tables() (list []table) {
	ds := c.ds
	if f := ds.NodeFeatures; f != nil {
		bytes := f.Cols * f.DType.Size()
		list = append(list, table{arrays.NodeFeatures, f.DType, f.Cols, func(v int) []byte { return f.Data[v*f.Stride : v*f.Stride+bytes] }})
		if f.RowScale != nil {
			list = append(list, column(arrays.NodeRowScale, graph.Float32, f.RowScale))
		}
	}
	if l := ds.Labels; l != nil && l.IsMulti() {
		list = append(list, table{arrays.Labels, graph.Uint8, l.NumClasses, func(v int) []byte { return l.Multi[v*l.NumClasses : (v+1)*l.NumClasses] }})
	} else if l != nil {
		list = append(list, column(arrays.Labels, graph.Int32, l.Class))
	}
	if ds.NodeTimes != nil {
		list = append(list, column(arrays.NodeTimes, graph.Int64, ds.NodeTimes))
	}
	if c.p.id != nil {
		id := make([]uint32, 1)
		list = append(list, table{arrays.Originals, graph.Uint32, 1, func(v int) []byte {
			id[0] = uint32(v)
			return arrays.Bytes(id)
		}})
	}
	return list
}

func column[T arrays.Number](name string, t graph.DType, x []T) table {
	return table{name, t, 1, func(v int) []byte { return arrays.Bytes(x[v : v+1]) }}
}

// publish writes the manifest and gives the directory its name.
func (c *creator) publish(ctx context.Context) error {
	m := &c.m
	*m = manifest{
		Name: c.ds.Name, Method: c.o.Method, Edges: c.o.Edges, Seed: c.o.Seed,
		Graph: c.ds.Fingerprint, Nodes: int64(c.ds.Graph.NumNodes()), Cut: c.did.Cut,
	}
	train := make([]int64, c.o.Pieces)
	for s, ids := range [3][]uint32{c.ds.Train, c.ds.Valid, c.ds.Test} {
		here := make([]uint32, len(ids))
		for i, v := range ids {
			here[i] = c.p.idOf(v)
			if s == 0 {
				train[c.p.of(here[i])]++
			}
		}
		var err error
		if m.Splits[s], err = store.WriteIDs(c.path(splits[s]), here); err != nil {
			return err
		}
	}
	for i := range c.o.Pieces {
		p, err := store.OpenPiece(c.path(pieceName(i)))
		if err != nil {
			return err
		}
		m.Pieces = append(m.Pieces, PieceInfo{
			First: p.Of.First, Masters: int64(p.Masters), Edges: p.In.NumEdges(), OutEdges: p.Out.NumEdges(),
			Sources: int64(len(p.Sources)), Targets: int64(len(p.Targets)), Train: train[i], Bytes: p.Bytes(), Fingerprint: p.Dataset().Fingerprint,
		})
		if err := p.Close(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	path := c.path(Manifest)
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(m.encode()))
		return err
	})
	if err != nil {
		return dataerr.Writing(path, err)
	}
	// Who goes on after a kill takes nothing for there of which a part is gone.
	for _, name := range []string{scannedFile, scratchDir, idsAbout, idsFile, aboutFile} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return dataerr.Writing(c.path(name), err)
		}
	}
	if err := errors.Join(os.Chmod(c.work, 0o755), atomicfile.SyncDir(c.work)); err != nil {
		return dataerr.Writing(c.dir, err)
	}
	if err := CheckDestination(c.dir, c.o.Overwrite); err != nil { // it may have come meanwhile
		return err
	}
	old := c.work + ".old"
	if err := os.RemoveAll(old); err != nil {
		return dataerr.Writing(old, err)
	}
	if err := os.Rename(c.dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return dataerr.Writing(c.dir, err)
	}
	if err := os.Rename(c.work, c.dir); err != nil {
		return dataerr.Writing(c.dir, errors.Join(err, os.Rename(old, c.dir)))
	}
	if err := os.RemoveAll(old); err != nil {
		return dataerr.Writing(old, err)
	}
	return dataerr.Writing(c.dir, atomicfile.SyncDir(filepath.Dir(c.dir)))
}
