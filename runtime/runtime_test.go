package runtime

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/drawn"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/training"
)

func TestMain(m *testing.M) {
	leak.Beside(4) // they wait for the disk
	leak.Main(m)
}

// small is a graph on which an epoch takes milliseconds.
var small = sync.OnceValue(func() *graph.Dataset {
	ds, err := generate.SBM(context.Background(), generate.SBMOptions{Nodes: 600, Classes: 4, AvgDegree: 8, Homophily: 0.7, FeatureDim: 12, Signal: 0.3, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 3})
	if err != nil {
		panic(err)
	}
	return ds
})

func config() Config {
	c := DefaultConfig()
	c.Data.Dataset, c.Model.Hidden, c.Sampling.BatchSize, c.Training.Epochs, c.Sampling.Fanouts = small(), 8, 50, 3, []int{4, 3}
	return c
}

func started(t testing.TB, c Config) *Runtime {
	t.Helper()
	r, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// sumOf returns the hash of r's parameters.
func sumOf(t testing.TB, r *Runtime) string {
	t.Helper()
	sum, err := r.ParametersSHA256(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// trained trains to the end and returns the last event.
func trained(t testing.TB, r *Runtime) Event {
	t.Helper()
	var last Event
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	if last.Kind != EventDone {
		t.Fatalf("the last event is %+v", last)
	}
	return last
}

// Metamorphic: nothing under Execution changes the parameters.
func TestExecutionDoesNotChangeBits(t *testing.T) {
	random := drawn.Cases(t)
	for _, base := range []struct {
		model, sampler string
		micro          int
	}{{"sage", "neighbor", 1}, {"gcn", "neighbor", 3}, {"gcn", "full", 1}, {"sage", "khop", 2}} {
		t.Run(base.model+"/"+base.sampler, func(t *testing.T) {
			c := config()
			c.Model.Name, c.Sampling.Sampler, c.Sampling.MicroBatches = base.model, base.sampler, base.micro
			c.Execution.Threads, c.Execution.Samplers, c.Execution.Credits = 1, 1, 1
			r := started(t, c)
			trained(t, r)
			want := sumOf(t, r)
			for range 5 {
				v := c
				v.Execution.Threads, v.Execution.Samplers, v.Execution.Credits = 1+random.IntN(3), 1+random.IntN(5), 1+random.IntN(4)
				v.Execution.Trainers, v.Memory.EvalChunk = 1+random.IntN(base.micro), random.IntN(40)
				v.Training.EvalEvery = random.IntN(3)
				r := started(t, v)
				trained(t, r)
				if got := sumOf(t, r); got != want {
					t.Fatalf("threads %d, samplers %d, credits %d, trainers %d: other bits", v.Execution.Threads, v.Execution.Samplers, v.Execution.Credits, v.Execution.Trainers)
				}
			}
		})
	}
}

// samplerOptions are what samplers need beside the defaults, by their names.
var samplerOptions = map[string]map[string]string{
	"node": {"budget": "150"}, "edge": {"budget": "150"}, "walk": {"roots": "30", "walk-length": "3"},
	"frontier": {"budget": "150", "frontier": "30", "normalization": "5"}, "cluster": {"clusters": "12", "per-batch": "3"},
	"gns": {"cache-fraction": "0.1"}, "lazy": {"recycle": "2"}, "pinsage": {"walks": "10", "walk-length": "3"},
}

// Every sampler trains, to the same bits for any number of actors.
func TestEverySampler(t *testing.T) {
	t.Parallel()
	for _, name := range Samplers() {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Sampling.Sampler, c.Sampling.Options = name, samplerOptions[name]
			if name == "ladies" || name == "fastgcn" {
				c.Sampling.Fanouts = []int{100, 100}
			}
			if name == "full" { // one batch an epoch
				c.Training.Epochs = 20
			}
			c.Execution.Samplers, c.Execution.Credits = 1, 1
			one := started(t, c)
			e := trained(t, one)
			if !(e.TestAccuracy > 0.3) { // of 4 classes
				t.Errorf("test accuracy %.3f after %d batches", e.TestAccuracy, e.Applied)
			}
			c.Execution.Samplers, c.Execution.Credits, c.Execution.Threads = 4, 2, 1
			many := started(t, c)
			trained(t, many)
			if sumOf(t, one) != sumOf(t, many) {
				t.Error("4 samplers give other bits than 1")
			}
		})
	}
}

func TestIdentityChangesBits(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*Config){
		"as is": func(*Config) {}, "seed": func(c *Config) { c.Training.Seed++ }, "batch size": func(c *Config) { c.Sampling.BatchSize = 51 },
		"fan-outs": func(c *Config) { c.Sampling.Fanouts = []int{4, 4} }, "dropout": func(c *Config) { c.Model.Dropout = 0.4 },
		"lr": func(c *Config) { c.Training.LR *= 2 }, "decay": func(c *Config) { c.Training.WeightDecay = 0 }, "model": func(c *Config) { c.Model.Name = "gcn" },
		"normalize": func(c *Config) { c.Data.NormalizeFeatures = true },
		"adamw":     func(c *Config) { c.Training.Optimizer = "adamw" }, "sgd": func(c *Config) { c.Training.Optimizer = "sgd" },
		"momentum": func(c *Config) { c.Training.Optimizer, c.Training.Momentum = "sgd", 0.5 }, "clipping": func(c *Config) { c.Training.ClipNorm = 0.1 },
		"step": func(c *Config) { c.Training.Schedule, c.Training.ScheduleEpochs = "step", 1 }, "cosine": func(c *Config) { c.Training.Schedule = "cosine" },
		"input dropout": func(c *Config) { c.Model.InputDropout = 0.3 }, "max": func(c *Config) { c.Model.Aggregation = "max" },
		"norm": func(c *Config) { c.Model.Norm = "layer" }, "jumping": func(c *Config) { c.Model.JumpingKnowledge = "cat" },
		"labor":            func(c *Config) { c.Sampling.Sampler = "labor" },
		"with replacement": func(c *Config) { c.Sampling.Options = map[string]string{"replace": "true"} },
	} {
		c := config()
		change(&c)
		r := started(t, c)
		trained(t, r)
		if other, twice := seen[sumOf(t, r)]; twice {
			t.Errorf("%s and %s give the same parameters", name, other)
		}
		seen[sumOf(t, r)] = name
	}
}

