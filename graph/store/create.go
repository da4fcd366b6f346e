package store

import "github.com/gnnactor/gnnactor/graph"

// CreateOption changes what Create does.
type CreateOption func(*createOptions)

type createOptions struct{ overwrite bool }

// Overwrite lets Create replace a store that is there already. Anything else
// that is there is never replaced.
func Overwrite() CreateOption { return func(o *createOptions) { o.overwrite = true } }

// Create writes ds as a store in the new directory dir. The directory appears
// only when the store is complete and on disk; when Create fails, nothing is
// left behind. ds is checked first (Dataset.Validate) and not changed.
func Create(dir string, ds *graph.Dataset, opts ...CreateOption) error {
	if err := ds.Validate(); err != nil {
		return err
	}
	w, err := NewWriter(dir, opts...)
	if err != nil {
		return err
	}
	defer w.Abort() // unless it was committed, whatever happens, a panic too
	if err := graph.Guard(func() error { return w.putDataset(ds) }); err != nil {
		return err
	}
	return w.Commit()
}

func (w *Writer) putDataset(ds *graph.Dataset) error {
	w.SetName(ds.Name)
	w.describeLabels(ds.Graph.NumNodes(), ds)
	for a := range ds.Arrays() {
		if err := w.copyArray(a); err != nil {
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

func (w *Writer) copyArray(a graph.Array) error {
	out, err := w.Array(a.Name, a.DType, int(a.Cols))
	if err != nil {
		return err
	}
	defer out.Close()
	for p := range a.Chunks {
		if _, err := out.Write(p); err != nil {
			return err
		}
	}
	return out.Finish()
}
