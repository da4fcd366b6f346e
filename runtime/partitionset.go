package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// openSet is a partition set. A run on it knows of the graph what it
// would know of one whose rows lie elsewhere (graph.Elsewhere), and of the feature table what its
// rows are like; samplers and inference ask the pieces. Labels are put together, 4 bytes a node.
type openSet struct {
	training.Parts
	close  func() error
	owners sampling.Owners // of the run's sampler
}

// newOpenSet opens the partition set in dir, or takes it as it is: parts, which their owner closes.
func newOpenSet(dir string, parts training.Parts) (*openSet, error) {
	if parts != nil {
		return &openSet{Parts: parts, close: func() error { return nil }}, nil
	}
	p, err := openParts(dir)
	if err != nil {
		return nil, err
	}
	return &openSet{Parts: p, close: p.close}, nil
}

// partsHere are all pieces of a partition set, open in this process. It implements training.Parts.
type partsHere struct {
	set    *pieces.Set
	common pieces.Common
	pieces []*store.Piece
}

// openParts opens the pieces of the partition set in dir.
func openParts(dir string) (d *partsHere, err error) {
	d = new(partsHere)
	if d.set, err = pieces.Open(dir); err != nil {
		return nil, err
	}
	for i := range d.set.Pieces() {
		p, err := d.set.OpenPiece(i)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.pieces = append(d.pieces, p)
		here, err := pieces.CommonOf(p)
		if i == 0 {
			d.common = here
		}
		if err == nil && !reflect.DeepEqual(here, d.common) {
			err = fmt.Errorf("%w: piece %d has other labels, features or weights than piece 0; divide the graph again", graph.ErrFormat, i)
		}
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

func (d *partsHere) close() (err error) {
	for _, p := range d.pieces {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Set implements training.Parts.
func (d *partsHere) Set() *pieces.Set { return d.set }

// Common implements training.Parts.
func (d *partsHere) Common() pieces.Common { return d.common }

// Stores implements training.Parts.
func (d *partsHere) Stores() (all []*store.Store) {
	for _, p := range d.pieces {
		all = append(all, p.Store)
	}
	return all
}

// Rows implements training.Parts.
func (d *partsHere) Rows() features.Store {
	var all []features.Store
	for _, p := range d.pieces {
		all = append(all, features.InMemory(p.Dataset().NodeFeatures))
	}
	rows, err := features.Joined(d.set.Borders(), all)
	if err != nil {
		panic(err) // a piece has as many rows as the set says, and all have the same layout
	}
	return rows
}

// Owners implements training.Parts.
func (d *partsHere) Owners(ctx context.Context, spec sampling.Spec, seed uint64) (sampling.Owners, error) {
	rows := map[int]sampling.Rows{}
	for i, p := range d.pieces {
		r, err := sampling.PieceRows(d.set, i, p)
		if err != nil {
			return nil, err
		}
		rows[i] = r
	}
	drawers, err := sampling.NewDrawers(ctx, spec, seed, d.set.Borders(), rows)
	if err != nil {
		return nil, err
	}
	return drawers, drawers.GatherHere(ctx)
}

// Column implements training.Parts.
func (d *partsHere) Column(_ context.Context, what string) (all [][]byte, err error) {
	for _, p := range d.pieces {
		b, err := PieceColumn(p, what)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// What PieceColumn makes.
const (
	columnLabels  = "labels"   // int32: graph.Labels.Class; or bytes: Multi
	columnDegrees = "degrees"  // uint32, and the next two float32: compute.Facts
	columnInvSqrt = "inv-sqrt" //
	columnLoops   = "loops"    // empty: all 1
)

// PieceColumn returns what is known of each master of a piece, little-endian: what is "labels", "degrees", "inv-sqrt" or "loops".
func PieceColumn(p *store.Piece, what string) (b []byte, err error) {
	err = graph.Guard(func() error {
		switch l := p.Dataset().Labels; what {
		case columnLabels:
			switch {
			case l == nil:
			case l.IsMulti():
				b = slices.Clone(l.Multi)
			default:
				b, err = binary.Append(nil, binary.LittleEndian, l.Class)
			}
		case columnDegrees:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, false).Degrees)
		case columnInvSqrt:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, true).InvSqrt)
		case columnLoops:
			b, err = binary.Append(nil, binary.LittleEndian, compute.FactsOf(p.In, true).Loops)
		default:
			err = fmt.Errorf("runtime: there is no column %.64q", what)
		}
		return err
	})
	return b, err
}

// whole returns a column of all nodes; nil: it is empty.
func whole[T int32 | uint32 | float32](ctx context.Context, d *openSet, what string) ([]T, error) {
	parts, err := d.Column(ctx, what)
	if err != nil {
		return nil, err
	}
	n, at := 0, 0
	for _, b := range parts {
		n += len(b) / 4
	}
	if n == 0 {
		return nil, nil
	}
	if n != d.Set().NumNodes() {
		return nil, fmt.Errorf("runtime: %s of %d nodes in pieces of %d", what, n, d.Set().NumNodes())
	}
	all := make([]T, n)
	for _, b := range parts {
		if _, err := binary.Decode(b, binary.LittleEndian, all[at:at+len(b)/4]); err != nil {
			return nil, fmt.Errorf("runtime: %w", err)
		}
		at += len(b) / 4
	}
	return all, nil
}

// dataset returns what is known without a piece, with the nodes' labels.
func (d *openSet) dataset(ctx context.Context) (*graph.Dataset, error) {
	set, common := d.Set(), d.Common()
	n, edges := set.NumNodes(), int64(0)
	for _, p := range set.Pieces() {
		edges += p.Edges
	}
	ds := &graph.Dataset{Name: set.Name(), Recipe: common.Recipe, Graph: graph.Elsewhere(n, edges), Fingerprint: set.Fingerprint()}
	var err error
	for i, split := range []*[]uint32{&ds.Train, &ds.Valid, &ds.Test} {
		if *split, err = set.Split(i); err != nil {
			return nil, err
		}
	}
	if err := ds.ValidateSplits(n); err != nil {
		return nil, err
	}
	if l := common.Features; l != nil {
		ds.NodeFeatures = &graph.Features{Rows: n, Cols: l.Cols, DType: l.DType, Stride: l.Cols * l.DType.Size(), ColScale: l.ColScale}
		if l.RowScaled {
			ds.NodeFeatures.RowScale = make([]float32, n)
		}
	}
	switch {
	case !common.Labels:
	case common.Multi:
		ds.Labels = &graph.Labels{NumClasses: common.Classes}
		all, err := d.Column(ctx, columnLabels)
		if err != nil {
			return nil, err
		}
		ds.Labels.Multi = slices.Concat(all...)
		if len(ds.Labels.Multi) != n*common.Classes {
			return nil, fmt.Errorf("%w: %d labels of %d nodes with %d classes; divide the graph again", graph.ErrFormat, len(ds.Labels.Multi), n, common.Classes)
		}
	default:
		ds.Labels = &graph.Labels{NumClasses: common.Classes}
		if ds.Labels.Class, err = whole[int32](ctx, d, columnLabels); err != nil {
			return nil, err
		}
	}
	return ds, nil
}

// sampler readies the run's sampler to ask the pieces.
func (d *openSet) sampler(ctx context.Context, spec sampling.Spec, ds *graph.Dataset, seed uint64) (_ *sampling.Prepared, err error) {
	if d.owners, err = d.Owners(ctx, spec, seed); err != nil {
		return nil, err
	}
	return sampling.PrepareDivided(ctx, spec, ds, d.Common().Weighted, d.owners)
}

// bind gives a model what it looks up of the graph's nodes and edges.
func (d *openSet) bind(ctx context.Context, m *compute.Model, ds *graph.Dataset) (bytes int64, err error) {
	f := new(compute.Facts)
	needs, norm := m.NeedsFacts()
	if needs {
		f.Degrees, err = whole[uint32](ctx, d, columnDegrees)
	}
	if norm && err == nil {
		f.InvSqrt, err = whole[float32](ctx, d, columnInvSqrt)
	}
	if norm && err == nil {
		f.Loops, err = whole[float32](ctx, d, columnLoops)
	}
	if err != nil {
		return 0, err
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
	p, err := sampling.PrepareDivided(ctx, sampling.Spec{Name: "khop", Layers: 1, EdgeIDs: edges}, s.ds, s.d.Common().Weighted, s.d.owners)
	if err != nil {
		return err
	}
	sampler, b := sampling.Within(ctx, p.NewSampler()), sampling.Batch{ID: sampling.ID{Phase: "rows"}}
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

// NotOverParts says what a run on a partition set cannot do, of several nodes or one; "": nothing that is asked.
func (c *Config) NotOverParts() string {
	spec, err := c.samplerSpec()
	if err != nil {
		spec = sampling.Spec{Name: c.Sampling.Sampler} // Validate says what is wrong
	}
	return c.notOverParts(&spec)
}

func (c *Config) notOverParts(spec *sampling.Spec) string {
	why := c.NeedsTopology(nil)
	if why == "" && c.Sampling.Own == nil {
		why = spec.UndividedOnly()
	}
	switch {
	case c.Model.Task == "link":
		return "task link: what is learnt are the edges"
	case why != "":
		return why
	case len(c.Stages) > 0:
		return "stages of the program's own are given the whole graph's data"
	case c.Sampling.Inductive && c.readsEdges():
		return "inductive: the model looks up what is known of edges in the graph that training sees"
	case c.Sampling.Own != nil:
		return "a sampler of the program's own reads the whole graph"
	case c.Data.NormalizeFeatures:
		return "normalize-features: rows are read where they lie; normalise them before the graph is divided"
	case c.Memory.Features != "":
		return fmt.Sprintf("features: %s: rows are read from the pieces' files", c.Memory.Features)
	}
	return ""
}

// checkSet reports what a run on a partition set cannot do.
func (c *settings) checkSet(d *openSet) error {
	why := c.notOverParts(&c.sampler)
	switch {
	case why != "":
	case c.Data.Rows != nil || c.Cluster.Away || c.Cluster.SamplesOnly || c.Cluster.Peers != nil && c.Cluster.Parts == nil:
		why = "several nodes: one process has all pieces, unless Cluster.Parts says where they lie"
	case c.cached.Kind == features.CacheDegree:
		why = fmt.Sprintf("cache: %s: nodes are not counted over all pieces", c.Memory.Cache)
	case d.Common().Weighted && c.readsEdges():
		why = fmt.Sprintf("model %s looks up the weights of edges, which lie in the pieces", c.Model.Name)
	}
	if why != "" {
		return fmt.Errorf("%w: a partition set cannot be used so: %s. Change that, or give the store that it was made of", ErrConfig, why)
	}
	return nil
}

// openSet opens the partition set that cfg names.
func (d *openData) openSet(ctx context.Context, cfg *settings) (err error) {
	if d.set, err = newOpenSet(filepath.Clean(cfg.Data.Path), cfg.Cluster.Parts); err != nil {
		return err
	}
	if err = cfg.checkSet(d.set); err != nil {
		return err
	}
	d.mapped = true
	return graph.Guard(func() error {
		if d.ds, err = d.set.dataset(ctx); err != nil || d.ds.NodeFeatures == nil {
			return err
		}
		rows := d.set.Rows()
		if d.rows = rows; cfg.Cluster.Parts != nil {
			d.rows = borrowed{rows}
		}
		// A model multiplies a table that is mostly zeros by the other values alone, of which it
		// makes a copy: only then is the table put together.
		sparse, err := sparseRows(ctx, d.ds.NodeFeatures, rows)
		if err != nil || !sparse {
			return err
		}
		table, err := wholeTable(ctx, rows)
		if err != nil {
			return err
		}
		rows, d.ds.NodeFeatures, d.rows = d.rows, table, nil
		return rows.Close()
	})
}

// sparseRows probes rows of a table like f, which it reads at once.
func sparseRows(ctx context.Context, f *graph.Features, rows features.Store) (bool, error) {
	var ids []uint32
	if _, err := compute.SparseProbe(f, func(_ []float32, i int) error {
		ids = append(ids, uint32(i))
		return nil
	}); err != nil || ids == nil {
		return false, err
	}
	l := rows.Layout()
	probed := l.NewTable(len(ids))
	if err := features.Read(ctx, rows, features.Request{IDs: ids, Dst: probed}); err != nil {
		return false, err
	}
	next := 0
	return compute.SparseProbe(f, func(row []float32, _ int) error {
		probed.Row(row, next)
		next++
		return nil
	})
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
