package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/scheduler"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// narrowBlocks is a store of a block model with few features.
func narrowBlocks(t *testing.T) string {
	t.Helper()
	dir, err := madeNarrowBlocks()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var madeNarrowBlocks = sync.OnceValues(func() (string, error) {
	ctx, dir := context.Background(), filepath.Join(leak.Dir(), "blocks", "store")
	ds, err := generate.SBM(ctx, generate.SBMOptions{Nodes: 9000, Classes: 8, AvgDegree: 6, Homophily: 0.6, FeatureDim: 12, Signal: 0.25, TrainFraction: 0.2, ValidFraction: 0.1, Seed: 11})
	if err == nil {
		err = os.Mkdir(filepath.Dir(dir), 0o755)
	}
	if err == nil {
		err = store.Create(ctx, dir, ds)
	}
	return dir, err
})

// Global batches over 1, 2, 3, 4 and 8 pieces, wherever edges lie, have the losses and accuracies of one process, with the same
// values dropped, in float32's error, which steps make larger; and what they learn is saved, and evaluated alike.
func TestDividedTrainsAsOneProcess(t *testing.T) {
	t.Parallel()
	over := func(edges string, n int) pieces.Options {
		return pieces.Options{Method: "contiguous", Pieces: n, Edges: edges}
	}
	t.Run("cora", func(t *testing.T) { // of 2,708 nodes: 8 pieces leave five without any
		trainsAsOneProcess(t, cora(t), over(pieces.EdgesAtTarget, 1), over(pieces.EdgesAtTarget, 8), over(pieces.EdgesOnGrid, 8), over(pieces.EdgesAtSource, 2))
	})
	t.Run("blocks", func(t *testing.T) {
		trainsAsOneProcess(t, narrowBlocks(t), over(pieces.EdgesAtTarget, 4), over(pieces.EdgesOnGrid, 4), over(pieces.EdgesAtSource, 3))
	})
}

func trainsAsOneProcess(t *testing.T, path string, cuts ...pieces.Options) {
	t.Helper()
	for _, model := range []struct{ name, norm string }{{"gcn", ""}, {"sage", ""}, {"gin", "batch"}, {"gat", "layer"}} {
		cfg := DefaultConfig()
		cfg.Data.Path, cfg.Model.Name, cfg.Model.Norm, cfg.Model.Hidden = path, model.name, model.norm, 16
		cfg.Sampling.Sampler, cfg.Sampling.Fanouts, cfg.Training.Epochs = "full", nil, 3
		if model.name == "gcn" {
			cfg.Training.Schedule = "cosine"
		}
		if model.name == "sage" {
			cfg.Training.LabelSmoothing, cfg.Training.ClassWeights = 0.1, "1=3"
		}
		var want []Event
		r := started(t, cfg)
		for e, err := range r.Train(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStep {
				want = append(want, e)
			}
		}
		valid, err := r.EvaluateAUC(t.Context(), r.Dataset().Valid)
		if err != nil {
			t.Fatal(err)
		}
		for _, cut := range cuts {
			t.Run(fmt.Sprintf("%s %d pieces, edges at %s", model.name, cut.Pieces, cut.Edges), func(t *testing.T) {
				d := divided(t, cfg, cut)
				at := 0
				err := d.Train(t.Context(), func(epoch int, loss, accuracy float64) error {
					e := want[at]
					if at++; epoch != e.Epoch || math.Abs(loss-e.Loss) > 1e-5*e.Loss || math.Abs(accuracy-e.TrainAccuracy) > 0.002 {
						t.Errorf("epoch %d: loss %v, accuracy %v; want epoch %d: %v, %v", epoch, loss, accuracy, e.Epoch, e.Loss, e.TrainAccuracy)
					}
					return nil
				})
				if err != nil || at != cfg.Training.Epochs {
					t.Fatalf("%d epochs, %v", at, err)
				}
				saved := filepath.Join(t.TempDir(), "model.safetensors")
				if err := d.Save(saved); err != nil {
					t.Fatal(err)
				}
				o, err := d.Infer(t.Context(), "", nil)
				if err != nil {
					t.Fatal(err)
				}
				m, err := o.Evaluate(t.Context(), 1)
				if err != nil || m.Count != valid.Count || math.Abs(m.Loss-valid.Loss) > 1e-4*valid.Loss || math.Abs(m.AUC-valid.AUC) > 1e-3 {
					t.Errorf("evaluation: %+v, %v; want %+v", m, err, valid)
				}
				again := cfg
				again.Model.Params = saved
				loaded := started(t, again)
				v, err := loaded.EvaluateAUC(t.Context(), loaded.Dataset().Valid)
				near := cut.Edges != pieces.EdgesAtTarget && v.Count == m.Count && math.Abs(v.Loss-m.Loss) < 1e-5*v.Loss && math.Abs(v.AUC-m.AUC) < 1e-4
				if err != nil || v != m && !near { // the very parameters, and exact inference, to the bit where edges lie with their targets
					t.Errorf("the saved model, over the whole: %+v, %v; over pieces %+v", v, err, m)
				}
			})
		}
	}
}

// cutOnce returns the directory of the set that o makes of the store in path, which it lies beside.
func cutOnce(path string, o pieces.Options) (string, error) {
	dir := filepath.Join(filepath.Dir(path), fmt.Sprintf("%+v", o))
	cut, _ := sets.LoadOrStore(dir, sync.OnceValue(func() error {
		s, err := store.Open(path)
		if err != nil {
			return err
		}
		_, err = pieces.Create(context.Background(), dir, s, o)
		return errors.Join(err, s.Close())
	}))
	return dir, cut.(func() error)()
}

var sets sync.Map // func() error of cutOnce, by the directory

func divided(t *testing.T, cfg Config, o pieces.Options) *Divided {
	t.Helper()
	var err error
	if cfg.Data.Path, err = cutOnce(cfg.Data.Path, o); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDivided(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Training that was stopped goes on from its checkpoint to the bits of one that was not, passes over a damaged one, and takes no other
// run's; its directory is not used again unless it is asked to go on.
func TestDividedTrainResumes(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Data.Path, cfg.Model.Name, cfg.Model.Norm, cfg.Training.Epochs = narrowBlocks(t), "gcn", "batch", 5
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts, cfg.Training.Schedule = "full", nil, "cosine"
	cut := pieces.Options{Method: "hash", Pieces: 3}
	var losses []float64
	keep := func(_ int, loss, _ float64) error { losses = append(losses, loss); return nil }
	whole := divided(t, cfg, cut)
	if err := whole.Train(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(losses)
	cfg.Checkpoint.Dir, cfg.Checkpoint.Keep = filepath.Join(t.TempDir(), "kept"), 2
	losses = nil
	enough := errors.New("enough")
	err := divided(t, cfg, cut).Train(t.Context(), func(epoch int, loss, accuracy float64) error {
		if keep(epoch, loss, accuracy); epoch == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if err := divided(t, cfg, cut).Train(t.Context(), keep); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "another run's") {
		t.Errorf("not resumed, in a directory in use: %v", err)
	}
	kept, err := checkpoint.List(cfg.Checkpoint.Dir)
	if err != nil || len(kept) != 2 {
		t.Fatalf("%q, %v", kept, err)
	}
	if err := os.Truncate(kept[0], 100); err != nil { // of epoch 2, which is made again
		t.Fatal(err)
	}
	cfg.Checkpoint.Resume = true
	losses = losses[:2]
	d := divided(t, cfg, cut)
	if err := d.Train(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if d.Resumed() != 2 || !slices.Equal(losses, want) || d.ParametersSHA256() != whole.ParametersSHA256() {
		t.Errorf("resumed after %d epochs: losses %v, want %v", d.Resumed(), losses, want)
	}
	if err := d.Train(t.Context(), keep); err != nil || d.Resumed() != 5 || len(losses) != 5 || d.ParametersSHA256() != whole.ParametersSHA256() {
		t.Errorf("what is done already: %v, %d epochs resumed, %d losses", err, d.Resumed(), len(losses))
	}
	other := cfg
	other.Training.LR *= 2
	if err := divided(t, other, cut).Train(t.Context(), keep); !errors.Is(err, ErrIdentity) {
		t.Errorf("another rate: %v", err)
	}
	if err := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 2}).Train(t.Context(), keep); !errors.Is(err, ErrIdentity) {
		t.Errorf("other pieces: %v", err)
	}
}

// What global batches over pieces do not have is refused by name, training ends with its context and what it tells, and the same
// set trains to the same bits again.
func TestDividedTrainRefuses(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Data.Path, cfg.Model.Name, cfg.Training.Epochs = narrowBlocks(t), "gcn", 2
	cfg.Sampling.Sampler, cfg.Sampling.Fanouts = "full", nil
	for want, change := range map[string]func(c *Config){
		"a sampler other than full": func(c *Config) { c.Sampling.Sampler = "khop" },
		"micro-batches":             func(c *Config) { c.Sampling.MicroBatches = 2 },
		"sync ssp":                  func(c *Config) { c.Training.Sync = SSP(2) },
		"inductive":                 func(c *Config) { c.Sampling.Inductive = true },
		"reorder":                   func(c *Config) { c.Sampling.Reorder = 2 },
		"samplers":                  func(c *Config) { c.Execution.Samplers = 2 },
		"credits":                   func(c *Config) { c.Execution.Credits = 2 },
		"sample-on":                 func(c *Config) { c.Execution.SampleOn = "cpu" },
		"trace":                     func(c *Config) { c.Execution.Trace = "trace.json" },
		"pinned-memory":             func(c *Config) { c.Memory.Pinned = "1MiB" },
		"loaders":                   func(c *Config) { c.Memory.Loaders = 2 },
		"shared-checkpoint":         func(c *Config) { c.Checkpoint = CheckpointConfig{Dir: "kept", Keep: 1, Resume: true, Shared: true} },
		"features":                  func(c *Config) { c.Memory.Features = "mmap" },
		"match":                     func(c *Config) { c.Memory.Match = "on" },
		"cache":                     func(c *Config) { c.Memory.Cache = "hot:1MiB" },
		"gather":                    func(c *Config) { c.Memory.Gather = "copied" },
		"patience":                  func(c *Config) { c.Training.Patience = 3 },
		"keep best":                 func(c *Config) { c.Training.Keep = "best" },
		"plateau":                   func(c *Config) { c.Training.Schedule = "plateau" },
		"balanced weights":          func(c *Config) { c.Training.ClassWeights = "balanced" },
	} {
		other := cfg
		change(&other)
		if err := divided(t, other, pieces.Options{Method: "hash", Pieces: 2}).Train(t.Context(), nil); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	several := cfg
	several.Sampling.MicroBatches, several.Execution.Samplers, several.Memory.Loaders = 2, 2, 2
	if bad := several.NotInPieces(); len(bad) != 3 {
		t.Errorf("three problems are told as %q", bad)
	}
	for _, scratch := range []string{"", t.TempDir()} {
		small := cfg
		small.Memory.Limit = "100KiB"
		d := divided(t, small, pieces.Options{Method: "hash", Pieces: 2})
		d.SpillTo(scratch)
		if err := d.Train(t.Context(), func(int, float64, float64) error {
			t.Errorf("scratch %q: what is evaluated in more memory than there may be was trained first", scratch)
			return nil
		}); !errors.Is(err, scheduler.ErrMemory) {
			t.Errorf("memory, scratch %q: %v", scratch, err)
		}
	}
	d := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 3})
	enough := errors.New("enough")
	if err := d.Train(t.Context(), func(int, float64, float64) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("told: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := d.Train(ctx, nil); !errors.Is(err, enough) {
		t.Errorf("a context that ended: %v", err)
	}
	var losses [2][]float64
	for k := range losses {
		d := divided(t, cfg, pieces.Options{Method: "hash", Pieces: 3})
		if err := d.Train(t.Context(), func(_ int, loss, _ float64) error { losses[k] = append(losses[k], loss); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if losses[0][1] != losses[1][1] || len(losses[0]) != 2 {
		t.Errorf("two trainings: %v", losses)
	}
}
