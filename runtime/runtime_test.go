package runtime

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/gnnactor/gnnactor/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a graph on which an epoch takes milliseconds.
var small = sync.OnceValue(func() *graph.Dataset {
	ds, err := graph.SBM(graph.SBMOptions{Nodes: 600, Classes: 4, AvgDegree: 8, Homophily: 0.7, FeatureDim: 12, Signal: 0.3, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 3})
	if err != nil {
		panic(err)
	}
	return ds
})

func config() Config {
	c := DefaultConfig()
	c.Dataset, c.Hidden, c.BatchSize, c.Epochs, c.Fanouts = small(), 8, 50, 3, []int{4, 3}
	return c
}

func started(t testing.TB, c Config) *Runtime {
	t.Helper()
	r, err := Start(c)
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
	random := rand.New(rand.NewPCG(7, 9))
	for _, base := range []struct {
		model, sampler string
		micro          int
	}{{"sage", "neighbor", 1}, {"gcn", "neighbor", 3}, {"gcn", "full", 1}, {"sage", "khop", 2}} {
		t.Run(base.model+"/"+base.sampler, func(t *testing.T) {
			c := config()
			c.Model, c.Sampler, c.MicroBatches = base.model, base.sampler, base.micro
			c.Threads, c.Samplers, c.Credits = 1, 1, 1
			r := started(t, c)
			trained(t, r)
			want := r.ParametersSHA256()
			for range 5 {
				v := c
				v.Threads, v.Samplers, v.Credits = 1+random.IntN(3), 1+random.IntN(5), 1+random.IntN(4)
				v.Trainers, v.EvalChunk = 1+random.IntN(base.micro), random.IntN(40)
				v.EvalEvery, v.LocalCodec = random.IntN(3), []string{"none", "msgpack"}[random.IntN(2)]
				r := started(t, v)
				trained(t, r)
				if got := r.ParametersSHA256(); got != want {
					t.Fatalf("threads %d, samplers %d, credits %d, trainers %d, codec %s: other bits", v.Threads, v.Samplers, v.Credits, v.Trainers, v.LocalCodec)
				}
			}
		})
	}
}

// Every sampler trains, to the same bits for any number of actors and through
// the codec.
func TestEverySampler(t *testing.T) {
	options := map[string]map[string]string{
		"node": {"budget": "150"}, "edge": {"budget": "150"}, "walk": {"roots": "30", "walk-length": "3"},
		"frontier": {"budget": "150", "frontier": "30", "normalization": "5"}, "cluster": {"clusters": "12", "per-batch": "3"},
		"gns": {"cache-fraction": "0.1"}, "lazy": {"recycle": "2"}, "pinsage": {"walks": "10", "walk-length": "3"},
	}
	for _, name := range Samplers() {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Sampler, c.SamplerOptions = name, options[name]
			if name == "ladies" || name == "fastgcn" {
				c.Fanouts = []int{100, 100}
			}
			if name == "full" { // one batch an epoch
				c.Epochs = 20
			}
			c.Samplers, c.Credits = 1, 1
			one := started(t, c)
			e := trained(t, one)
			if !(e.TestAccuracy > 0.3) { // of 4 classes
				t.Errorf("test accuracy %.3f after %d batches", e.TestAccuracy, e.Applied)
			}
			c.Samplers, c.Credits, c.LocalCodec, c.Threads = 4, 2, "msgpack", 1
			many := started(t, c)
			trained(t, many)
			if one.ParametersSHA256() != many.ParametersSHA256() {
				t.Error("4 samplers give other bits than 1")
			}
		})
	}
}

