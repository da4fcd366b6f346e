package training

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/sampling"
)

// whole returns a column of all nodes; nil: it is empty.
func whole[T int32 | uint32 | float32](ctx context.Context, d Parts, what string) ([]T, error) {
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
		return nil, fmt.Errorf("training: %s of %d nodes in pieces of %d", what, n, d.Set().NumNodes())
	}
	all := make([]T, n)
	for _, b := range parts {
		if _, err := binary.Decode(b, binary.LittleEndian, all[at:at+len(b)/4]); err != nil {
			return nil, fmt.Errorf("training: %w", err)
		}
		at += len(b) / 4
	}
	return all, nil
}

// DatasetOf returns what is known of the whole graph without a piece, with the nodes' labels.
func DatasetOf(ctx context.Context, d Parts) (*graph.Dataset, error) {
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
		ds.NodeFeatures = l.Absent(n)
	}
	switch {
	case !common.Labels:
	case common.Multi:
		ds.Labels = &graph.Labels{NumClasses: common.Classes}
		all, err := d.Column(ctx, ColumnLabels)
		if err != nil {
			return nil, err
		}
		ds.Labels.Multi = slices.Concat(all...)
		if len(ds.Labels.Multi) != n*common.Classes {
			return nil, fmt.Errorf("%w: %d labels of %d nodes with %d classes; divide the graph again", graph.ErrFormat, len(ds.Labels.Multi), n, common.Classes)
		}
	default:
		ds.Labels = &graph.Labels{NumClasses: common.Classes}
		if ds.Labels.Class, err = whole[int32](ctx, d, ColumnLabels); err != nil {
			return nil, err
		}
	}
	return ds, nil
}

// BindParts gives a model what it looks up of the graph's nodes and edges, in so many bytes; owners draw for who samples.
func BindParts(ctx context.Context, m *compute.Model, d Parts, owners sampling.Owners, ds *graph.Dataset) (bytes int64, err error) {
	f := new(compute.Facts)
	needs, norm := m.NeedsFacts()
	if needs {
		f.Degrees, err = whole[uint32](ctx, d, ColumnDegrees)
	}
	if norm && err == nil {
		f.InvSqrt, err = whole[float32](ctx, d, ColumnInvSqrt)
	}
	if norm && err == nil {
		f.Loops, err = whole[float32](ctx, d, ColumnLoops)
	}
	if err != nil {
		return 0, err
	}
	return 4 * int64(len(f.Degrees)+len(f.InvSqrt)+len(f.Loops)), m.BindElsewhere(f, rowsOfPieces{d, owners, ds})
}

// rowsOfPieces implements compute.RowSource.
type rowsOfPieces struct {
	d      Parts
	owners sampling.Owners
	ds     *graph.Dataset
}

// Rows implements compute.RowSource.
func (s rowsOfPieces) Rows(ctx context.Context, nodes []uint32, piece int, edges bool, use func(int, *graph.Block) error) error {
	p, err := sampling.PrepareDivided(ctx, sampling.Spec{Name: "khop", Layers: 1, EdgeIDs: edges}, s.ds, s.d.Common().Weighted, s.owners)
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
