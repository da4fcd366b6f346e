package runtime

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
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
	p, err := training.OpenParts(dir)
	if err != nil {
		return nil, err
	}
	return &openSet{Parts: p, close: p.Close}, nil
}

// sampler readies the run's sampler to ask the pieces.
func (d *openSet) sampler(ctx context.Context, spec sampling.Spec, ds *graph.Dataset, seed uint64) (_ *sampling.Prepared, err error) {
	if d.owners, err = d.Owners(ctx, spec, seed); err != nil {
		return nil, err
	}
	return sampling.PrepareDivided(ctx, spec, ds, d.Common().Weighted, d.owners)
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
	switch undrawn := sampling.NotDrawn(d.Set()); {
	case undrawn != "":
		return fmt.Errorf("%w: nothing can be sampled of %s: %s", ErrConfig, c.Data.Path, undrawn)
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
		if d.ds, err = training.DatasetOf(ctx, d.set); err != nil || d.ds.NodeFeatures == nil {
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
	probed, err := features.Table(ctx, rows, ids)
	if err != nil {
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
	return features.Table(ctx, rows, graph.Consecutive(0, rows.Layout().Rows))
}
