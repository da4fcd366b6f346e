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

// SavedTask returns the task that Save put into a safetensors file.
func SavedTask(path string) (string, error) {
	_, meta, err := compute.OpenSafetensors(path)
	return meta[TaskKey], err
}

// Save writes the current parameters to a safetensors file, with PyG's names,
// atomically: path holds the old content or the whole new one.
func (r *Runtime) Save(path string) error {
	ctx, end, err := r.begin(context.Background())
	if err != nil {
		return err
	}
	defer end()
	params, err := r.current(ctx)
	if err != nil {
		return err
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
// wrote, or PyG. While a run trains it returns ErrBusy.
func (r *Runtime) Load(path string) error {
	if r.model == nil {
		return r.noModel
	}
	if !r.train.TryLock() {
		return ErrBusy
	}
	defer r.train.Unlock()
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if stopped {
		return ErrStopped
	}
	params, _, err := r.model.Load(path)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.params = params
	r.mu.Unlock()
	r.start = ""
	return nil
}

// ParametersSHA256 returns, in hex, the hash over the name-sorted
// little-endian float32 data of the current parameters; "" without a model.
func (r *Runtime) ParametersSHA256() string {
	params, err := r.current(context.Background())
	if err != nil {
		return ""
	}
	return r.model.Layout().SHA256(params)
}

// SavedSpec returns the Spec that Save put into a safetensors file.
func SavedSpec(path string) (compute.Spec, error) {
	var spec compute.Spec
	_, meta, err := compute.OpenSafetensors(path)
	if err != nil {
		return spec, err
	}
	text, ok := meta[SpecKey]
	if !ok {
		return spec, fmt.Errorf("runtime: %s does not say which model it belongs to; name model, layers and hidden", path)
	}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, fmt.Errorf("runtime: %s: the metadata %s cannot be read: %w", path, SpecKey, err)
	}
	return spec, nil
}