// Subgraphs without a training node count as steps and change nothing but the
// optimiser's moments; the run resumes to the same bits.
func TestBatchesWithoutLoss(t *testing.T) {
	ds := *small()
	ds.Train, ds.Fingerprint = ds.Train[:3], ""
	c := config()
	c.Dataset, c.BatchSize, c.Epochs = &ds, 1, 6
	c.Sampler, c.SamplerOptions = "cluster", map[string]string{"clusters": "60"}
	r := started(t, c)
	empty, steps := 0, 0
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep {
			if steps++; math.IsNaN(e.Loss) {
				empty++
			}
		}
	}
	if empty == 0 || steps != 18 {
		t.Fatalf("%d of %d subgraphs are without a training node; the test needs some", empty, steps)
	}
	c.Checkpoint, c.Resume = t.TempDir(), true
	for range 7 {
		for e, err := range started(t, c).Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStep && e.Batch == 1 {
				break
			}
		}
	}
	again := started(t, c)
	trained(t, again)
	if again.ParametersSHA256() != r.ParametersSHA256() {
		t.Error("resumed after subgraphs without a training node: other bits")
	}
}

func TestIdentityChangesBits(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*Config){
		"as is": func(*Config) {}, "seed": func(c *Config) { c.Seed++ }, "batch size": func(c *Config) { c.BatchSize = 51 },
		"fan-outs": func(c *Config) { c.Fanouts = []int{4, 4} }, "dropout": func(c *Config) { c.Dropout = 0.4 },
		"lr": func(c *Config) { c.LR *= 2 }, "decay": func(c *Config) { c.WeightDecay = 0 }, "model": func(c *Config) { c.Model = "gcn" },
		"normalize": func(c *Config) { c.NormalizeFeatures = true },
		"adamw":     func(c *Config) { c.Optimizer = "adamw" }, "sgd": func(c *Config) { c.Optimizer = "sgd" },
		"momentum": func(c *Config) { c.Optimizer, c.Momentum = "sgd", 0.5 }, "clipping": func(c *Config) { c.ClipNorm = 0.1 },
		"step": func(c *Config) { c.Schedule, c.ScheduleEpochs = "step", 1 }, "cosine": func(c *Config) { c.Schedule = "cosine" },
		"input dropout": func(c *Config) { c.InputDropout = 0.3 }, "max": func(c *Config) { c.Aggregation = "max" },
		"norm": func(c *Config) { c.Norm = "layer" }, "jumping": func(c *Config) { c.JumpingKnowledge = "cat" },
		"labor":            func(c *Config) { c.Sampler = "labor" },
		"with replacement": func(c *Config) { c.SamplerOptions = map[string]string{"replace": "true"} },
	} {
		c := config()
		change(&c)
		r := started(t, c)
		trained(t, r)
		if other, twice := seen[r.ParametersSHA256()]; twice {
			t.Errorf("%s and %s give the same parameters", name, other)
		}
		seen[r.ParametersSHA256()] = name
	}
}

// The state of a schedule, of early stopping and of each optimiser is in the
// checkpoint: a run that stops after every epoch ends at the bits of one that
// does not.
func TestResumeKeepsTheRecipe(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"sgd":      func(c *Config) { c.Optimizer, c.LR = "sgd", 0.1 },
		"adamw":    func(c *Config) { c.Optimizer = "adamw" },
		"plateau":  func(c *Config) { c.Schedule, c.ScheduleEpochs, c.LR = "plateau", 1, 0.2 },
		"cosine":   func(c *Config) { c.Schedule, c.Warmup = "cosine", 2 },
		"patience": func(c *Config) { c.Patience, c.LR = 2, 0.3 },
	} {
		c := config()
		c.Epochs = 8
		change(&c)
		r := started(t, c)
		done := trained(t, r)
		if name == "patience" && done.Applied == 8*int64(done.Batches) {
			t.Errorf("patience did not end the run before its last epoch")
		}
		c.Checkpoint, c.Resume = t.TempDir(), true
		for range 8 {
			one := started(t, c)
			for e, err := range one.Train(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == EventEpoch {
					break
				}
			}
		}
		again := started(t, c)
		if e := trained(t, again); again.ParametersSHA256() != r.ParametersSHA256() || e.Applied != done.Applied || e.TestAccuracy != done.TestAccuracy {
			t.Errorf("%s: resumed after each epoch: %d batches and other bits; want %d", name, e.Applied, done.Applied)
		}
	}
}

