package runtime

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every setting that changes the result is part of the identity, and a resume
// with another value of it is refused by name.
func TestEverySettingIsIdentified(t *testing.T) {
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

		`"model":"gcn"`:             func(c *Config) { c.Model.Name = "gcn" },
		`"layers":3`:                func(c *Config) { c.Model.Layers, c.Sampling.Fanouts = 3, []int{4, 3, 2} },
		`"hidden":9`:                func(c *Config) { c.Model.Hidden = 9 },
		`"dropout":0.4`:             func(c *Config) { c.Model.Dropout = 0.4 },
		`"input_dropout":0.3`:       func(c *Config) { c.Model.InputDropout = 0.3 },
		`"aggregation":"max"`:       func(c *Config) { c.Model.Aggregation = "max" },
		`"norm":"layer"`:            func(c *Config) { c.Model.Norm = "layer" },
		`"norm":"batch"`:            func(c *Config) { c.Model.Norm = "batch" },
		`"activation":"elu"`:        func(c *Config) { c.Model.Activation = "elu" },
		`"gcn_norm":"block"`:        func(c *Config) { c.Model.Name, c.Model.GCNNorm = "gcn", "block" },
		`"train_eps":true`:          func(c *Config) { c.Model.Name, c.Model.TrainEps = "gin", true },
		`"scale_sums":true`:         func(c *Config) { c.Model.Name, c.Model.ScaleSums = "gin", true },
		`"weight_attention":true`:   func(c *Config) { c.Model.Name, c.Model.WeightAttention = "gat", true },
		`"edge_dim":3`:              func(c *Config) { c.Data.Dataset, c.Model.Name, c.Model.EdgeFeatures = withEdgeFeatures(), "gat", true },
		`"decoder":2`:               func(c *Config) { c.Model.DecoderLayers = 2 },
		`"residual":true`:           func(c *Config) { c.Model.Residual = true },
		`"jumping_knowledge":"cat"`: func(c *Config) { c.Model.JumpingKnowledge = "cat" },
		`"heads":2`:                 func(c *Config) { c.Model.Name, c.Model.Heads = "gat", 2 },
		`"attention_dropout":0.1`:   func(c *Config) { c.Model.Name, c.Model.AttentionDropout = "gat", 0.1 },

		`"name":"labor"`:  func(c *Config) { c.Sampling.Sampler = "labor" },
		`"fanouts":[4,2]`: func(c *Config) { c.Sampling.Fanouts = []int{4, 2} },
		`"replace":true`:  func(c *Config) { c.Sampling.Options = map[string]string{"replace": "true"} },
		`"cache-period":3`: func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Options = "gns", map[string]string{"cache-period": "3"}
		},
		`"dependency":2`: func(c *Config) {
			c.Sampling.Sampler, c.Sampling.Options = "labor", map[string]string{"dependency": "2"}
		},
		`"optimizer":"sgd"`: func(c *Config) { c.Training.Optimizer = "sgd" },

		`"momentum":0.5`:        func(c *Config) { c.Training.Optimizer, c.Training.Momentum = "sgd", 0.5 },
		`"lr":0.5`:              func(c *Config) { c.Training.LR = 0.5 },
		`"weight_decay":0.5`:    func(c *Config) { c.Training.WeightDecay = 0.5 },
		`"clip_norm":0.5`:       func(c *Config) { c.Training.ClipNorm = 0.5 },
		`"schedule":"step"`:     func(c *Config) { c.Training.Schedule = "step" },
		`"schedule_epochs":3`:   func(c *Config) { c.Training.Schedule, c.Training.ScheduleEpochs = "step", 3 },
		`"schedule_factor":0.3`: func(c *Config) { c.Training.Schedule, c.Training.ScheduleFactor = "step", 0.3 },
		`"warmup":1`:            func(c *Config) { c.Training.Schedule, c.Training.Warmup, c.Training.Epochs = "cosine", 1, 2 },
		`"horizon":7`:           func(c *Config) { c.Training.Schedule, c.Training.Epochs = "cosine", 7 },
		`"loss":"focal"`:        func(c *Config) { c.Training.Loss = "focal" },
		`"focal_gamma":3`:       func(c *Config) { c.Training.Loss, c.Training.FocalGamma = "focal", 3 },
		`"label_smoothing":0.1`: func(c *Config) { c.Training.LabelSmoothing = 0.1 },
		`"class_weights":"bal`:  func(c *Config) { c.Training.ClassWeights = "balanced" },
		`"eval_every":2`:        func(c *Config) { c.Training.Schedule, c.Training.EvalEvery = "plateau", 2 },
	} {
		v := c
		v.Checkpoint.Resume = true
		change(&v)
		if err := run(context.Background(), started(t, v), nil); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), name) {
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
	if err := id.same(id, false); err != nil {
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
		if err := id.same(saved, false); !errors.Is(err, ErrIdentity) {
			t.Errorf("another %s: %v", name, err)
		}
		if err := id.same(saved, true); (err == nil) != (name == "Kernels") {
			t.Errorf("another %s, with allow-other-kernels: %v", name, err)
		}
	}
}

// A byte that flips in a checkpoint is noticed, wherever it is.
func TestDamagedCheckpointIsPassedOver(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Training.Epochs = t.TempDir(), 2
	trained(t, started(t, c))
	files, err := checkpoints(c.Checkpoint.Dir)
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
