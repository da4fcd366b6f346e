package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
)

// Save writes the current parameters to a safetensors file, with PyG's names and the
// model's Description, for OpenModel and Config.Model.Params. It writes atomically: path
// holds the old content or the whole new one. It waits for
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
	return saveModel(path, r.model, params, &r.cfg, r.data.ds.Recipe, r.log)
}

// saveModel writes parameters with what describes them.
func saveModel(path string, m *compute.Model, params []float32, cfg *settings, recipe []byte, log *slog.Logger) error {
	if err := m.Layout().CheckFinite(params); err != nil {
		log.Warn("the parameters that are saved are not all numbers, and will not load", "file", path, "because", err, "remedy", "train with a smaller learning rate or clip-norm")
	}
	meta, err := describeModel(m, cfg, recipe)
	if err != nil {
		return fmt.Errorf("runtime: save: %w", err)
	}
	return m.Save(path, params, meta)
}

// describeModel returns the metadata of a file of parameters: the description of their model and, unless it is nil, the recipe of
// the data.
func describeModel(m *compute.Model, cfg *settings, recipe []byte) (meta map[string]string, err error) {
	d := Description{Version: 1, Task: cfg.task(), Model: m.Spec(), Stages: cfg.rowStages(), MultiLabel: cfg.multi, NormalizeFeatures: cfg.Data.NormalizeFeatures}
	if d.Stages != nil {
		d.Version = 2
	}
	if d.MultiLabel || d.NormalizeFeatures {
		d.Version = 3
	}
	if cfg.Model.Task == taskRegression {
		d.Version, d.Target = 4, &cfg.target
	}
	about, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	meta = map[string]string{DescriptionKey: string(about)}
	if recipe == nil {
		return meta, nil
	}
	return meta, graph.Guard(func() error {
		meta[RecipeKey] = string(recipe)
		return nil
	})
}

// Load replaces the parameters by those of a safetensors file: one that Save
// wrote, or PyG. A damaged file is an error, as is one that describes another model or
// task, and a value that is NaN or infinite. While a run trains it returns ErrBusy.
func (r *Runtime) Load(ctx context.Context, path string) error {
	if !r.train.TryLock() {
		return ErrBusy
	}
	defer r.train.Unlock()
	return r.call(ctx, nil, func(ctx context.Context) error {
		m, err := OpenModel(ctx, path)
		if err != nil {
			return err
		}
		params, err := r.parameters(m)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.params = params
		r.mu.Unlock()
		r.start = ""
		return nil
	})
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
