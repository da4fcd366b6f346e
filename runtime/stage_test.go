package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
)

// processing is a Processor that is a function.
type processing func(ctx context.Context, b *StageBatch) error

func (f processing) Process(ctx context.Context, b *StageBatch) error { return f(ctx, b) }

// stageOf is a stage that does f.
func stageOf(name string, after Place, f processing) Stage {
	return Stage{Name: name, Version: "1", After: after, New: func(*graph.Dataset) (Processor, error) { return f, nil }}
}

// Stages that change batches and rows, see package runtimetest.
func thinned() Stage {
	return stageOf("thinned", AfterSample, func(_ context.Context, b *StageBatch) error {
		runtimetest.Thin(b.Batch, b.Key)
		return nil
	})
}

func bent() Stage {
	return stageOf("bent", AfterLoad, func(_ context.Context, b *StageBatch) error {
		runtimetest.Bend(b.X, b.Nodes)
		return nil
	})
}

func noisy() Stage {
	return stageOf("noisy", AfterLoad, func(_ context.Context, b *StageBatch) error {
		if b.Batch != nil { // in training
			runtimetest.AddNoise(b.X, b.Key)
		}
		return nil
	})
}

// stagedSum trains c and returns the hash of its parameters.
func stagedSum(t *testing.T, c Config) string {
	t.Helper()
	r := started(t, c)
	trained(t, r)
	return sumOf(t, r)
}

// Metamorphic: with stages after sample and after load, the same bits for any number of
// samplers, trainers and credits, through a slab, and reordered; and the
// data is what it was.
func TestStageBits(t *testing.T) {
	before := hashOf(t, small())
	for _, name := range []string{"neighbor", "cluster", "full", "lazy", "walk"} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Sampling.Sampler, c.Sampling.Options = name, samplerOptions[name]
			c.Execution.Samplers, c.Execution.Credits, c.Execution.Threads = 1, 1, 1
			c.Stages = []Stage{noisy(), thinned(), bent()}
			if name == "neighbor" {
				c.Sampling.MicroBatches = 3
			}
			want := stagedSum(t, c)
			plain := c
			plain.Stages = nil
			if stagedSum(t, plain) == want {
				t.Error("the stages change nothing")
			}
			c.Execution.Samplers, c.Execution.Credits, c.Execution.Threads = 3, 3, 2
			c.Execution.Trainers = c.Sampling.MicroBatches
			if stagedSum(t, c) != want {
				t.Error("3 samplers, and as many trainers as micro-batches: other bits")
			}
			if name == "full" {
				return
			}
			c.Memory.Match, c.Memory.Loaders = "on", 2
			if stagedSum(t, c) != want {
				t.Error("through a slab: other bits")
			}
		})
	}
	if hashOf(t, small()) != before {
		t.Error("the stages changed the data")
	}
}

// A reordered run with stages has the same bits for any number of samplers, and others
// than one that keeps its order.
func TestStageBitsReordered(t *testing.T) {
	c := config()
	c.Sampling.Reorder, c.Sampling.MicroBatches, c.Stages = 3, 2, []Stage{thinned(), bent()}
	want := stagedSum(t, c)
	c.Execution.Samplers, c.Execution.Trainers, c.Memory.Match = 3, 2, "on"
	if stagedSum(t, c) != want {
		t.Error("3 samplers and a slab: other bits")
	}
}

// Stages that change nothing leave a run the bits that it has without them.
func TestIdleStages(t *testing.T) {
	for _, name := range Samplers() {
		c := config()
		c.Sampling.Sampler, c.Sampling.Options, c.Training.Epochs = name, samplerOptions[name], 2
		if name == "ladies" || name == "fastgcn" {
			c.Sampling.Fanouts = []int{100, 100}
		}
		want := stagedSum(t, c)
		idle := func(context.Context, *StageBatch) error { return nil }
		c.Stages = []Stage{stageOf("a", AfterSample, idle), stageOf("b", AfterLoad, idle), stageOf("c", AfterLoad, idle), stageOf("d", AfterSample, idle)}
		if stagedSum(t, c) != want {
			t.Errorf("%s: other bits", name)
		}
	}
}

