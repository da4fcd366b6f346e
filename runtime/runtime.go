// Package runtime embeds gnnactor in a Go program: it opens a graph, plans a
// run, and trains, evaluates and serves a graph neural network on it.
//
//	cfg := runtime.DefaultConfig()
//	cfg.Data.Path = "path/to/store"
//	rt, err := runtime.Start(ctx, cfg)
//	if err != nil { … }
//	defer rt.Stop()
//	for ev, err := range rt.Train(ctx) { … }
//	rows, err := rt.Predict(ctx, ids)
//
// Errors are told apart by errors.Is: ErrConfig and ErrTask, what was asked for is
// wrong; ErrNode, a node is; ErrDamaged, the data or a file is; ErrIdentity and ErrLocked, the
// checkpoints are of another run, or in use; ErrMemory, it does not fit; ErrNoModel,
// ErrNoDescription and ErrNewer, there is no model, or none that this program knows;
// ErrBusy and ErrStopped, the Runtime trains already, or is over. One that ended with a
// context wraps its cause.
//
// A run is repeatable bit for bit: the settings in Config.Execution, and
// being interrupted and resumed, change no result. Several runtimes can live
// in one process.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/sampling/links"
	"github.com/gnnactor/gnnactor/scheduler"
	"github.com/gnnactor/gnnactor/training"
)

// ErrStopped is returned by every call on a Runtime that has been stopped.
var ErrStopped = errors.New("runtime: stopped")

// ErrNode is wrapped by a call that names a node that the graph does not have.
var ErrNode = errors.New("runtime: no such node")

// ErrDamaged is wrapped where data, a saved model or a checkpoint is not what can have
// been written: a malformed file, bytes that do not match their checksum, a file that was
// shortened or cannot be read any more. The same call will fail again; the text says
// where the damage is, and what helps. It is graph.ErrDamaged.
var ErrDamaged = graph.ErrDamaged

// ErrDiverged is wrapped where a training ended as its loss was no number any more, or infinite. It is compute.ErrDiverged.
var ErrDiverged = compute.ErrDiverged

// damaged marks err, of opening a file, with ErrDamaged if it says so.
func damaged(err error) error {
	if !errors.Is(err, ErrDamaged) && (ofData(err) || errors.Is(err, compute.ErrSafetensors)) {
		return fault.Damaged(err)
	}
	return err
}

// ErrNoModel is wrapped where a call needs a model and the data has none to
// offer: no node features, or no labels to learn.
var ErrNoModel = errors.New("runtime: no model")

// Models returns the names that Config.Model.Name accepts.
func Models() []string { return append(compute.Models(), "mixhop") }

// Samplers returns the names that Config.Sampling.Sampler accepts.
func Samplers() []string { return sampling.Names() }

// Runtime is a started run. Its methods may be called from any goroutine.
type Runtime struct {
	cfg       settings
	log       *slog.Logger
	data      *openData
	set       cpu.Set
	device    devices.Device  // that models run on; nil: the processor
	blasBytes int64           // that each queue of a device has for a library of dense products
	fallback  string          // why device auto is the processor
	drawn     devices.Sampler // of the device; nil: the processors sample
	links     *links.Links    // nil: nodes are classified
	sampler   *sampling.Prepared
	told      string // Run.ID of who samples elsewhere; with factBytes of facts
	factBytes int64
	stages    *stages
	model     *compute.Model // nil: see noModel
	loss      *compute.Loss  // of classes, in training; nil: the cross-entropy
	learner   *compute.Model // the same, on what training sees of the graph
	noModel   error
	plan      *scheduler.Plan
	reserve   int // values of a trainer's tape; 0: it finds them out
	identity  Identity
	pool      *pool.Pool
	system    *actor.ActorSystem

	verification *verification // of the data

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	calls  sync.WaitGroup // calls in progress
	train  sync.Mutex     // held while training
	state  atomic.Int32   // training.State
	start  string         // hash of what the last Train started from; guarded by train

	stop    sync.Once
	stopErr error

	mu          sync.Mutex
	stopped     bool
	params      []float32              // the current parameters; replaced, never written to
	training    *actors.Pipeline       // owns newer ones while a run is training
	over        chan struct{}          // closed when training's parameters have become params
	late        *actors.Pipeline       // that trains without parameters of its own: gradients may be late
	execs       []*cpu.Exec            // free ones
	modelExecs  []*cpu.Exec            // likewise, for models
	others      []devices.Device       // that compute, too, besides device
	execDevices map[*cpu.Exec]int      // which device an Exec for models is on
	queues      []devices.Queue        // of modelExecs, free or not
	inference   chan struct{}          // one for each call that infers, as many as the plan has
	waiting     int                    // calls that are to infer
	live        map[*resident]struct{} // of the pipelines that run
	counted     Stats                  // what is over: of Rows, those of pipelines that ended
	hot         hottest                // of the newest cache of that kind
	spans       []Span                 // of the newest training
}

