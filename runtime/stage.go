package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
)

// Stage is a stage of the program's own between two of the dataflow's. It is an actor
// as the others are: what it works on holds its sampler's credit, its work is done on the
// worker pool, several batches at once, and it is in the plan, the events' Stages and the
// trace by its name. An error or a panic of it ends the run with the names of both the
// batch and the stage. Train and Batches go through it, one by one, in the order of
// Config.Stages; in a cluster every node has it.
//
// What a stage makes of a batch must be a function of the batch, its rows and its key
// alone: then a run keeps the bits that it has for any number of samplers, trainers,
// credits and nodes. Name and Version are part of the run's identity, and so stand for what
// it does: checkpoints of a run with other stages are refused, and so are nodes.
type Stage struct {
	// Name is of letters, digits, - and _, and no other stage's.
	Name string
	// Version is changed with what the stage does to a batch, its settings included.
	Version string
	// After is where it is.
	After Place
	// New makes one that one goroutine uses at a time, so that it may keep memory between
	// batches; it is called as often as batches are worked on at once, once by Start. ds is
	// what training sees of the data, and read-only.
	New func(ds *graph.Dataset) (Processor, error)
	// SizesOnly: of ds.Graph and of what is known of edges New reads nothing but how many there are, so that
	// in a cluster a process that trains and does not sample needs no topology for it.
	SizesOnly bool
}

// Place is where a stage of the program's own is.
type Place string

// The places.
const (
	// AfterSample is between the samplers and what comes next. A stage there may change
	// all of a batch but its ID and the number of its blocks, as long as the batch stays one
	// that can be computed (sampling.Batch.CheckOf): take edges or seeds out
	// (graph.Block.Keep, sampling.Batch.KeepSeeds), or weigh them. Sampled batches
	// alone come here: exact inference, as Evaluate and Predict do it, takes all edges.
	AfterSample Place = "sample"
	// AfterLoad is between the features' rows and the trainers. A stage there changes the
	// rows of a batch, which are a copy of its own, in place, and not the batch. The nodes'
	// rows come here for exact inference, too, without a batch: a stage that changes
	// a row as a function of its node and its values gives inference what training has.
	AfterLoad Place = "load"
)

// Processor is what does a stage's work.
type Processor interface {
	// Process changes b. It keeps nothing of it.
	Process(ctx context.Context, b *StageBatch) error
}

// StageBatch is what a stage works on.
type StageBatch struct {
	// Batch is the micro-batch, after sample to be changed; slices that are put there are
	// copied. After load it is read-only; nil: the rows are for exact inference, and what
	// is for training alone, such as noise, must leave them as they are.
	Batch *sampling.Batch
	// Key is of the draws that the stage makes for the batch; 0 in exact inference.
	Key rng.Key
	// Nodes are those whose rows X has, NumFeatures values each, row after row: after load
	// alone. A sampler may have a node several times.
	Nodes       []uint32
	X           []float32
	NumFeatures int
}

// OwnSampler is a sampler of the program's own. It samples for Train and Batches, on one machine
// and in a cluster, where every node that samples has it; its name, which is Sampling.Sampler,
// and Version are part of the run's identity.
type OwnSampler struct {
	// Version is changed with what the sampler makes of a key and seeds.
	Version string
	// New makes a sampler for one goroutine, as sampling.PrepareOwn says: spec has the name,
	// the fan-outs and the number of blocks.
	New func(ds *graph.Dataset, spec sampling.Spec) (sampling.Sampler, error)
}

func (s *SamplingConfig) validateOwn(p *problems) {
	p.check(isName(s.Sampler) && !slices.Contains(Samplers(), s.Sampler), "sampler: %q is not a name of its own for the sampler given by Own, of letters, digits, - and _", s.Sampler)
	p.check(isVersion(s.Own.Version), "sampler: %s has the version %q; it must be of letters, digits, -, _ and dots, and change with what the sampler makes", s.Sampler, s.Own.Version)
	p.check(s.Own.New != nil, "sampler: %s has no New, which makes it", s.Sampler)
	p.check(len(s.Options) == 0, "sampler-options: are of gnnactor's samplers; %s takes its settings otherwise", s.Sampler)
}

// String names the stage in identities, settings and errors.
func (s *Stage) String() string { return fmt.Sprintf("%s %s after %s", s.Name, s.Version, s.After) }

// StageNames returns what the stages are in the run's identity, one after the other.
func (c *Config) StageNames() []string {
	var names []string
	for i := range c.Stages {
		names = append(names, c.Stages[i].String())
	}
	return names
}

// rowStages names those that change rows.
func (c *Config) rowStages() (names []string) {
	for i := range c.Stages {
		if c.Stages[i].After == AfterLoad {
			names = append(names, c.Stages[i].String())
		}
	}
	return names
}