// A stage after load trains and infers as on data whose rows were changed before.
func TestStageAfterLoadIsChangedData(t *testing.T) {
	ds := *small()
	f := ds.NodeFeatures
	x := make([]float32, f.Rows*f.Cols)
	nodes := make([]uint32, f.Rows)
	for i := range f.Rows {
		f.Row(x[i*f.Cols:], i)
		nodes[i] = uint32(i)
	}
	s := bent()
	p, err := s.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Process(t.Context(), &StageBatch{Nodes: nodes, X: x, NumFeatures: f.Cols}); err != nil {
		t.Fatal(err)
	}
	ds.NodeFeatures = graph.NewFeatures(f.Rows, f.Cols, x)
	for _, model := range []string{"sage", "gat", "gcn"} {
		c := config()
		c.Model.Name = model
		c.Stages = []Stage{s}
		r := started(t, c)
		got := trained(t, r)
		c.Data.Dataset, c.Stages = &ds, nil
		other := started(t, c)
		want := trained(t, other)
		if sumOf(t, r) != sumOf(t, other) || got.TestAccuracy != want.TestAccuracy || got.Loss != want.Loss {
			t.Errorf("%s: %v, and on changed data %v", model, got, want)
		}
		for _, ids := range [][]uint32{{5}, {7, 3, 3, 599}, nodes} {
			a, err := r.Embed(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			b, err := other.Embed(t.Context(), ids)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Data, b.Data) {
				t.Errorf("%s: %d embeddings differ", model, len(ids))
			}
		}
		a, err := r.BaselineAccuracy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := other.BaselineAccuracy(t.Context()); err != nil || a != b {
			t.Errorf("%s: baseline %v, on changed data %v, %v", model, a, b, err)
		}
	}
}

// Batches go through the stages: what is thinned out is not there, and rows are changed,
// unless they are not wanted.
func TestStagesOfBatches(t *testing.T) {
	c := config()
	whole := started(t, c)
	c.Stages = []Stage{thinned(), bent()}
	r := started(t, c)
	f := small().NodeFeatures
	row := make([]float32, f.Cols)
	var edges, kept, seeds, keptSeeds int
	for b, err := range whole.Batches(t.Context(), BatchesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		edges, seeds = edges+b.NumEdges(), seeds+len(b.Seeds)
	}
	for b, err := range r.Batches(t.Context(), BatchesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		kept, keptSeeds = kept+b.NumEdges(), keptSeeds+len(b.Seeds)
		for i, v := range b.Inputs() {
			f.Row(row, int(v))
			for j, x := range row {
				if got, want := b.X[i*f.Cols+j], x*x-0.25*float32(v%7); got != want {
					t.Fatalf("%v: row of node %d has %v, want %v", b.ID, v, got, want)
				}
			}
		}
	}
	if share := float64(kept) / float64(edges); share < 0.6 || share > 0.73 { // 2/3 of some 5000: 10 standard deviations
		t.Errorf("%d edges of %d are left", kept, edges)
	}
	if share := float64(keptSeeds) / float64(seeds); share < 0.65 || share > 0.95 {
		t.Errorf("%d seeds of %d are left", keptSeeds, seeds)
	}
	for b, err := range r.Batches(t.Context(), BatchesOptions{NoCopy: true}) {
		if err != nil || b.X != nil {
			t.Fatalf("rows that are not wanted: %v, %v", b.X, err)
		}
	}
}

// A batch of which a stage leaves no seed makes a step of gradient zero.
func TestStageWithoutSeeds(t *testing.T) {
	c := config()
	c.Sampling.MicroBatches = 2
	c.Stages = []Stage{stageOf("none", AfterSample, func(_ context.Context, b *StageBatch) error {
		if b.Batch.ID.Micro == 1 || b.Batch.ID.Batch == 2 {
			b.Batch.KeepSeeds(func(int, uint32) bool { return false })
		}
		return nil
	})}
	trained(t, started(t, c))
}

var errStage = errors.New("the stage broke")

