package runtime

import (
	"context"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Every setting that changes the result is part of the identity, and a resume
// with another value of it is refused by name.
func TestEverySettingIsIdentified(t *testing.T) {
	t.Parallel()
	c := config()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 1
	trained(t, started(t, c))
	other := *small()
	other.Train, other.Fingerprint = other.Train[1:], ""
	for name, change := range map[string]func(*Config){
		"data was":               func(c *Config) { c.Data.Dataset = &other },
		"normalize-features was": func(c *Config) { c.Data.NormalizeFeatures = true },
		"seed was":               func(c *Config) { c.Training.Seed++ },
		"keep was none and is":   func(c *Config) { c.Training.Keep = "best" },
		"batch-size was":         func(c *Config) { c.Sampling.BatchSize++ },
		"micro-batches was":      func(c *Config) { c.Sampling.MicroBatches++ },

		`model was \S+ and is "gcn"`:             func(c *Config) { c.Model.Name = "gcn" },
		`layers was \S+ and is 3`:                func(c *Config) { c.Model.Layers, c.Sampling.Fanouts = 3, []int{4, 3, 2} },
		`hidden was \S+ and is 9`:                func(c *Config) { c.Model.Hidden = 9 },
		`dropout was \S+ and is 0\.4`:            func(c *Config) { c.Model.Dropout = 0.4 },
		`input-dropout was \S+ and is 0\.3`:      func(c *Config) { c.Model.InputDropout = 0.3 },
		`aggregation was \S+ and is "max"`:       func(c *Config) { c.Model.Aggregation = "max" },
		`norm was \S+ and is "layer"`:            func(c *Config) { c.Model.Norm = "layer" },
		`norm was \S+ and is "batch"`:            func(c *Config) { c.Model.Norm = "batch" },
		`activation was \S+ and is "elu"`:        func(c *Config) { c.Model.Activation = "elu" },
		`gcn-norm was \S+ and is "block"`:        func(c *Config) { c.Model.Name, c.Model.GCNNorm = "gcn", "block" },
		`train-eps was \S+ and is true`:          func(c *Config) { c.Model.Name, c.Model.TrainEps = "gin", true },
		`scale-sums was \S+ and is true`:         func(c *Config) { c.Model.Name, c.Model.ScaleSums = "gin", true },
		`weight-attention was \S+ and is true`:   func(c *Config) { c.Model.Name, c.Model.WeightAttention = "gat", true },
		`edge-dim was \S+ and is 3`:              func(c *Config) { c.Data.Dataset, c.Model.Name, c.Model.EdgeFeatures = withEdgeFeatures(), "gat", true },
		`decoder was \S+ and is 2`:               func(c *Config) { c.Model.DecoderLayers = 2 },
		`residual was \S+ and is true`:           func(c *Config) { c.Model.Residual = true },
		`jumping-knowledge was \S+ and is "cat"`: func(c *Config) { c.Model.JumpingKnowledge = "cat" },
		`heads was \S+ and is 2`:                 func(c *Config) { c.Model.Name, c.Model.Heads = "gat", 2 },
		`attention-dropout was \S+ and is 0\.1`:  func(c *Config) { c.Model.Name, c.Model.AttentionDropout = "gat", 0.1 },

		`name was \S+ and is "labor"`:    func(c *Config) { c.Sampling.Sampler = "labor" },
		`fanouts was \S+ and is \[4,2\]`: func(c *Config) { c.Sampling.Fanouts = []int{4, 2} },
		`replace was \S+ and is true`:    func(c *Config) { c.Sampling.Options = map[string]string{"replace": "true"} },
		`cache-period was \S+ and is 3`: func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Options = "gns", map[string]string{"cache-period": "3"}
		},
		`dependency was \S+ and is 2`: func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Options = "labor", map[string]string{"dependency": "2"}
		},
		`optimizer was \S+ and is "sgd"`: func(c *Config) { c.Training.Optimizer = "sgd" },

		`momentum was \S+ and is 0\.5`:        func(c *Config) { c.Training.Optimizer, c.Training.Momentum = "sgd", 0.5 },
		`lr was \S+ and is 0\.5`:              func(c *Config) { c.Training.LR = 0.5 },
		`weight-decay was \S+ and is 0\.5`:    func(c *Config) { c.Training.WeightDecay = 0.5 },
		`clip-norm was \S+ and is 0\.5`:       func(c *Config) { c.Training.ClipNorm = 0.5 },
		`schedule was \S+ and is "step"`:      func(c *Config) { c.Training.Schedule = "step" },
		`schedule-epochs was \S+ and is 3`:    func(c *Config) { c.Training.Schedule, c.Training.ScheduleEpochs = "step", 3 },
		`schedule-factor was \S+ and is 0\.3`: func(c *Config) { c.Training.Schedule, c.Training.ScheduleFactor = "step", 0.3 },
		`warmup was \S+ and is 1`:             func(c *Config) { c.Training.Schedule, c.Training.Warmup, c.Training.Epochs = "cosine", 1, 2 },
		`horizon was \S+ and is 7`:            func(c *Config) { c.Training.Schedule, c.Training.Epochs = "cosine", 7 },
		`loss was \S+ and is "focal"`:         func(c *Config) { c.Training.Loss = "focal" },
		`focal-gamma was \S+ and is 3`:        func(c *Config) { c.Training.Loss, c.Training.FocalGamma = "focal", 3 },
		`label-smoothing was \S+ and is 0\.1`: func(c *Config) { c.Training.LabelSmoothing = 0.1 },
		`class-weights was \S+ and is "bal`:   func(c *Config) { c.Training.ClassWeights = "balanced" },
		`eval-every was \S+ and is 2`:         func(c *Config) { c.Training.Schedule, c.Training.EvalEvery = "plateau", 2 },
	} {
		v := c
		v.Checkpoint.Resume = true
		change(&v)
		if err := run(context.Background(), started(t, v), nil); !errors.Is(err, ErrIdentity) || !regexp.MustCompile(name).MatchString(err.Error()) {
			t.Errorf("resumed with another setting, which should be named by %s: %v", name, err)
		}
	}
}

