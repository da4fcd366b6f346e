package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/scheduler"
)

// openData is a dataset with what has to be undone when it is closed.
type openData struct {
	ds     *graph.Dataset
	store  *store.Store
	set    *openSet     // a graph in pieces; store is nil
	remove func() error // removes the directory that data was imported to; nil: there is none
	mapped bool         // the arrays lie in mapped files

	file   features.File  // where the node features lie; zero: in memory
	copied bool           // rows is of a copy in memory, beside the table
	free   func() error   // the features' memory; nil: they have none of their own
	rows   features.Store // where training reads rows; nil: the table itself

	limit scheduler.Limit // of this process's memory
}

// openDataset finds the data that cfg names: a dataset in memory, the built-in
// one, a store, or a directory to import.
func openDataset(ctx context.Context, cfg *settings) (*openData, error) {
	d := &openData{limit: cfg.limit}
	switch {
	case cfg.Data.Dataset != nil:
		if err := cfg.Data.Dataset.Validate(ctx); err != nil {
			return nil, fault.Explain(err) // it may lie in a store
		}
		copied := *cfg.Data.Dataset
		d.ds = &copied
	case cfg.Data.Path == "":
		d.ds = generate.Builtin()
	case cfg.Data.Format == "" && pieces.IsSet(cfg.Data.Path):
		if err := d.openSet(ctx, cfg); err != nil {
			return nil, errors.Join(err, d.close())
		}
	default:
		recipe, err := cfg.Model.Saved.madeBy()
		if err != nil {
			return nil, err
		}
		if err := d.openPath(ctx, cfg.Data.Path, importer.Options{Format: cfg.Data.Format, Recipe: recipe}, cfg.Parts(), cfg.Data.Rows != nil || cfg.Cluster.SamplesOnly); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), d.close())
	}
	if d.ds.Fingerprint == "" {
		var err error
		if d.ds.Fingerprint, err = d.ds.ContentHash(ctx); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	if cfg.Cluster.Away && !d.ds.Graph.Away() {
		d.ds = cfg.sizesOf(d.ds)
	}
	if d.store != nil {
		if path, at, ok := d.store.NodeFeaturesFile(); ok {
			d.file = features.File{Path: path, Offset: at}
		}
	}
	if err := d.checkFeatureCopies(cfg); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if cfg.Data.NormalizeFeatures && d.ds.NodeFeatures != nil && !cfg.Cluster.SamplesOnly {
		copied := *d.ds // the caller's, or the store's, stays as it is
		var err error
		if copied.NodeFeatures, err = copied.NodeFeatures.Normalized(ctx); err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.ds, d.file = &copied, features.File{}
	}
	var err error
	switch {
	case cfg.Data.Rows != nil:
		err = d.useRows(cfg)
	case cfg.Cluster.SamplesOnly:
	case d.rows != nil: // a partition set's
	default:
		err = d.openRows(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openPath opens some parts of path, or of what is imported from it, with the values of the
// nodes' features, unless those may lie elsewhere and are not here.
func (d *openData) openPath(ctx context.Context, path string, o importer.Options, parts store.Part, elsewhere bool) error {
	if o.Format == "" {
		var err error
		if o.Format, err = importer.DetectFormat(path); err != nil {
			return err
		}
	}
	dir := path
	if o.Format != "store" {
		temp, remove, err := importDir()
		if err != nil {
			return fmt.Errorf("runtime: no place to import %s to; set TMPDIR, or run `gnnactor import` first: %w", path, err)
		}
		d.remove = remove
		dir = filepath.Join(temp, "store")
		if err := importer.Import(ctx, path, dir, o); err != nil {
			return err
		}
	}
	s, err := store.OpenPart(dir, parts|store.NodeValues)
	if elsewhere && errors.Is(err, os.ErrNotExist) {
		s, err = store.OpenPart(dir, parts)
	}
	if err != nil {
		return err
	}
	d.store, d.ds, d.mapped = s, s.Dataset(), true
	return s.CheckSplits()
}

// checked is err, of what read the data; nil only if no file of it was shortened.
func (d *openData) checked(err error) error {
	for _, s := range d.stores() {
		if err == nil {
			err = s.CheckFiles()
		}
	}
	return err
}

// stores are those whose files the data lies in.
func (d *openData) stores() []*store.Store {
	switch {
	case d.set != nil:
		return d.set.Stores()
	case d.store != nil:
		return []*store.Store{d.store}
	}
	return nil
}

// lacks says what an older version left out of the store, if anything.
func (d *openData) lacks() string {
	for _, s := range d.stores() {
		if lacks := s.Lacks(); lacks != "" {
			return lacks
		}
	}
	return ""
}

func (d *openData) close() error {
	var err error
	if d.rows != nil {
		err = d.rows.Close()
	}
	if d.free != nil {
		err = errors.Join(err, d.free())
	}
	if d.set != nil {
		err = errors.Join(err, d.set.close())
	}
	if d.store != nil {
		err = errors.Join(err, d.store.Close())
	}
	if d.remove != nil {
		err = errors.Join(err, d.remove())
	}
	return err
}