// Start opens the data, which may mean importing it to a temporary store, and
// readies a run. Errors that come from the settings wrap ErrConfig, those that
// come from malformed data graph.ErrFormat. The caller must call Stop.
//
// ctx is for Start alone: what was started does not end with it. When it ends first, the
// error wraps its cause, and nothing is left behind. An import, what a sampler
// prepares, such as a partition, and what samples batches to plan by stop soon.
func Start(ctx context.Context, config Config) (_ *Runtime, err error) {
	defer func() { err = ofStart(ctx, err) }()
	var ofPieces []string
	if config.Sampling.Hybrid {
		ofPieces = append(ofPieces, "hybrid: batches")
	}
	if config.Training.Recompute {
		ofPieces = append(ofPieces, "recompute: activations")
	}
	if ofPieces != nil {
		return nil, fmt.Errorf("%w: %s are computed by the pieces of a partition set; leave that out, or divide the data ('gnnactor partition --out DIR')", ErrConfig, strings.Join(ofPieces, ", "))
	}
	r, err := open(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.data.close(), r.closeDevice())
		}
	}()
	err = graph.Guard(func() (err error) {
		if err = r.prepare(ctx); err != nil {
			return err
		}
		r.plan, err = r.makePlan(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.plan.Raised != "" {
		r.log.Warn("plan", "raised", r.plan.Raised)
	}
	if r.plan.Fitted != "" {
		r.log.Info("plan", "fitted", r.plan.Fitted)
	}
	r.inference = make(chan struct{}, r.plan.Inferences)
	r.pool = pool.New(r.plan.Threads)
	if r.system = r.cfg.Cluster.Actors; r.system == nil {
		r.system = ownActors()
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if lacks := r.data.lacks(); lacks != "" {
		r.log.Warn("data", "lacks", lacks)
	}
	r.verification = verify(r.ctx, &r.cfg, r.data.stores(), r.log)
	return r, nil
}

// ownActors is the system of all runs of this process that are given none: the library makes 32,768 maps for one,
// and names tell runs' actors apart (actors.Spawn).
var ownActors = sync.OnceValue(func() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler) // what goes wrong comes back as an error
	}))
})

// Check reports, with the errors of Start and Train, why a run of config cannot train on its
// data, and leaves nothing behind: it opens the data and prepares the sampler, which may
// take as long as it does in Start, but copies no features, and plans nothing, so that what
// depends on memory shows in Start alone. Whoever is about to take part in a cluster knows
// by it that it can.
func Check(ctx context.Context, config Config) (err error) {
	defer func() { err = ofStart(ctx, err) }()
	config.Memory.Features = "" // where rows lie is nothing that data must suit
	r, err := open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.data.close(), r.closeDevice()) }()
	return graph.Guard(func() error {
		if err := r.prepare(ctx); err != nil {
			return err
		}
		return r.check()
	})
}

// ofStart is err, of Start, which ctx may have interrupted.
func ofStart(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("runtime: interrupted while it started: %w", errors.Join(context.Cause(ctx), err))
	}
	return damaged(err)
}

