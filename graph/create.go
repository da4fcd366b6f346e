package graph

// CreateOption changes what Create does.
type CreateOption func(*createOptions)

type createOptions struct{ overwrite bool }

// Overwrite lets Create replace a store that is there already. Anything else
// that is there is never replaced.
func Overwrite() CreateOption { return func(o *createOptions) { o.overwrite = true } }

// Create writes ds as a store in the new directory dir. The directory appears
// only when the store is complete and on disk; when Create fails, nothing is
// left behind. ds is checked first (Dataset.Validate) and not changed.
func Create(dir string, ds *Dataset, opts ...CreateOption) error {
	var o createOptions
	for _, f := range opts {
		f(&o)
	}
	if err := ds.Validate(); err != nil {
		return err
	}
	w, err := newStoreWriter(dir, o.overwrite)
	if err != nil {
		return err
	}
	done := false
	defer func() { // whatever happens, a panic too
		if !done {
			w.abort()
		}
	}()
	if err := Guard(func() error { return w.writeDataset(ds) }); err != nil {
		return err
	}
	err = w.commit()
	done = err == nil
	return err
}

func (w *storeWriter) writeDataset(ds *Dataset) error {
	w.m.Name = ds.Name
	w.m.NumNodes, w.m.NumEdges = int64(ds.Graph.NumNodes()), ds.Graph.NumEdges()
	w.m.SplitLabels = ds.splitLabelsSum()
	if ds.Labels != nil {
		w.m.NumClasses = int64(ds.Labels.NumClasses)
	}
	err := ds.eachArray(func(name string, elem element, _, cols int64, chunks func(func([]byte) error) error) error {
		a, err := w.array(name, elem, cols)
		if err != nil {
			return err
		}
		defer a.close()
		err = chunks(func(p []byte) error {
			_, err := a.Write(p)
			return err
		})
		if err != nil {
			return err
		}
		return a.finish()
	})
	for i := 0; i < len(ds.Partitions) && err == nil; i++ {
		err = w.putPartition(&ds.Partitions[i])
	}
	return err
}
