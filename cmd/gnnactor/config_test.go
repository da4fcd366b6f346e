package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/runtime"
)

func writeTemp(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// savedParams returns a file that says it belongs to a GCN of 3 layers of 24.
func savedParams(t *testing.T) string {
	t.Helper()
	spec, err := json.Marshal(compute.Spec{Model: "gcn", Layers: 3, Hidden: 24, InDim: 4, OutDim: 2})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = compute.WriteSafetensors(&b, []compute.RawTensor{compute.Float32Tensor("x", []int{1}, []float32{1})}, map[string]string{runtime.SpecKey: string(spec)})
	if err != nil {
		t.Fatal(err)
	}
	return writeTemp(t, "model.safetensors", b.String())
}

// Flags win over the environment, it over the file, it over defaults.
func TestPrecedence(t *testing.T) {
	const file = "batch-size: 1\nepochs: 1\nhidden: 1\n"
	env := []string{"GNNACTOR_BATCH_SIZE=2", "GNNACTOR_EPOCHS=2", "GNNACTOR_LR=2", "PATH=/bin"}
	cfg, said, err := loadConfig(t, []string{"--batch-size", "3"}, env, file)
	if err != nil {
		t.Fatal(err)
	}
	def := runtime.DefaultConfig()
	if cfg.Sampling.BatchSize != 3 || cfg.Training.Epochs != 2 || cfg.Model.Hidden != 1 || cfg.Training.LR != 2 || cfg.Model.Dropout != def.Model.Dropout {
		t.Errorf("got %+v", cfg)
	}
	if said != "" {
		t.Errorf("said %q", said)
	}
}

// A flag that repeats the default still wins over the file.
func TestFlagAtDefaultWins(t *testing.T) {
	cfg, _, err := loadConfig(t, []string{"--hidden=64"}, nil, "hidden: 8")
	if err != nil || cfg.Model.Hidden != 64 {
		t.Errorf("hidden is %d, %v; want 64", cfg.Model.Hidden, err)
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	name := writeTemp(t, "c.yaml", "hidden: 9")
	cfg, said, err := loadConfig(t, nil, []string{"GNNACTOR_CONFIG=" + name}, "")
	if err != nil || cfg.Model.Hidden != 9 || said != "" {
		t.Errorf("hidden is %d, %v, said %q; want 9", cfg.Model.Hidden, err, said)
	}
}

func TestUnknownEnvironmentIsNamed(t *testing.T) {
	_, said, err := loadConfig(t, nil, []string{"GNNACTOR_BATCHSIZE=7", "GNNACTOR_SIMD=go", "GNNACTOR_LR="}, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "gnnactor: ignoring environment variable GNNACTOR_BATCHSIZE: there is no such setting\n"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        []string
		want       string
	}{
		{"unknown key", "hidden: 8\nbatchsize: 7\n", nil, "line 2: batchsize: there is no such setting"},
		{"two unknown keys", "a: 8\nb: 7\n", nil, "line 1: a: there is no such setting; line 2: b: there is no such setting"},
		{"a field that is no setting", "dataset: x\n", nil, "dataset: there is no such setting"},
		{"wrong types", "hidden: many\nfanouts: 5\nlr: [1]\nseed: -1\nresume: 3\n", nil, "line 1: str `many`: must be a whole number; " +
			"line 2: int `5`: must be a list of whole numbers, like [15, 10, 5]; line 3: seq: must be a number; " +
			"line 4: int `-1`: must be a whole number, 0 or more; line 5: int `3`: must be true or false"},
		{"a broken number", "hidden: 8.5\n", nil, "hidden: 8.5: must be a whole number"},
		{"a broken number in a list", "fanouts: [8, 1.5]\n", nil, "fanouts: [8 1.5]: must be a whole number"},
		{"no YAML", "hidden: [1\n", nil, "line 1"},
		{"two documents", "hidden: 1\n---\nhidden: 2\n", nil, "more than one YAML document"},
		{"repeated key", "hidden: 1\nhidden: 2\n", nil, "already defined"},
		{"no mapping", "- 1\n", nil, "config file"},
		{"env: no number", "", []string{"GNNACTOR_BATCH_SIZE=abc"}, `environment variable GNNACTOR_BATCH_SIZE="abc": must be a whole number`},
		{"env: negative", "", []string{"GNNACTOR_SEED=-1"}, "0 or more"},
		{"env: no list", "", []string{"GNNACTOR_FANOUTS=1,,2"}, "with commas between"},
		{"env: no truth", "", []string{"GNNACTOR_RESUME=perhaps"}, "true or false"},
		{"env: no way to train together", "", []string{"GNNACTOR_SYNC=async"}, `GNNACTOR_SYNC="async": sync: "async" is neither sync nor ssp:N`},
		{"no way to train together", "sync: ssp\n", nil, `sync: "ssp" is neither sync nor ssp:N`},
		{"unknown format", "format: papyrus", nil, `format: "papyrus" is not one of`},
		{"missing file", "", []string{"GNNACTOR_CONFIG=/does/not/exist.yaml"}, "config file: open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := loadConfig(t, nil, c.env, c.file)
			var usage *usageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a usage error with %q", err, c.want)
			}
		})
	}
}

