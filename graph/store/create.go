package store

import (
	"context"

	"github.com/gnnactor/gnnactor/graph"
)

// CreateOption changes what Create does.
type CreateOption func(*createOptions)

type createOptions struct{ overwrite bool }

// Overwrite lets Create replace a store that is there already. Anything else
// that is there is never replaced.
func Overwrite() CreateOption { return func(o *createOptions) { o.overwrite = true } }

// Create writes ds as a store in the new directory dir. The directory appears
// only when the store is complete and on disk; when Create fails, nothing is
// left behind. ds is checked first (Dataset.Validate) and not changed. When ctx ends
// first, the error wraps its cause.
func Create(ctx context.Context, dir string, ds *graph.Dataset, opts ...CreateOption) error {
	if err := ds.Validate(ctx); err != nil {
		return err
	}
	w, err := NewWriter(dir, opts...)
	if err != nil {
		return err
	}
	defer w.Abort() // unless it was committed, whatever happens, a panic too
	if err := graph.Guard(func() error { return w.putDataset(ctx, ds) }); err != nil {
		return err
	}
	return w.Commit(ctx)
}

func (w *Writer) putDataset(ctx context.Context, ds *graph.Dataset) error {
	w.SetName(ds.Name)
	w.describeLabels(ds.Graph.NumNodes(), ds)
	for a := range ds.Arrays() {
		if err := w.copyArray(ctx, a); err != nil {
			return err
		}
	}
	for i := range ds.Partitions {
		if err := w.PutPartition(&ds.Partitions[i]); err != nil {
			return err
		}
	}
	return nil
}

// copiedAtOnce is how many bytes are written between two questions to a context.
const copiedAtOnce = 1 << 20

func (w *Writer) copyArray(ctx context.Context, a graph.Array) error {
	out, err := w.Array(a.Name, a.DType, int(a.Cols))
	if err != nil {
		return err
	}
	defer out.Close()
	for p := range a.Chunks {
		for len(p) > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k := min(len(p), copiedAtOnce)
			if _, err := out.Write(p[:k]); err != nil {
				return err
			}
			p = p[k:]
		}
	}
	return out.Finish()
}
