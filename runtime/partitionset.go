package runtime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/sampling"
)

// openSet is a partition set, all of whose pieces are open. A run on it knows of the graph what it
// would know of one whose rows lie elsewhere (graph.Elsewhere), and of the feature table what its
// rows are like; samplers and inference ask the pieces. Labels are put together, 4 bytes a node.
type openSet struct {
	set     *pieces.Set
	pieces  []*store.Piece
	drawers *sampling.Drawers // of the run's sampler
}

// newOpenSet opens the partition set in dir.
func newOpenSet(dir string) (d *openSet, err error) {
	d = new(openSet)
	if d.set, err = pieces.Open(dir); err != nil {
		return nil, err
	}
	for i := range d.set.Pieces() {
		p, err := d.set.OpenPiece(i)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.pieces = append(d.pieces, p)
	}
	return d, nil
}

func (d *openSet) close() (err error) {
	for _, p := range d.pieces {
		err = errors.Join(err, p.Close())
	}
	return err
}

// stores are the files.
func (d *openSet) stores() (all []*store.Store) {
	for _, p := range d.pieces {
		all = append(all, p.Store)
	}
	return all
}

// dataset returns what is known without a piece, with the nodes' labels.
func (d *openSet) dataset() (*graph.Dataset, error) {
	n, edges := d.set.NumNodes(), int64(0)
	for _, p := range d.set.Pieces() {
		edges += p.Edges
	}
	ds := &graph.Dataset{Name: d.set.Name(), Graph: graph.Elsewhere(n, edges), Fingerprint: d.set.Fingerprint()}
	var err error
	for i, split := range []*[]uint32{&ds.Train, &ds.Valid, &ds.Test} {
		if *split, err = d.set.Split(i); err != nil {
			return nil, err
		}
	}
	if err := ds.ValidateSplits(n); err != nil {
		return nil, err
	}
	first := d.pieces[0].Dataset()
	if f := first.NodeFeatures; f != nil {
		l := features.LayoutOf(f)
		ds.NodeFeatures = &graph.Features{Rows: n, Cols: f.Cols, DType: f.DType, Stride: l.Cols * l.DType.Size(), ColScale: slices.Clone(f.ColScale)}
		if l.RowScaled {
			ds.NodeFeatures.RowScale = make([]float32, n)
		}
	}
	if first.Labels != nil {
		ds.Labels = &graph.Labels{NumClasses: first.Labels.NumClasses}
	}
	for i, p := range d.pieces {
		has := p.Dataset().Labels
		switch {
		case (has == nil) != (ds.Labels == nil) || has != nil && (has.IsMulti() != first.Labels.IsMulti() || has.NumClasses != first.Labels.NumClasses):
			return nil, fmt.Errorf("%w: piece %d has other labels than piece 0; divide the graph again", graph.ErrFormat, i)
		case has == nil:
		case has.IsMulti():
			ds.Labels.Multi = append(ds.Labels.Multi, has.Multi...)
		default:
			ds.Labels.Class = append(ds.Labels.Class, has.Class...)
		}
	}
	return ds, nil
}

// rows returns the store of all features.
func (d *openSet) rows() (features.Store, error) {
	var all []features.Store
	for _, p := range d.pieces {
		all = append(all, features.InMemory(p.Dataset().NodeFeatures))
	}
	return features.Joined(d.set.Borders(), all)
}

// weighted reports whether the edges have weights.
func (d *openSet) weighted() bool { return d.pieces[0].In.Weights != nil }

// sampler readies the run's sampler to ask the pieces.
func (d *openSet) sampler(ctx context.Context, spec sampling.Spec, ds *graph.Dataset, seed uint64) (*sampling.Prepared, error) {
	rows := map[int]sampling.Rows{}
	for i, p := range d.pieces {
		r, err := sampling.PieceRows(d.set, i, p)
		if err != nil {
			return nil, err
		}
		rows[i] = r
	}
	var err error
	if d.drawers, err = sampling.NewDrawers(ctx, spec, seed, d.set.Borders(), rows); err != nil {
		return nil, err
	}
	return sampling.PrepareDivided(spec, ds, d.weighted(), d.drawers)
}

// bind gives a model what it looks up of the graph's nodes and edges.
func (d *openSet) bind(m *compute.Model, ds *graph.Dataset) (bytes int64, err error) {
	f := new(compute.Facts)
	if needs, norm := m.NeedsFacts(); needs {
		for _, p := range d.pieces {
			of := compute.FactsOf(p.In, norm) // of a master: its row is here
			f.Degrees = append(f.Degrees, of.Degrees...)
			f.InvSqrt = append(f.InvSqrt, of.InvSqrt...)
			f.Loops = append(f.Loops, of.Loops...)
		}
	}
	return 4 * int64(len(f.Degrees)+len(f.InvSqrt)+len(f.Loops)), m.BindElsewhere(f, rowsOfPieces{d, ds})
}

