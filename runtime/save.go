package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gnnactor/gnnactor/compute"
)

// SpecKey is the metadata key under which Save keeps the model's Spec, as
// JSON.
const SpecKey = "gnnactor.model"

// TaskKey is the metadata key of the task that the model was trained for; without
// it, the classes of nodes.
const TaskKey = "gnnactor.task"

// Saved is what a safetensors file of parameters says of itself.
type Saved struct {
	Spec *compute.Spec // of the model; nil: it does not say
	Task string        // that the model was trained for; empty: classes of nodes
	// Checked reports whether checksums told that the file is what was written.
	// Files that other programs write, and old ones, have none.
	Checked bool
}

// ReadSaved returns what a safetensors file of parameters says of itself.
func ReadSaved(path string) (Saved, error) {
	_, meta, err := compute.OpenSafetensors(path)
	if err != nil {
		return Saved{}, err
	}
	s := Saved{Task: meta[TaskKey]}
	_, s.Checked = meta[compute.ChecksumKey]
	if text, ok := meta[SpecKey]; ok {
		s.Spec = new(compute.Spec)
		if err := json.Unmarshal([]byte(text), s.Spec); err != nil {
			return Saved{}, fmt.Errorf("runtime: %s: the metadata %s cannot be read: %w", path, SpecKey, err)
		}
	}
	return s, nil
}

// Save writes the current parameters to a safetensors file, with PyG's names,
// atomically: path holds the old content or the whole new one. It waits for
// Verified; ctx ends the waiting, and not the writing.
func (r *Runtime) Save(ctx context.Context, path string) error {
	return r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err != nil {
			return err
		}
		if err := r.Verified(ctx); err != nil {
			return err
		}
		return r.save(path, params)
	})
}

func (r *Runtime) save(path string, params []float32) error {
	if err := r.model.Layout().CheckFinite(params); err != nil {
		r.log.Warn("the parameters that are saved are not all numbers, and will not load", "file", path, "because", err, "remedy", "train with a smaller learning rate or clip-norm")
	}
	spec, err := json.Marshal(r.model.Spec())
	if err != nil {
		return fmt.Errorf("runtime: save: %w", err)
	}
	metadata := map[string]string{SpecKey: string(spec)}
	if r.links != nil {
		metadata[TaskKey] = r.cfg.Task
	}
	return r.model.Save(path, params, metadata)
}

// Load replaces the parameters by those of a safetensors file: one that Save
// wrote, or PyG. A damaged file is an error, as is a value that is NaN or
// infinite; of one without checksums the log tells. While a run trains it
// returns ErrBusy. The file is read to its end, whatever becomes of ctx meanwhile; the
// parameters are then the old ones, if ctx has ended.
func (r *Runtime) Load(ctx context.Context, path string) error {
	if !r.train.TryLock() {
		return ErrBusy
	}
	defer r.train.Unlock()
	return r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.read(path)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		r.mu.Lock()
		r.params = params
		r.mu.Unlock()
		r.start = ""
		return nil
	})
}

// read returns the parameters of a safetensors file.
func (r *Runtime) read(path string) ([]float32, error) {
	if r.model == nil {
		return nil, r.noModel
	}
	params, meta, err := r.model.Load(path)
	if err != nil {
		return nil, err
	}
	if _, ok := meta[compute.ChecksumKey]; !ok {
		r.log.Warn("parameters without checksums: nothing tells whether they are what was written", "file", path)
	}
	return params, nil
}

// ParametersSHA256 returns, in hex, the hash over the name-sorted
// little-endian float32 data of the current parameters.
func (r *Runtime) ParametersSHA256(ctx context.Context) (sum string, err error) {
	err = r.call(ctx, nil, func(ctx context.Context) error {
		params, err := r.current(ctx)
		if err == nil {
			sum = r.model.Layout().SHA256(params)
		}
		return err
	})
	return sum, err
}
