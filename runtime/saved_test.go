package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// savedModel trains c for an epoch and returns the file of its parameters, and what it
// makes of some nodes.
func savedModel(t *testing.T, c Config) (file string, want *Embedding) {
	t.Helper()
	c.Training.Epochs, c.Sampling.Fanouts = 1, slices.Repeat([]int{4}, c.Blocks())
	r := started(t, c)
	trained(t, r)
	file = filepath.Join(t.TempDir(), "model.safetensors")
	if err := r.Save(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return file, embedded(t, r)
}

func embedded(t *testing.T, r *Runtime) *Embedding {
	t.Helper()
	e, err := r.Embed(t.Context(), []uint32{5, 0, 599})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// architectures are settings that differ from the default in what inference depends on.
var architectures = map[string]func(*Config){
	"gat": func(c *Config) {
		c.Model.Name, c.Model.Heads, c.Model.Activation, c.Model.Dropout = "gat", 4, "elu", 0.1
	},
	"gatv2": func(c *Config) {
		c.Model.Name, c.Model.Heads, c.Model.Norm, c.Model.Residual = "gatv2", 2, "layer", true
	},
	"gin":    func(c *Config) { c.Model.Name, c.Model.TrainEps, c.Model.Layers = "gin", true, 3 },
	"bare":   func(c *Config) { c.Model.Name, c.Model.Norm = "gin", "none" },
	"mixhop": func(c *Config) { c.Model.Name, c.Model.Hops, c.Model.Layers = "mixhop", 3, 1 },
	"gcn":    func(c *Config) { c.Model.Name, c.Model.JumpingKnowledge, c.Model.DecoderLayers = "gcn", "cat", 2 },
	"sage":   func(c *Config) { c.Model.Aggregation, c.Model.Combine, c.Model.Hidden = "max", "concat", 6 },
	"link":   func(c *Config) { c.Model.Task, c.Model.LinkDecoder = "link", "mlp" },
}

// A saved model opens by itself: the file and the data give the bits that were trained,
// whatever the model is. The default's settings with such a file are refused with what
// contradicts it.
func TestSavedModelOpensByItself(t *testing.T) {
	t.Parallel()
	for name, change := range architectures {
		t.Run(name, func(t *testing.T) {
			c := config()
			change(&c)
			file, want := savedModel(t, c)
			m, err := OpenModel(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := m.Description(); err != nil || d.Version != 1 || d.Task != c.task() || d.Model.Dropout != c.Model.Dropout || !m.Checked() {
				t.Errorf("it says %+v, %v", d, err)
			}
			conf, err := m.Config()
			if err != nil {
				t.Fatal(err)
			}
			conf.Data.Dataset = small()
			if got := embedded(t, started(t, conf)); !reflect.DeepEqual(got, want) {
				t.Errorf("nodes are %v, and were %v", got, want)
			}

			plain := DefaultConfig()
			plain.Data.Dataset, plain.Model.Params = small(), file
			if _, err := Start(t.Context(), plain); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "and the model's") {
				t.Errorf("with the default's settings: %v", err)
			}
			plain.Model.Hidden, plain.Sampling.Fanouts = c.Model.Hidden, slices.Repeat([]int{4}, c.Blocks())
			change(&plain)
			r := started(t, plain)
			if got := embedded(t, r); !reflect.DeepEqual(got, want) {
				t.Errorf("with all settings: %v, and were %v", got, want)
			}
		})
	}
}

// Every setting that contradicts a description is refused by its name; those that only
// training depends on may be any.
func TestContradictions(t *testing.T) {
	d := Description{Version: 1, Task: "node", Model: compute.Spec{Model: "gat", Layers: 2, Hidden: 8, InDim: 12, OutDim: 4}}
	c := DefaultConfig()
	d.Configure(&c)
	if err := d.Check(&c); err != nil {
		t.Fatalf("its own settings are refused: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"task":              func(c *Config) { c.Model.Task = "link" },
		"model":             func(c *Config) { c.Model.Name = "gatv2" },
		"layers":            func(c *Config) { c.Model.Layers = 3 },
		"hidden":            func(c *Config) { c.Model.Hidden = 16 },
		"aggregation":       func(c *Config) { c.Model.Aggregation = "max" },
		"combine":           func(c *Config) { c.Model.Combine = "concat" },
		"heads":             func(c *Config) { c.Model.Heads = 2 },
		"hops":              func(c *Config) { c.Model.Hops = 1 },
		"train-eps":         func(c *Config) { c.Model.TrainEps = true },
		"edge-features":     func(c *Config) { c.Model.EdgeFeatures = true },
		"activation":        func(c *Config) { c.Model.Activation = "elu" },
		"norm":              func(c *Config) { c.Model.Norm = "batch" },
		"residual":          func(c *Config) { c.Model.Residual = true },
		"jumping-knowledge": func(c *Config) { c.Model.JumpingKnowledge = "max" },
		"decoder-layers":    func(c *Config) { c.Model.DecoderLayers = 1 },
		"link-decoder":      func(c *Config) { c.Model.LinkDecoder = "mlp" },
	} {
		c := c
		change(&c)
		if err := d.Check(&c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.Model.Dropout, c.Model.InputDropout, c.Model.AttentionDropout, c.Model.GCNNorm, c.Model.ScaleSums, c.Model.WeightAttention = 0.1, 0.2, 0.3, "block", true, true
	c.Model.Heads, c.Model.Activation, c.Model.Norm, c.Model.Task, c.Sampling.Sampler = 1, "relu", "", "", "full"
	if err := d.Check(&c); err != nil {
		t.Errorf("what changes nothing is refused: %v", err)
	}
}

// withMetadata writes the tensors of a file anew.
func withMetadata(t *testing.T, file string, meta map[string]string) string {
	t.Helper()
	tensors, _, err := compute.OpenSafetensors(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := compute.WriteSafetensors(&b, tensors, meta); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.safetensors")
	if err := os.WriteFile(other, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

// Files without a description load with the settings, which the log says; those of before
// there were versions describe their model, too; what is of a later version, for other
// data, or no description is refused.
func TestDescriptions(t *testing.T) {
	c := config()
	c.Model.Name, c.Model.Heads = "gat", 2
	file, want := savedModel(t, c)
	m, err := OpenModel(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := m.Description()
	spec, _ := json.Marshal(d.Model)

	old, err := OpenModel(t.Context(), withMetadata(t, file, map[string]string{SpecKey: string(spec)}))
	if err != nil {
		t.Fatal(err)
	}
	if said, err := old.Description(); err != nil || said.Version != 0 || said.Task != "node" || said.Model != d.Model {
		t.Errorf("an old file says %+v, %v", said, err)
	}

	none := withMetadata(t, file, nil)
	m, err = OpenModel(t.Context(), none)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Config(); !errors.Is(err, ErrNoDescription) || !strings.Contains(err.Error(), none) {
		t.Errorf("a file without a description: %v", err)
	}
	var log bytes.Buffer
	c.Model.Params, c.Logger = none, slog.New(slog.NewTextHandler(&log, nil))
	r := started(t, c)
	if got := embedded(t, r); !reflect.DeepEqual(got, want) || !strings.Contains(log.String(), "without a description") {
		t.Errorf("nodes are %v, and were %v; the log: %s", got, want, &log)
	}
	for why, meta := range map[string]string{
		"version 5":       `{"version":5,"task":"node","model":` + string(spec) + `}`,
		"unknown field":   `{"version":1,"recipe":{},"task":"node","model":` + string(spec) + `}`,
		"of the model":    `{"version":1,"task":"node","model":` + strings.Replace(string(spec), "{", `{"wings":2,`, 1) + `}`,
		"a later version": `{"version":99,"how":[]}`,
	} {
		if _, err := OpenModel(t.Context(), withMetadata(t, file, map[string]string{DescriptionKey: meta})); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", why, err)
		}
	}
	for _, meta := range []string{
		"", "null", "7", `{"version":0,"task":"node","model":` + string(spec) + `}`, `{"task":"node","model":` + string(spec) + `}`,
		`{"version":1,"task":"both","model":` + string(spec) + `}`, `{"version":1,"task":"node","model":{}}`, `{"version":1}`,
		`{"version":1,"task":"node","model":` + strings.Replace(string(spec), `"layers":2`, `"layers":1000000000`, 1) + `}`,
		`{"version":1,"task":"node","model":` + string(spec) + `} {}`,
	} {
		if _, err := OpenModel(t.Context(), withMetadata(t, file, map[string]string{DescriptionKey: meta})); !errors.Is(err, compute.ErrSafetensors) {
			t.Errorf("%s: %v", meta, err)
		}
	}
	conf := DefaultConfig() // the built-in graph has other features
	d.Configure(&conf)
	conf.Model.Params = file
	if _, err := Start(t.Context(), conf); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "number of features") {
		t.Errorf("on other data: %v", err)
	}
	c.Model.Params, c.Model.Heads, c.Logger = "", 1, nil
	if err := started(t, c).Load(t.Context(), file); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "heads is 1, and the model's 2") {
		t.Errorf("Load: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupttest.ErrEnough)
	if _, err := OpenModel(ctx, file); !errors.Is(err, interrupttest.ErrEnough) {
		t.Errorf("interrupted: %v", err)
	}
}

// Whatever a file says of its model, it is refused or gives settings that can be checked.
func FuzzDescription(f *testing.F) {
	f.Add(`{"version":1,"task":"node","model":{"model":"gat","layers":2,"hidden":8,"in_dim":12,"out_dim":4,"heads":2}}`, false)
	f.Add(`{"model":"mixhop","layers":256,"hidden":1,"in_dim":1,"out_dim":1,"hops":256}`, true)
	f.Add(`{"version":2}`, false)
	f.Fuzz(func(t *testing.T, text string, old bool) {
		key := DescriptionKey
		if old {
			key = SpecKey
		}
		d, err := describe(map[string]string{key: text})
		if err != nil {
			if !errors.Is(err, compute.ErrSafetensors) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		m := &Model{about: d}
		c, err := m.Config()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(&c); err != nil && !d.Model.NoLoops && d.Model.Norm != "none" {
			t.Errorf("its own settings are refused: %v", err)
		}
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := describe(map[string]string{DescriptionKey: string(b)}); !old && (err != nil || !reflect.DeepEqual(again, d)) {
			t.Errorf("%s is read as %+v, %v", b, again, err)
		}
	})
}