// What a stage does wrong ends the run with an error that names batch and stage; nothing
// hangs, and the Runtime goes on without it.
func TestStageFailures(t *testing.T) {
	at := func(b *StageBatch) bool { return b.Batch != nil && b.Batch.ID.String() == "train/e1/b2" }
	fails := func(change func(b *StageBatch) error) processing {
		return func(_ context.Context, b *StageBatch) error {
			if at(b) {
				return change(b)
			}
			return nil
		}
	}
	for name, x := range map[string]struct {
		after  Place
		change func(b *StageBatch) error
		says   string
	}{
		"error":      {AfterSample, func(*StageBatch) error { return errStage }, "the stage broke"},
		"error late": {AfterLoad, func(*StageBatch) error { return errStage }, "the stage broke"},
		"panic":      {AfterSample, func(*StageBatch) error { panic(errStage) }, "the stage broke"},
		"panic late": {AfterLoad, func(*StageBatch) error { panic(errStage) }, "the stage broke"},
		"indices": {AfterSample, func(b *StageBatch) error {
			b.Batch.Blocks[0].Indices[3] = uint32(b.Batch.Blocks[0].NumSrc)
			return nil
		}, "block 0: entry 3 is source"},
		"pointers": {AfterSample, func(b *StageBatch) error { b.Batch.Blocks[1].Indptr[1] = -1; return nil }, "block 1: row pointer 1 decreases"},
		"node":     {AfterSample, func(b *StageBatch) error { b.Batch.Inputs()[b.Batch.NumInputs()-1] = 600; return nil }, "node 600 is out of range [0, 600)"},
		"seed":     {AfterSample, func(b *StageBatch) error { b.Batch.Seeds[0]++; return nil }, "seed 0 is node"},
		"twice": {AfterSample, func(b *StageBatch) error {
			b.Batch.KeepSeeds(func(int, uint32) bool { return true })
			b.Batch.Seeds[1], b.Batch.Targets[1] = b.Batch.Seeds[0], b.Batch.Targets[0]
			return nil
		}, "is there twice"},
		"blocks":  {AfterSample, func(b *StageBatch) error { b.Batch.Blocks = b.Batch.Blocks[1:]; return nil }, "it has 1 blocks of 2"},
		"id":      {AfterSample, func(b *StageBatch) error { b.Batch.ID.Batch++; return nil }, "its ID is train/e1/b3"},
		"weights": {AfterSample, func(b *StageBatch) error { b.Batch.LossWeights = []float32{1}; return nil }, "1 loss weights for"},
		"rows":    {AfterLoad, func(b *StageBatch) error { b.X = b.X[1:]; return nil }, "put other memory in the place of X"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Execution.Samplers, c.Execution.Threads = 2, 2
			broken := stageOf("broken", x.after, fails(x.change))
			c.Stages = []Stage{broken}
			r := started(t, c)
			var got error
			for _, err := range r.Train(t.Context()) {
				got = err
			}
			if got == nil || !strings.Contains(got.Error(), "train/e1/b2: broken: ") || !strings.Contains(got.Error(), x.says) {
				t.Fatalf("the run ended with %v, want broken and %q", got, x.says)
			}
			var panicked *pool.PanicError
			if says := x.says == "the stage broke"; says && !errors.Is(got, errStage) && !errors.As(got, &panicked) {
				t.Errorf("the cause is lost: %v", got)
			}
			if r.InFlight() != 0 {
				t.Errorf("%d batches are in flight", r.InFlight())
			}
			if _, err := r.Evaluate(t.Context(), small().Test); err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

// A stage that fails or panics in inference is an error of that call.
func TestStageFailsInInference(t *testing.T) {
	c := config()
	for _, panics := range []bool{false, true} {
		c.Stages = []Stage{stageOf("broken", AfterLoad, func(context.Context, *StageBatch) error {
			if panics {
				panic(errStage)
			}
			return errStage
		})}
		if _, err := started(t, c).Predict(t.Context(), []uint32{1}); err == nil || !strings.Contains(err.Error(), "inference: broken: ") || !strings.Contains(err.Error(), "the stage broke") {
			t.Errorf("panics %v: %v", panics, err)
		}
	}
}

// What cannot be a stage is refused, all at once.
func TestStagesThatCannotBe(t *testing.T) {
	c := config()
	ok := thinned()
	none := ok
	none.New = nil
	c.Stages = []Stage{ok, ok, {Name: "load", Version: "1", After: AfterLoad, New: ok.New}, {Name: "a b", Version: "1", After: AfterLoad, New: ok.New}, {Name: "x", After: "compute", New: ok.New}, none}
	err := c.Validate()
	for _, says := range []string{
		"there is a stage thinned already", "there is a stage load already", `number 4 has the name "a b"`, `x has the version ""`, `x is after "compute"`, "thinned has no New",
	} {
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	c.Stages = slices.Repeat([]Stage{ok}, 9)
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "there are 9, and may be 8") {
		t.Error(err)
	}
	c.Stages = []Stage{{Name: "x", Version: "1", After: AfterSample, New: func(*graph.Dataset) (Processor, error) { return nil, errStage }}}
	if _, err := Start(t.Context(), c); !errors.Is(err, errStage) || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "stages: x: ") {
		t.Errorf("a stage that cannot be made: %v", err)
	}
	c.Stages = []Stage{bent()}
	ds := *small()
	ds.NodeFeatures = nil
	c.Data.Dataset = &ds
	if _, err := Start(t.Context(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "stages: bent changes the rows") {
		t.Errorf("a stage after load without features: %v", err)
	}
}

// Stages are in the plan, the events and the trace by their names.
func TestStagesAreSeen(t *testing.T) {
	c := config()
	c.Stages, c.Execution.Spans = []Stage{bent(), thinned()}, 1000
	r := started(t, c)
	e := trained(t, r)
	spans := map[string]int{}
	for _, s := range r.Spans() {
		spans[s.Stage]++
	}
	order := []string{}
	for _, s := range r.Plan().Stages {
		order = append(order, s.Name)
	}
	if at := slices.Index(order, "thinned"); at < 0 || order[at-1] != "sampler" || order[slices.Index(order, "compute")-1] != "bent" {
		t.Errorf("the plan has %v", order)
	}
	for _, name := range []string{"thinned", "bent"} {
		if _, ok := e.Stages[name]; !ok || spans[name] != int(e.Applied) {
			t.Errorf("%s: busy %v, %d spans for %d batches", name, e.Stages[name], spans[name], e.Applied)
		}
	}
	if text := r.Plan().String(); !strings.Contains(text, "the program's own, version 1: changes rows after load, and in inference") {
		t.Error(text)
	}
}

// A checkpoint of a run with other stages is refused by name.
func TestStagesAreOfTheIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	c := config()
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Training.Epochs = dir, true, 1
	c.Stages = []Stage{thinned(), bent()}
	trained(t, started(t, c))
	newer := thinned()
	newer.Version = "2"
	for says, s := range map[string][]Stage{
		`stages was ["thinned 1 after sample","bent 1 after load"] and is none`: nil,
		`and is ["bent 1 after load","thinned 1 after sample"]`:                 {bent(), thinned()},
		`and is ["thinned 2 after sample","bent 1 after load"]`:                 {newer, bent()},
	} {
		c := c
		c.Stages = s
		r := started(t, c)
		for _, err := range r.Train(t.Context()) {
			if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), says) {
				t.Errorf("resumed with %d stages: %v, want %s", len(s), err, says)
			}
		}
	}
	c.Training.Epochs = 2
	trained(t, started(t, c))
}