// Each field of an Identity alone makes another run of it; another kernel set
// may be let through.
func TestSame(t *testing.T) {
	r := started(t, config())
	id := r.identity
	if id.Data == "" || id.Precision == "" || id.Kernels != r.set.String() {
		t.Errorf("the identity is %+v", id)
	}
	if err := id.Same(id, false); err != nil {
		t.Error(err)
	}
	for i := range reflect.TypeFor[Identity]().NumField() {
		saved := id
		name := reflect.TypeFor[Identity]().Field(i).Name
		switch f := reflect.ValueOf(&saved).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("other")
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Int:
			f.SetInt(f.Int() + 1)
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Slice: // of names
			f.Set(reflect.Append(f, reflect.ValueOf("other")))
		case reflect.Struct:
			f.SetZero()
		default:
			t.Fatalf("%s is a %s, which this test cannot change", name, f.Kind())
		}
		if err := id.Same(saved, false); !errors.Is(err, ErrIdentity) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := id.Same(saved, true); (err == nil) != (name == "Kernels") {
			t.Errorf("another %s, with allow-other-kernels: %v", name, err)
		}
	}
}

// A byte that flips in a checkpoint is noticed, wherever it is.
func TestDamagedCheckpointIsPassedOver(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 2
	trained(t, started(t, c))
	files, err := checkpoint.List(c.Checkpoint.Dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("checkpoints %v, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	c.Checkpoint.Resume = true
	for _, at := range []int{0, 20, len(whole) / 2, len(whole) - 1} {
		b := append([]byte{}, whole...)
		b[at] ^= 4
		if err := os.WriteFile(files[0], b, 0o644); err != nil {
			t.Fatal(err)
		}
		err := run(context.Background(), started(t, c), func(e Event) {
			if e.Kind == EventStart && (e.Applied != int64(e.Batches) || !strings.Contains(e.Message, files[0])) {
				t.Errorf("byte %d of %d: went on with %+v", at, len(b), e)
			}
		})
		if err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}