// ownRows reports whether stages change rows.
func (c *Config) ownRows() bool { return c.rowStages() != nil }

// validateStages reports what Stages cannot be.
func (c *Config) validateStages(p *problems) {
	taken := []string{"source", "sampler", "parameters", "progress"}
	for s := clock.Sample; s < clock.Own; s++ {
		taken = append(taken, s.String())
	}
	p.check(len(c.Stages) <= clock.MaxOwn, "stages: there are %d, and may be %d", len(c.Stages), clock.MaxOwn)
	for i := range c.Stages {
		s := &c.Stages[i]
		p.check(isName(s.Name), "stages: number %d has the name %q; it must be of letters, digits, - and _", i+1, s.Name)
		p.check(isVersion(s.Version), "stages: %s has the version %q; it must be of letters, digits, -, _ and dots, and change with what the stage does", s.Name, s.Version)
		p.check(!slices.Contains(taken, s.Name), "stages: there is a stage %s already; choose another name", s.Name)
		taken = append(taken, s.Name)
		p.check(s.After == AfterSample || s.After == AfterLoad, "stages: %s is after %q; there may be stages after %s and %s", s.Name, s.After, AfterSample, AfterLoad)
		p.check(s.New != nil, "stages: %s has no New, which makes what does its work", s.Name)
	}
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func isVersion(s string) bool { return isName(strings.ReplaceAll(s, ".", "-")) }

// stages are a run's own, with what they work with.
type stages struct {
	r                   *Runtime
	filters, transforms []*ownStage     // after sample, and after load
	every               func() []uint32 // all nodes
}

// ownStage is one of them.
type ownStage struct {
	Stage
	clock clock.Stage
	ds    *graph.Dataset
	key   uint64 // of its draws

	mu   sync.Mutex
	free []Processor
}

// stageDomain keeps a stage's draws apart from the sampler's and the trainer's.
const stageDomain = 0x7374616765 // "stage"

func newStages(r *Runtime) (*stages, error) {
	s := &stages{r: r}
	s.every = sync.OnceValue(func() []uint32 { return graph.Consecutive(0, r.data.ds.Graph.NumNodes()) })
	for i, x := range r.cfg.Stages {
		own := &ownStage{Stage: x, clock: clock.Own + clock.Stage(i), ds: r.sampler.Dataset(), key: 0xcbf29ce484222325} // FNV-1a
		for k := range len(x.Name) {
			own.key = (own.key ^ uint64(x.Name[k])) * 0x100000001b3
		}
		if x.After == AfterSample {
			s.filters = append(s.filters, own)
		} else {
			if r.data.ds.NodeFeatures == nil {
				return nil, fmt.Errorf("%w: stages: %s changes the rows of features, and %s has none", ErrConfig, x.Name, r.data.ds.Name)
			}
			s.transforms = append(s.transforms, own)
		}
		p, err := own.take() // what cannot be made is found at the start
		if err != nil {
			return nil, fmt.Errorf("%w: stages: %s: %w", ErrConfig, x.Name, err)
		}
		own.put(p)
	}
	return s, nil
}

// names returns those of the stages, in the order of their clocks.
func (s *stages) names() []string {
	var names []string
	for _, x := range s.r.cfg.Stages {
		names = append(names, x.Name)
	}
	return names
}

func (s *ownStage) take() (Processor, error) {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		return p, nil
	}
	s.mu.Unlock()
	p, err := s.New(s.ds)
	if err == nil && p == nil {
		err = errors.New("its New made nothing")
	}
	return p, err
}

func (s *ownStage) put(p Processor) {
	s.mu.Lock()
	s.free = append(s.free, p)
	s.mu.Unlock()
}

// do has one do b, and then look at it. One that fails or panics is not used again.
func (s *ownStage) do(ctx context.Context, b *StageBatch, then func() error) error {
	p, err := s.take()
	if err != nil {
		return err
	}
	if err := p.Process(ctx, b); err != nil {
		return err
	}
	if err := then(); err != nil {
		return err
	}
	s.put(p)
	return nil
}

func (s *ownStage) keyOf(r *Runtime, id sampling.ID) rng.Key {
	return id.Key(r.cfg.Training.Seed).With(stageDomain).With(s.key)
}

// filter has a stage after sample change b.
func (s *stages) filter(ctx context.Context, own *ownStage, b *sampling.Batch) error {
	if own == s.filters[0] {
		b.Own() // else it is already
	}
	id, blocks := b.ID, len(b.Blocks)
	return own.do(ctx, &StageBatch{Batch: b, Key: own.keyOf(s.r, id)}, func() error {
		err := b.CheckOf(own.ds.Graph, s.r.links == nil) // what it says of links fits together
		switch {
		case b.ID != id:
			err = fmt.Errorf("its ID is %v", b.ID)
		case len(b.Blocks) != blocks:
			err = fmt.Errorf("it has %d blocks of %d", len(b.Blocks), blocks)
		case err == nil && (s.r.links != nil) != (b.Positive != nil):
			err = fmt.Errorf("it says of %d of %d seeds whether they are ends of links", len(b.Positive), len(b.Seeds))
		}
		if err != nil {
			b.ID = id
			return fmt.Errorf("the stage made a batch of it that cannot be computed: %w", err)
		}
		b.Own()
		return nil
	})
}

