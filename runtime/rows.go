package runtime

import (
	"context"
	"fmt"
	"reflect"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// borrowed is a store that its owner closes.
type borrowed struct{ features.Store }

func (borrowed) Close() error { return nil }

// useRows makes training read its rows from cfg.Rows. The data may then have
// features without their values: a table that says only what its rows are like.
func (d *openData) useRows(cfg *settings) error {
	l := cfg.Data.Rows.Layout()
	switch {
	case cfg.Data.NormalizeFeatures:
		return fmt.Errorf("%w: normalize-features: rows that come from elsewhere are not changed; normalise them where they lie", ErrConfig)
	case cfg.Memory.Features != "":
		return fmt.Errorf("%w: features: %q says where features lie in this process, but rows come from elsewhere; leave it out", ErrConfig, cfg.Memory.Features)
	case l.Rows != d.ds.Graph.NumNodes():
		return fmt.Errorf("%w: Rows: %d rows for %d nodes", ErrConfig, l.Rows, d.ds.Graph.NumNodes())
	}
	if f := d.ds.NodeFeatures; f != nil {
		if has := features.LayoutOf(f); !reflect.DeepEqual(has, l) {
			return fmt.Errorf("%w: Rows: rows of %s, but the data has %s", ErrConfig, &l, &has)
		}
	} else {
		copied := *d.ds
		copied.NodeFeatures = l.Absent(l.Rows)
		d.ds = &copied
	}
	d.rows = borrowed{cfg.Data.Rows}
	return nil
}

// absent reports whether f is a table without its values.
func absent(f *graph.Features) bool { return f != nil && f.Data == nil && f.Rows > 0 && f.Cols > 0 }

// readable returns the data with the values of all features, which are read if
// they lie elsewhere, and dropped with what is returned.
func (r *Runtime) readable(ctx context.Context) (*graph.Dataset, error) {
	ds := r.data.ds
	if !absent(ds.NodeFeatures) {
		return ds, nil
	}
	table, err := wholeTable(ctx, r.data.rows)
	if err != nil {
		return nil, fmt.Errorf("runtime: features for inference: %w", err)
	}
	copied := *ds
	copied.NodeFeatures = table
	return &copied, nil
}

// checkRows reports runs for which the rows cannot come from elsewhere.
func (r *Runtime) checkRows() error {
	switch {
	case r.cfg.Data.Rows == nil || r.data.ds.NodeFeatures == nil || r.cfg.Cluster.SamplesOnly:
		return nil
	case r.sampler.Spec().Temporal:
		return fmt.Errorf("%w: Rows: a temporal sampler's inference reads features where they lie", ErrConfig)
	case r.model != nil && r.model.SparseInput():
		return fmt.Errorf("%w: Rows: most feature values are zero, and nodes that have them compute with the others alone; keep the features on every node (leave out --shards)", ErrConfig)
	case r.cfg.Sampling.Sampler == "full":
		return fmt.Errorf("%w: Rows: sampler %s reads the whole table at once; keep the features on every node (leave out --shards)", ErrConfig, r.cfg.Sampling.Sampler)
	}
	return nil
}