// rowsOfPieces implements compute.RowSource.
type rowsOfPieces struct {
	d  *openSet
	ds *graph.Dataset
}

// Rows implements compute.RowSource.
func (s rowsOfPieces) Rows(ctx context.Context, nodes []uint32, piece int, edges bool, use func(int, *graph.Block) error) error {
	p, err := sampling.PrepareDivided(sampling.Spec{Name: "khop", Layers: 1, EdgeIDs: edges}, s.ds, s.d.weighted(), s.d.drawers)
	if err != nil {
		return err
	}
	sampler, b := p.NewSampler(), sampling.Batch{ID: sampling.ID{Phase: "rows"}}
	for at := 0; at < len(nodes); at += piece {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := sampler.Sample(&b, 0, nodes[at:min(at+piece, len(nodes))]); err != nil {
			return err
		}
		if err := use(at, &b.Blocks[0]); err != nil {
			return err
		}
	}
	return nil
}

// renumbered says whether nodes have other ids in the set than outside.
func (d *openSet) renumbered() bool { return d.pieces[0].Originals != nil }

// checkSet reports what a run on a partition set cannot do.
func (c *settings) checkSet(d *openSet) error {
	why := c.NeedsTopology()
	if reads := c.sampler.UndividedOnly(); why == "" && c.Sampling.Own == nil {
		why = reads
	}
	switch {
	case c.Data.Rows != nil || c.Cluster.Peers != nil || c.Cluster.Elsewhere != nil || c.Cluster.Away || c.Cluster.SamplesOnly:
		why = "several nodes: one process has all pieces"
	case why != "":
	case c.Sampling.Own != nil:
		why = "a sampler of the program's own reads the whole graph"
	case c.Data.NormalizeFeatures:
		why = "normalize-features: rows are read where they lie; normalise them before the graph is divided"
	case c.Memory.Features != "":
		why = fmt.Sprintf("features: %s: rows are read from the pieces' files", c.Memory.Features)
	case c.cached.Kind == features.CacheDegree:
		why = fmt.Sprintf("cache: %s: nodes are not counted over all pieces", c.Memory.Cache)
	case d.weighted() && c.readsEdges():
		why = fmt.Sprintf("model %s looks up the weights of edges, which lie in the pieces", c.Model.Name)
	}
	if why != "" {
		return fmt.Errorf("%w: a partition set cannot be used so: %s. Change that, or give the store that it was made of", ErrConfig, why)
	}
	return nil
}

// openSet opens the partition set that cfg names.
func (d *openData) openSet(ctx context.Context, cfg *settings) (err error) {
	if d.set, err = newOpenSet(filepath.Clean(cfg.Data.Path)); err != nil {
		return err
	}
	if err = cfg.checkSet(d.set); err != nil {
		return err
	}
	d.mapped = true
	return graph.Guard(func() error {
		if d.ds, err = d.set.dataset(); err != nil || d.ds.NodeFeatures == nil {
			return err
		}
		rows, err := d.set.rows()
		if err != nil {
			return err
		}
		d.rows = rows
		// A model multiplies a table that is mostly zeros by the other values alone, of which it
		// makes a copy: only then is the table put together.
		sparse, err := compute.SparseProbe(d.ds.NodeFeatures, func(row []float32, i int) error { return d.set.row(row, i) })
		if err != nil || !sparse {
			return err
		}
		table, err := wholeTable(ctx, rows)
		if err != nil {
			return err
		}
		d.ds.NodeFeatures, d.rows = table, nil
		return rows.Close()
	})
}

// row decodes the features of a node.
func (d *openSet) row(dst []float32, id int) error {
	for _, p := range d.pieces {
		if at := id - int(p.Of.First); at < p.Masters {
			p.Dataset().NodeFeatures.Row(dst, at)
			return nil
		}
	}
	return fmt.Errorf("runtime: no piece has node %d", id)
}

// wholeTable reads all rows.
func wholeTable(ctx context.Context, rows features.Store) (*graph.Features, error) {
	l := rows.Layout()
	table := l.NewTable(l.Rows)
	ids := make([]uint32, l.Rows)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return table, features.Read(ctx, rows, features.Request{IDs: ids, Dst: table})
}