func TestSeveralLabelsTrain(t *testing.T) {
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
	c := config()
	c.Dataset, c.Epochs, c.Hidden = &ds, 20, 16
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

// Interrupted anywhere, and resumed with another plan, a run ends at the bits
// of one that was not.
func TestResume(t *testing.T) {
	c := config()
	c.MicroBatches = 2
	whole := started(t, c)
	done := trained(t, whole)
	want := whole.ParametersSHA256()
	for _, after := range []int64{1, 4, 8, 9, 13} {
		c := c
		c.Checkpoint = t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		r := started(t, c)
		var err error
		for e, er := range r.Train(ctx) {
			if err = er; e.Kind == EventStep && e.Applied >= after {
				cancel()
			}
		}
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted after %d batches: %v", after, err)
		}
		c.Resume, c.Samplers, c.Threads, c.Trainers = true, 3, 2, 2
		again := started(t, c)
		var last Event
		for e, err := range again.Train(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventStart && (!e.Resumed || !strings.HasPrefix(e.Message, "resumed after ")) {
				t.Errorf("the first event is %+v", e)
			}
			last = e
		}
		if again.ParametersSHA256() != want {
			t.Errorf("interrupted after %d batches: other bits", after)
		}
		if last.Applied != done.Applied || last.Loss != done.Loss || last.TestAccuracy != done.TestAccuracy {
			t.Errorf("interrupted after %d batches: ended with %+v, not %+v", after, last, done)
		}
	}
}

func TestLeavingTheLoopIsAnInterruption(t *testing.T) {
	c := config()
	c.Checkpoint = t.TempDir()
	r := started(t, c)
	for e := range r.Train(context.Background()) {
		if e.Kind == EventStep {
			break
		}
	}
	if files, err := checkpoints(c.Checkpoint); err != nil || len(files) != 1 {
		t.Errorf("checkpoints after leaving the loop: %v, %v", files, err)
	}
}

func TestResumeRefusals(t *testing.T) {
	c := config()
	c.Checkpoint, c.Epochs = t.TempDir(), 1
	trained(t, started(t, c))
	last := func(c Config) (Event, error) {
		r := started(t, c)
		var last Event
		for e, err := range r.Train(context.Background()) {
			if err != nil {
				return e, err
			}
			last = e
		}
		return last, nil
	}
	if _, err := last(c); !errors.Is(err, ErrConfig) {
		t.Errorf("a second run in the same directory: %v", err)
	}
	c.Resume = true
	other := c
	other.BatchSize = 60
	if _, err := last(other); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "batch-size was 50 and is 60") {
		t.Errorf("another batch size: %v", err)
	}
	more := c
	more.Epochs = 2
	if e, err := last(more); err != nil || e.Applied != 2*int64(e.Batches) {
		t.Errorf("more epochs: %+v, %v", e, err)
	}
	// The newest checkpoint is damaged: the one before serves.
	files, err := checkpoints(c.Checkpoint)
	if err != nil || len(files) != 2 {
		t.Fatalf("checkpoints %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	if e, err := last(more); err != nil || e.Applied != 2*int64(e.Batches) {
		t.Errorf("a damaged checkpoint: %+v, %v", e, err)
	}
	empty := c
	empty.Checkpoint = filepath.Join(t.TempDir(), "new")
	r := started(t, empty)
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStart && (e.Resumed || !strings.Contains(e.Message, "starting afresh")) {
			t.Errorf("resuming from nothing: %+v", e)
		}
	}
}