func TestEmptyConfigFile(t *testing.T) {
	for _, text := range []string{" ", "# nothing\n", "---\n"} {
		cfg, _, err := loadConfig(t, nil, nil, text)
		if def := runtime.DefaultConfig(); err != nil || cfg.Model.Hidden != def.Model.Hidden {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// One of --layers and --fanouts settles the other, and that is said.
func TestLayersAndFanouts(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		file    string
		layers  int
		fanouts []int
		said    string
	}{
		{"neither", nil, "", 2, []int{10, 10}, ""},
		{"fan-outs", []string{"--fanouts=15,10,5"}, "", 3, []int{15, 10, 5}, "layers: 3, one per fan-out"},
		{"layers", []string{"--layers=3"}, "", 3, []int{10, 10, 10}, "fanouts: 10 for each of 3 layers"},
		{"both", []string{"--layers=1", "--fanouts=4"}, "", 1, []int{4}, ""},
		{"both, at odds", []string{"--layers=1", "--fanouts=4,5"}, "", 1, []int{4, 5}, ""}, // Validate refuses it
		{"fan-outs in the file", nil, "fanouts: [3]", 1, []int{3}, "layers: 1, one per fan-out"},
		{"no sampling", []string{"--layers=3", "--sampler=full"}, "", 3, []int{10, 10}, ""},
		{"layers 0", []string{"--layers=0"}, "", 0, []int{10, 10}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, said, err := loadConfig(t, c.args, nil, c.file)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Model.Layers != c.layers || !slices.Equal(cfg.Sampling.Fanouts, c.fanouts) {
				t.Errorf("layers %d, fan-outs %v; want %d, %v", cfg.Model.Layers, cfg.Sampling.Fanouts, c.layers, c.fanouts)
			}
			if !strings.Contains(said, c.said) || (c.said == "") != (said == "") {
				t.Errorf("said %q, want %q", said, c.said)
			}
		})
	}
}

// The file of parameters gives the model's shape, where nothing else does.
func TestShapeFromParams(t *testing.T) {
	file := savedParams(t)
	cfg, said, err := loadConfig(t, []string{"--params", file}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Model.Name != "gcn" || cfg.Model.Layers != 3 || cfg.Model.Hidden != 24 || len(cfg.Sampling.Fanouts) != 3 {
		t.Errorf("got %s, %d layers of %d, fan-outs %v", cfg.Model.Name, cfg.Model.Layers, cfg.Model.Hidden, cfg.Sampling.Fanouts)
	}
	if !strings.Contains(said, file) {
		t.Errorf("said %q, want the file named", said)
	}
	var usage *usageError
	for _, said := range [][]string{{"--hidden=5", "--model=sage"}, {"--hidden=24", "--model=sage", "--layers=3"}, {"--task=link"}} {
		if _, _, err := loadConfig(t, append(said, "--params", file), nil, "hidden: 5\n"); !errors.As(err, &usage) || !strings.Contains(err.Error(), "and the model's") || !strings.Contains(err.Error(), file) {
			t.Errorf("%v contradicts the file: %v", said, err)
		}
	}
	if cfg, _, err = loadConfig(t, []string{"--params", file, "--hidden=24", "--dropout=0.1", "--heads=1"}, nil, ""); err != nil || cfg.Model.Dropout != 0.1 {
		t.Errorf("what contradicts nothing: %v, dropout %v", err, cfg.Model.Dropout)
	}
	bare := writeTemp(t, "bare.safetensors", "\x3e\x00\x00\x00\x00\x00\x00\x00"+`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}        `+"\x00\x00\x00\x00")
	if _, _, err = loadConfig(t, []string{"--params", bare}, nil, ""); !errors.Is(err, runtime.ErrNoDescription) || !strings.Contains(err.Error(), "--hidden") {
		t.Errorf("a file that describes no model: %v", err)
	}
	if cfg, said, err = loadConfig(t, []string{"--params", bare, "--model=gat", "--layers=2", "--hidden=8"}, nil, ""); err != nil || cfg.Model.Name != "gat" || !strings.Contains(said, "does not say which model") {
		t.Errorf("a file that describes no model, and flags that do: %+v, %v, said %q", cfg, err, said)
	}
	if _, _, err = loadConfig(t, []string{"--params", filepath.Join(t.TempDir(), "none")}, nil, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want a file that does not exist", err)
	}
}