// A saved model says which stages changed its rows, and is refused without them; those of
// training alone do not matter.
func TestStagesOfSavedModels(t *testing.T) {
	c := config()
	c.Training.Epochs, c.Stages = 1, []Stage{thinned(), bent()}
	r := started(t, c)
	trained(t, r)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := r.Save(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	m, err := OpenModel(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := m.Description(); err != nil || d.Version != 2 || !slices.Equal(d.Stages, []string{"bent 1 after load"}) {
		t.Errorf("the description is %+v, %v", d, err)
	}
	saved, err := m.Config()
	if err != nil {
		t.Fatal(err)
	}
	saved.Data.Dataset = small()
	if _, err := Start(t.Context(), saved); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "stages after load are none, and the model's bent 1 after load") {
		t.Errorf("without the stage: %v", err)
	}
	saved.Stages = []Stage{bent()}
	want, err := r.Embed(t.Context(), []uint32{3, 5})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := started(t, saved).Embed(t.Context(), []uint32{3, 5}); err != nil || !slices.Equal(got.Data, want.Data) {
		t.Errorf("other embeddings, or %v", err)
	}
	c.Stages = nil
	if err := started(t, c).Load(t.Context(), path); !errors.Is(err, ErrConfig) {
		t.Errorf("loaded without the stage: %v", err)
	}
}

// Asynchronous training goes through the stages.
func TestStagesAsynchronous(t *testing.T) {
	c := config()
	c.Stages, c.Training.Sync = []Stage{thinned(), bent()}, SSP(0)
	one := stagedSum(t, c) // no gradient is late: repeatable
	c.Memory.Features = "throttled:1GiB/s"
	if stagedSum(t, c) != one {
		t.Error("rows that are read: other bits")
	}
	c.Stages = nil
	if stagedSum(t, c) == one {
		t.Error("the stages change nothing")
	}
	c.Stages = []Stage{stageOf("broken", AfterLoad, func(_ context.Context, b *StageBatch) error {
		if b.Batch != nil {
			panic(errStage)
		}
		return nil
	})}
	for _, err := range started(t, c).Train(t.Context()) {
		if err != nil && !strings.Contains(err.Error(), "train/e0/b0: broken: ") {
			t.Error(err)
		}
	}
}