// Exact inference does not depend on how it is cut, and Embed returns the
// whole graph's rows bit for bit.
func TestInference(t *testing.T) {
	for _, model := range Models() {
		c := config()
		c.Model, c.Epochs = model, 1
		c.Fanouts = slices.Repeat([]int{4}, c.Blocks())
		r := started(t, c)
		trained(t, r)
		all := make([]uint32, small().Graph.NumNodes())
		for i := range all {
			all[i] = uint32(i)
		}
		whole, err := r.Embed(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "params.safetensors")
		if err := r.Save(file); err != nil {
			t.Fatal(err)
		}
		want, err := r.Evaluate(context.Background(), small().Test)
		if err != nil || want.Count != len(small().Test) {
			t.Fatalf("%+v, %v", want, err)
		}
		for _, chunk := range []int{1, 7, 100000} {
			c := c
			c.EvalChunk, c.Params, c.Threads = chunk, file, 1+chunk%2
			again := started(t, c)
			ids := []uint32{599, 3, 77, 4}
			e, err := again.Embed(context.Background(), ids)
			if err != nil {
				t.Fatal(err)
			}
			p, err := again.Predict(context.Background(), ids)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range ids {
				row := whole.Data[int(v)*whole.Cols : (int(v)+1)*whole.Cols]
				if !slices.Equal(e.Data[i*e.Cols:(i+1)*e.Cols], row) {
					t.Errorf("%s, chunk %d: node %d has another row alone than in the whole graph", model, chunk, v)
				}
				if p[i].Class != argmax(row) || !(p[i].Probability > 0.2 && p[i].Probability <= 1) {
					t.Errorf("%s: node %d is predicted as %+v from %v", model, v, p[i], row)
				}
			}
			if got, err := again.Evaluate(context.Background(), small().Test); err != nil || got != want {
				t.Errorf("%s, chunk %d: %+v, %v; want %+v", model, chunk, got, err, want)
			}
		}
	}
}

func TestServingWhileTraining(t *testing.T) {
	r := started(t, config())
	n := 0
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == EventStep && e.Batch == 1 {
			if _, err := r.Predict(context.Background(), []uint32{1, 2}); err != nil {
				t.Fatal(err)
			}
			for _, err := range r.Train(context.Background()) {
				if !errors.Is(err, ErrBusy) {
					t.Fatalf("a second Train: %v", err)
				}
			}
			n++
		}
	}
	if n != config().Epochs {
		t.Errorf("%d of %d epochs were served", n, config().Epochs)
	}
}

func TestBatches(t *testing.T) {
	c := config()
	want := map[uint32]int{}
	var order [2][]uint32
	for i, samplers := range []int{1, 4} {
		c.Samplers = samplers
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
	c.Dataset = &graph.Dataset{Name: "bare", Graph: small().Graph}
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
		conf.Dataset = &ds
		r, err := Start(conf)
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
	}
}

// One class, isolated nodes and a batch larger than the training set train.
func TestOddGraphsTrain(t *testing.T) {
	c := config()
	c.Dataset = &graph.Dataset{
		Name: "odd", Graph: &graph.Graph{Indptr: make([]int64, 11), Indices: []uint32{}},
		NodeFeatures: graph.NewFeatures(10, 2, make([]float32, 20)),
		Labels:       &graph.Labels{NumClasses: 1, Class: make([]int32, 10)},
		Train:        []uint32{0, 1, 2}, Test: []uint32{3},
	}
	c.BatchSize, c.MicroBatches = 1000, 8
	if e := trained(t, started(t, c)); e.TestAccuracy != 1 || !math.IsNaN(e.ValidAccuracy) {
		t.Errorf("%+v", e)
	}
}

func TestStopEndsEverything(t *testing.T) {
	c := config()
	c.Epochs = 1 << 20
	r, err := Start(c)
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
	c.Layers, c.LR, c.Fanouts, c.Sampler = 0, -1, []int{0}, "nobody"
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
	c.Hidden = 2_000_000_000 // would ask for all memory
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "hidden") {
		t.Errorf("a huge hidden width: %v", err)
	}
	c.Hidden = 8
	c.Fanouts = []int{10, 0}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "number 2 is 0") {
		t.Errorf("fan-out 0: %v", err)
	}
}