// open opens the data of a run.
func open(ctx context.Context, config Config) (*Runtime, error) {
	cfg, err := config.compile()
	if err != nil {
		return nil, err
	}
	if err := cfg.checkAway(nil); err != nil {
		return nil, err
	}
	set, err := cpu.Detect()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Model.Params != "" && cfg.Model.Saved == nil {
		if cfg.Model.Saved, err = cfg.Model.Open(ctx); err != nil {
			return nil, err
		}
	}
	r := &Runtime{cfg: *cfg, set: set, log: cfg.Logger, live: map[*resident]struct{}{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if err := r.openDevice(); err != nil {
		return nil, err
	}
	if r.data, err = openDataset(ctx, cfg); err != nil {
		return nil, errors.Join(err, r.closeDevice())
	}
	return r, nil
}

// prepare makes what depends on the data: links, model, sampler and parameters.
func (r *Runtime) prepare(ctx context.Context) (err error) {
	cfg := &r.cfg
	if err := r.cfg.checkAway(r.data.ds); err != nil {
		return err
	}
	if m := cfg.Model.Saved; m != nil {
		if r.data.ds, err = m.read(r.data.ds, r.log); err != nil {
			return err
		}
	}
	if err := cfg.settleTask(r.data.ds.Labels); err != nil {
		return err
	}
	if cfg.multi = cfg.multiLabel(r.data.ds); r.Regression() {
		cfg.findTarget(r.data.ds)
	}
	if cfg.Model.Task == "link" && cfg.Cluster.Away {
		r.data.ds = withoutLinks(cfg.sizesOf(r.data.ds))
	} else if cfg.Model.Task == "link" {
		if r.links, r.data.ds, err = splitLinks(r.data.ds); err != nil {
			return err
		}
	}
	ds := r.data.ds
	blocks := cfg.Blocks()
	if r.model, r.noModel = newModel(&cfg.Config, ds); ofData(r.noModel) {
		return r.noModel
	} else if r.model != nil {
		if err := r.checkParameters(); err != nil {
			return err
		}
		r.params, blocks = r.model.Init(cfg.Training.Seed), r.model.Blocks()
	}
	if r.model != nil && ds.Labels != nil && r.links == nil && !r.Regression() {
		if r.loss, err = cfg.classLoss(ds.Recipe, ds.Labels.NumClasses, ds); err != nil {
			return err
		}
	}
	spec := cfg.sampler
	spec.Layers = blocks
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := cfg.cacheFraction(&spec, ds); err != nil {
		return err
	}
	if cfg.Cluster.Away {
		if err := r.prepareElsewhere(ctx, spec); err != nil {
			return err
		}
	} else if d := r.data.set; d != nil {
		r.sampler, err = d.sampler(ctx, spec, ds, cfg.Training.Seed)
		if err == nil && r.model != nil {
			r.factBytes, err = training.BindParts(ctx, r.model, d, d.owners, ds)
		}
	} else if own := cfg.Sampling.Own; own != nil {
		r.sampler, err = sampling.PrepareOwn(ctx, spec, ds, cfg.Training.Seed, own.New)
	} else {
		r.sampler, err = sampling.Prepare(ctx, spec, ds, cfg.Training.Seed)
	}
	if err != nil {
		if ofData(err) {
			return err
		}
		return fmt.Errorf("%w: %w; sampler-options sets what has no setting of its own", ErrConfig, err)
	}
	if r.learner = r.model; r.model != nil && cfg.Sampling.Inductive {
		if r.learner, err = r.model.On(r.sampler.Dataset().Graph); err != nil {
			return err
		}
		if cfg.Cluster.Away {
			if err := r.bindLearner(ctx); err != nil {
				return err
			}
		}
	}
	if r.stages, err = newStages(r); err != nil {
		return err
	}
	r.identity = r.identify()
	if r.told != "" && r.told != r.SamplingID() {
		return fmt.Errorf("%w: the nodes that sample do so for a run of other settings or data; start all nodes with the same --cache and --sampler-options, and one version of gnnactor", ErrConfig)
	}
	if cfg.Model.Saved != nil {
		if r.params, err = r.parameters(cfg.Model.Saved); err != nil {
			return err
		}
		cfg.Model.Saved = nil // its memory is not needed any more
	}
	return r.checkRows()
}

// Dataset returns the data of the run: read-only, and gone after Stop.
func (r *Runtime) Dataset() *graph.Dataset { return r.data.ds }

// TrainingDataset returns what training and Batches see of the data: Dataset, or with
// Config.Sampling.Inductive the training nodes and what is between them. Ids of nodes are
// the same in both, those of edges not. It is read-only, and gone after Stop.
func (r *Runtime) TrainingDataset() *graph.Dataset { return r.sampler.Dataset() }

// Plan returns how the run will be done.
func (r *Runtime) Plan() *scheduler.Plan { return r.plan }

// NumParameters returns the number of trained values; 0 without a model.
func (r *Runtime) NumParameters() int {
	if r.model == nil {
		return 0
	}
	return r.model.Layout().NumLearnt()
}

// call runs f, a call of the runtime's, with a context that also ends with the
// runtime. What f meets in damaged data is an error, see graph.Guard; a panic while
// outside is true is of the caller's own code.
func (r *Runtime) call(ctx context.Context, outside *bool, f func(ctx context.Context) error) error {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return fault.GuardOutside(outside, func() error { return r.data.checked(f(ctx)) })
}

// explained is err, or what is wrong with the data that made sampling or computing a
// batch fail.
func explained(err error) error {
	var f *messages.Failed
	if !errors.As(err, &f) || f.Stage != "sample" && f.Stage != "compute" || ofData(err) {
		return err
	}
	return fault.Explain(err)
}

// ofData tells whether err already says what is wrong with the data: values that no
// store is written with, or a file that was shortened or cannot be read.
func ofData(err error) bool {
	var f *fault.Error
	return errors.Is(err, graph.ErrFormat) || errors.As(err, &f)
}

// begin marks a call as in progress and gives it a context that also ends with
// the runtime, and when the data is found to be damaged. The caller must call end.
func (r *Runtime) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, nil, ErrStopped
	}
	damage := r.verification.damage
	if damage.Err() != nil {
		return nil, nil, context.Cause(damage)
	}
	r.calls.Add(1)
	r.counted.Calls++
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(r.ctx, func() { cancel(ErrStopped) })
	ignore := context.AfterFunc(damage, func() { cancel(context.Cause(damage)) })
	return ctx, func() {
		detach()
		ignore()
		cancel(nil)
		r.mu.Lock()
		r.counted.Calls--
		r.mu.Unlock()
		r.calls.Done()
	}, nil
}

// Stop ends the run: what is in progress returns ErrStopped or its context's
// error, actors and workers end, the data is closed. It may be called again,
// and then returns the same, when all that is done. It must not be called from
// within a range over Train or Batches.
func (r *Runtime) Stop() error {
	r.stop.Do(func() {
		r.mu.Lock()
		r.stopped = true
		r.mu.Unlock()
		r.cancel()
		r.calls.Wait()
		<-r.verification.done
		r.verification.found(nil)
		r.pool.Close()
		r.stopErr = errors.Join(r.data.close(), r.closeDevice())
	})
	return r.stopErr
}
