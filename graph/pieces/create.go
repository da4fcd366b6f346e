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
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/gnnactor/gnnactor/graph"
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
	case g.Labels != nil && g.Labels.Values != nil:
		return errors.New("pieces: the labels are numbers, which a divided graph cannot hold; train on the store")
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
		err := c.write(ctx, g, func(ctx context.Context) (err error) {
			if err := c.scan(ctx, g, !known); err != nil || known {
				return err
			}
			if c.did.Bytes, err = c.bucketBytes(); err != nil {
				return err
			}
			known = true
			return c.save(scannedFile, c.did)
		})
		if err != nil {
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