// labelled is small with several labels a node.
func labelled() *graph.Dataset {
	ds := *small()
	n, k := ds.Graph.NumNodes(), ds.Labels.NumClasses
	multi := make([]uint8, n*k)
	for v, class := range ds.Labels.Class {
		multi[v*k+int(class)] = 1
		if class < 2 { // classes 0 and 1 also share a label
			multi[v*k+k-1] = 1
		}
	}
	ds.Labels, ds.Fingerprint = &graph.Labels{NumClasses: k, Multi: multi}, ""
	return &ds
}

func TestSeveralLabelsTrain(t *testing.T) {
	c := config()
	c.Data.Dataset, c.Training.Epochs, c.Model.Hidden = labelled(), 20, 16
	r := started(t, c)
	base, err := r.BaselineAccuracy(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if e := trained(t, r); !(e.TestAccuracy > base+0.05) {
		t.Errorf("micro-F1 is %.3f with the graph and %.3f without", e.TestAccuracy, base)
	}
	for b, err := range r.Batches(context.Background(), BatchesOptions{}) {
		if err != nil || b.Labels != nil {
			t.Fatalf("labels %v, %v", b.Labels, err)
		}
	}
}

func TestBatches(t *testing.T) {
	c := config()
	want := map[uint32]int{}
	var order [2][]uint32
	for i, samplers := range []int{1, 4} {
		c.Execution.Samplers = samplers
		r := started(t, c)
		for b, err := range r.Batches(context.Background(), BatchesOptions{Epochs: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			if len(b.X) != b.NumInputs()*b.NumFeatures || len(b.Labels) != len(b.Seeds) {
				t.Fatalf("%v: %d features, %d labels for %d inputs, %d seeds", b.ID, len(b.X), len(b.Labels), b.NumInputs(), len(b.Seeds))
			}
			row := make([]float32, b.NumFeatures)
			for j, v := range b.Inputs() {
				small().NodeFeatures.Row(row, int(v))
				if !slices.Equal(row, b.X[j*b.NumFeatures:(j+1)*b.NumFeatures]) {
					t.Fatalf("%v: row %d is not node %d's", b.ID, j, v)
				}
			}
			for j, v := range b.Seeds {
				if b.Labels[j] != small().Labels.Class[v] {
					t.Fatalf("%v: the label of node %d is %d", b.ID, v, b.Labels[j])
				}
				want[v]++
			}
			order[i] = append(order[i], b.Inputs()...)
		}
	}
	if !slices.Equal(order[0], order[1]) {
		t.Error("4 samplers deliver other batches than 1")
	}
	for _, v := range small().Train {
		if want[v] != 4 {
			t.Errorf("node %d came %d times in 2 epochs, twice", v, want[v])
		}
	}
}

func TestBatchesWithoutFeaturesOrLabels(t *testing.T) {
	c := config()
	c.Data.Dataset = &graph.Dataset{Name: "bare", Graph: small().Graph}
	r := started(t, c)
	n := 0
	for b, err := range r.Batches(context.Background(), BatchesOptions{Nodes: []uint32{5, 6, 7}}) {
		if err != nil || b.X != nil || b.Labels != nil || len(b.Seeds) != 3 {
			t.Fatalf("%+v, %v", b, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d batches", n)
	}
	for _, err := range r.Batches(context.Background(), BatchesOptions{}) {
		if err == nil {
			t.Error("an empty training set makes batches")
		}
	}
	for _, err := range r.Train(context.Background()) {
		if !errors.Is(err, ErrNoModel) {
			t.Errorf("training without features: %v", err)
		}
	}
}

func TestUnhappyTraining(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*graph.Dataset)
		want   string
	}{
		"empty training set": {func(d *graph.Dataset) { d.Train = nil }, "training set"},
		"unlabelled": {func(d *graph.Dataset) {
			d.Labels = &graph.Labels{NumClasses: 4, Class: slices.Repeat([]int32{graph.Unlabeled}, 600)}
		}, "label"},
		"NaN feature": {func(d *graph.Dataset) {
			x := make([]float32, 600*12)
			for i := range x {
				x[i] = float32(math.NaN())
			}
			d.NodeFeatures = graph.NewFeatures(600, 12, x)
		}, "NaN"},
	} {
		conf := config()
		ds := *small()
		ds.Fingerprint = ""
		c.change(&ds)
		conf.Data.Dataset = &ds
		conf.Execution.Trace = filepath.Join(t.TempDir(), "trace.json")
		r, err := Start(context.Background(), conf)
		if err == nil {
			for _, err = range r.Train(context.Background()) {
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(conf.Execution.Trace); err == nil {
			t.Errorf("%s: there is a trace of nothing", name)
		}
	}
	conf := config()
	conf.Execution.Trace = filepath.Join(t.TempDir(), "trace.json")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e := range started(t, conf).Train(ctx) {
		if e.Kind == EventStep {
			cancel()
		}
	}
	if _, err := os.Stat(conf.Execution.Trace); err != nil {
		t.Errorf("the trace of a run that was interrupted: %v", err)
	}
}

// One class, isolated nodes and a batch larger than the training set train.
func TestOddGraphsTrain(t *testing.T) {
	c := config()
	c.Data.Dataset = &graph.Dataset{
		Name: "odd", Graph: &graph.Graph{Indptr: make([]int64, 11), Indices: []uint32{}},
		NodeFeatures: graph.NewFeatures(10, 2, make([]float32, 20)),
		Labels:       &graph.Labels{NumClasses: 1, Class: make([]int32, 10)},
		Train:        []uint32{0, 1, 2}, Test: []uint32{3},
	}
	c.Sampling.BatchSize, c.Sampling.MicroBatches = 1000, 8
	if e := trained(t, started(t, c)); e.TestAccuracy != 1 || !math.IsNaN(e.ValidAccuracy) {
		t.Errorf("%+v", e)
	}
}

func TestStopEndsEverything(t *testing.T) {
	c := config()
	c.Training.Epochs = 1 << 20
	r, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	ended := make(chan error)
	go func() {
		var last error
		for e, err := range r.Train(context.Background()) {
			if err == nil && e.Kind == EventStart {
				close(began)
			}
			last = err
		}
		ended <- last
	}()
	<-began
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrStopped) {
		t.Errorf("training ended with %v", err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := r.Embed(context.Background(), nil); !errors.Is(err, ErrStopped) {
		t.Errorf("Embed after Stop: %v", err)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	c := DefaultConfig()
	c.Model.Layers, c.Training.LR, c.Sampling.Fanouts, c.Sampling.Sampler = 0, -1, []int{0}, "nobody"
	err := c.Validate()
	for _, want := range []string{"layers", "lr", "sampler"} {
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	c = DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Model.Hidden = 2_000_000_000 // would ask for all memory
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "hidden") {
		t.Errorf("a huge hidden width: %v", err)
	}
	c.Model.Hidden = 8
	c.Sampling.Fanouts = []int{10, 0}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "number 2 is 0") {
		t.Errorf("fan-out 0: %v", err)
	}
	c.Sampling.Fanouts, c.Sampling.BatchSize = []int{10, 10}, 0
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "batch-size: 0") || strings.Contains(err.Error(), "micro-batches") {
		t.Errorf("batch-size 0: %v; want no problem of micro-batches", err)
	}
	for want, change := range map[string]func(c *Config){
		"micro-batches: 600 are more than":                                            func(c *Config) { c.Sampling.MicroBatches = 600 },
		"micro-batches: 0 is not in":                                                  func(c *Config) { c.Sampling.BatchSize, c.Sampling.MicroBatches = 0, 0 },
		"neighbor does not read cache-by, budget":                                     func(c *Config) { c.Sampling.Options = map[string]string{"budget": "5", "cache-by": "degree"} },
		"layers is set by a setting of its own":                                       func(c *Config) { c.Sampling.Options = map[string]string{"layers": "3"} },
		"bogus=5: there is no such option; neighbor has weighted, replace, temporal":  func(c *Config) { c.Sampling.Options = map[string]string{"bogus": "5"} },
		"bogus=5: there is no such option; full has none":                             func(c *Config) { c.Sampling.Sampler, c.Sampling.Options = "full", map[string]string{"bogus": "5"} },
		"roots=x: it takes a whole number, at least 1, like roots=3000":               func(c *Config) { c.Sampling.Sampler, c.Sampling.Options = "walk", map[string]string{"roots": "x"} },
		"restart=x: it takes a probability, at least 0 and below 1, like restart=0.5": func(c *Config) { c.Sampling.Sampler, c.Sampling.Options = "pinsage", map[string]string{"restart": "x"} },
		"replace=7: it takes true or false, like replace=true":                        func(c *Config) { c.Sampling.Options = map[string]string{"replace": "7"} },
		"rise for 50 epochs of 10":                                                    func(c *Config) { c.Training.Schedule, c.Training.Warmup, c.Training.Epochs = "cosine", 50, 10 },
		"only the cosine schedule":                                                    func(c *Config) { c.Training.Warmup = 2 },
	} {
		c := DefaultConfig()
		c.Training.LR = -1
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "lr") {
			t.Errorf("error is %v, want one that names lr and says %q", err, want)
		}
	}
}

// What a run is at when its events come, however its steps are made.
func TestState(t *testing.T) {
	for _, sync := range []Sync{{}, SSP(1)} {
		c := config()
		c.Training.Sync, c.Training.Epochs = sync, 2
		r := started(t, c)
		want := map[EventKind]training.State{EventStart: training.Opening, EventStep: training.Stepping, EventTune: training.Stepping, EventEpoch: training.Ending, EventDone: training.Finishing}
		for e, err := range r.Train(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if got := r.State(); got != want[e.Kind] {
				t.Errorf("%v: at event %d of epoch %d it is %v, not %v", sync, e.Kind, e.Epoch, got, want[e.Kind])
			}
		}
		if got := r.State(); got != training.Idle {
			t.Errorf("%v: afterwards it is %v", sync, got)
		}
	}
}