// transform has a stage after load change the rows x of b, which are those of nodes; b is
// nil in exact inference.
func (s *stages) transform(ctx context.Context, own *ownStage, b *sampling.Batch, nodes []uint32, x []float32) error {
	w := &StageBatch{Batch: b, Nodes: nodes, X: x, NumFeatures: s.r.data.ds.NodeFeatures.Cols}
	if b != nil {
		w.Key = own.keyOf(s.r, b.ID)
	}
	return own.do(ctx, w, func() error {
		if len(w.X) != len(x) || unsafe.SliceData(w.X) != unsafe.SliceData(x) {
			return fmt.Errorf("the stage put other memory in the place of X, which is to be changed where it lies")
		}
		return nil
	})
}

// inserted returns the stages as actors.
func (s *stages) inserted(slab *graph.Features) (afterSample, afterLoad []actors.Inserted) {
	limit := s.r.plan.MaxSamplers
	for _, own := range s.filters {
		afterSample = append(afterSample, actors.Inserted{Name: own.Name, Clock: own.clock, Limit: limit, Process: func(ctx context.Context, b *sampling.Batch, _ actors.Rows, _ []float32) ([]float32, error) {
			return nil, graph.Guard(func() error { return s.filter(ctx, own, b) })
		}})
	}
	for _, own := range s.transforms {
		afterLoad = append(afterLoad, actors.Inserted{Name: own.Name, Clock: own.clock, Limit: limit, Process: func(ctx context.Context, b *sampling.Batch, rows actors.Rows, x []float32) ([]float32, error) {
			err := graph.Guard(func() error {
				if rows.X == nil {
					x = s.r.gather(x, b, rows.Slots, slab)
				}
				return s.transform(ctx, own, b, s.nodes(b), x)
			})
			return x, err
		}})
	}
	return afterSample, afterLoad
}

// here does for one batch, on this goroutine, what the actors of the stages after sample,
// or else after load, do; it returns the rows in x, nil if no stage changes them.
func (s *stages) here(ctx context.Context, after Place, b *sampling.Batch, rows actors.Rows, slab *graph.Features, x []float32, rec *clock.Recorder) ([]float32, error) {
	own, load := s.inserted(slab)
	if after == AfterLoad {
		own = load
	}
	for _, o := range own {
		span := rec.Begin(o.Clock)
		err := pool.Recovered(func() (err error) {
			x, err = o.Process(ctx, b, rows, x)
			return err
		})
		span.End(b.ID.String())
		if err != nil {
			return nil, fmt.Errorf("%v: %s: %w", b.ID, o.Name, err)
		}
		rows = actors.Rows{X: x}
	}
	if len(own) == 0 {
		return nil, nil
	}
	return x, nil
}

// nodes returns those whose rows b needs.
func (s *stages) nodes(b *sampling.Batch) []uint32 {
	if ids := b.Inputs(); ids != nil {
		return ids
	}
	return s.every()
}

// stageRows is how many rows stages change at once in exact inference.
const stageRows = 1 << 12

// rows returns a table of the rows of nodes, for exact inference on f.
func (s *stages) rows(ctx context.Context, f *graph.Features, nodes []uint32) (*graph.Features, error) {
	x := make([]float32, len(nodes)*f.Cols)
	e := s.r.exec()
	cpu.Gather(e, cpu.Dense(len(nodes), f.Cols, x), cpu.Source[float32]{Table: f, IDs: nodes})
	s.r.releaseExec(e)
	for i := 0; i < len(nodes); i += stageRows {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n := min(i+stageRows, len(nodes))
		for _, own := range s.transforms {
			err := pool.Recovered(func() error {
				return s.transform(ctx, own, nil, nodes[i:n:n], x[i*f.Cols:n*f.Cols:n*f.Cols])
			})
			if err != nil {
				return nil, fmt.Errorf("runtime: inference: %s: %w", own.Name, err)
			}
		}
	}
	return graph.NewFeatures(len(nodes), f.Cols, x), nil
}

// sizes are the stages for the plan.
func (c *Config) ownSizes() (own []scheduler.Own) {
	for _, s := range c.Stages {
		own = append(own, scheduler.Own{Name: s.Name, Version: s.Version, AfterLoad: s.After == AfterLoad})
	}
	return own
}
