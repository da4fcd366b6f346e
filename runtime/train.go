package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// EventKind says what an Event reports.
type EventKind int

// The kinds of events, in the order in which a run makes them.
const (
	EventStart EventKind = iota // training is about to begin; Message and Resumed say from where
	EventStep                   // a batch was applied
	EventTune                   // the plan was changed after measuring the first batches; Message says what and why
	EventEpoch                  // an epoch ended, was evaluated and saved
	EventDone                   // training ended; figures of the final parameters
)

// Event is one report of a training run.
type Event struct {
	Kind    EventKind
	Epoch   int   // counted from 0
	Batch   int   // EventStep: index of the batch
	Batches int   // batches of an epoch
	Applied int64 // batches applied by the whole run, before a resume included

	Loss          float64 // mean per seed node: of the batch (EventStep) or the epoch
	Staleness     int     // EventStep, with Config.Training.Sync ssp: steps applied since the version that it was computed on
	Late          []int64 // EventDone, with Config.Training.Sync ssp: how many steps had Staleness 0, 1, …, in this process since it began
	TrainAccuracy float64 // on the seeds as they were trained, with dropout; NaN of numbers
	ValidAccuracy float64 // exact, by inference; NaN when not evaluated; of links, the AUC; of numbers, the root mean squared error
	TestAccuracy  float64
	// Best is, of EventEpoch and EventDone, after how many epochs the parameters were made that are best by
	// validation so far and that training ends with; 0: it ends with the last ones.
	Best int

	Rows    RowStats                 // feature rows that this Train asked for and read so far
	Stages  map[string]time.Duration // busy time of each stage so far, of Config.Stages by their names; of load, the time in which anything was read
	Wall    time.Duration            // since training began
	Overlap float64                  // EventDone: the longest stage's busy time per actor / the pipeline's wall time

	Resumed bool
	Message string

	// Lineage is, in hex, a hash chain over the batches that led to the last
	// parameters, with their statistics: one and the same for any number of
	// nodes. EventDone has it.
	Lineage string
}

// ErrBusy is returned by Train while another Train is running.
var ErrBusy = errors.New("runtime: already training")

// Train trains until Config.Training.Epochs are done, and yields what happens. It runs
// in the loop that ranges over it: between two epochs it waits for the loop's
// body, within an epoch it does not. The last pair carries the error, if there
// is one. When ctx ends, or the loop is left, training stops cleanly within
// one batch, and a last checkpoint is written when there is a directory for
// it; the error then wraps the context's, and why that checkpoint could not be
// written if it could not. After a loop that was left the latter is logged.
// Only one Train runs at a time.
//
// A failed batch ends the run with an error that names it: "train/e3/b17".
func (r *Runtime) Train(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, end, err := r.begin(ctx)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer end()
		if !r.train.TryLock() {
			yield(Event{}, ErrBusy)
			return
		}
		defer r.train.Unlock()
		outside := false
		t := &trainCall{r: r, yield: func(e Event, err error) bool {
			outside = true
			if observe := r.cfg.Observe; observe != nil {
				observe(e)
			}
			more := yield(e, err)
			outside = false
			return more
		}}
		t.clock.SetNames(r.stages.names()...)
		if n := r.cfg.Execution.Spans; n > 0 || r.cfg.Execution.Trace != "" {
			t.clock.Keep(max(n, traceSpans))
		}
		err = explained(fault.GuardOutside(&outside, func() error { return t.run(ctx) }))
		t.replicator.End()
		err = errors.Join(err, t.trace(err))
		if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("runtime: training interrupted after %d batches: %w", t.state.Step, cause)
		}
		var panicked *pool.PanicError
		if errors.As(err, &panicked) || errors.Is(err, graph.ErrFormat) {
			// What a stage makes of damaged data is not what is wrong.
			if damage := r.Verified(ctx); damage != nil && !errors.Is(err, damage) {
				err = fmt.Errorf("%w; before it was found: %w", damage, err)
			}
		}
		if panicked != nil {
			r.log.Error("training panicked", "error", err, "stack", string(panicked.Stack))
		}
		if t.unlock != nil {
			err = errors.Join(err, t.unlock()) // the last checkpoint is written
		}
		if t.unsaved != nil && !errors.Is(err, t.unsaved) { // else err is of the data
			r.log.Error("the last checkpoint could not be written", "error", t.unsaved)
			err = errors.Join(err, t.unsaved)
		}
		if err != nil && !t.left {
			yield(Event{}, err)
		}
	}
}

// trainCall is one call of Train.
type trainCall struct {
	r                *Runtime
	yield            func(Event, error) bool
	left             bool // the loop was left
	steps            int64
	work             actors.Work
	state            checkpoint.State
	updater          *updater
	clock            clock.Recorder
	began            time.Time
	piping           time.Duration          // wall time that the pipeline was let run
	samplers         int                    // the most that ever worked
	unlock           func() error           // the checkpoint directory
	unsaved          error                  // why an interrupted run has no last checkpoint
	incompletePrefix bool                   // the steps that were applied are not a prefix of their epoch
	lateness         []int64                // steps by staleness
	group            training.Group         // the newest; nil: there was none, or this process is alone
	unshared         bool                   // the newest checkpoint could not be published
	due              int64                  // the step of the newest checkpoint that there should be
	replicator       *checkpoint.Replicator // of checkpoints; nil: none was needed
	team             training.Team          // of a cluster; nil: this process is alone
	unaudited        bool                   // it resumed from a state whose audits had not come back
	mem              *resident              // of the pipeline that runs
	rows             RowStats               // of those before
	first            []float32              // the parameters that the run began with; read only
}

// errLeft ends a run whose loop was left; nobody sees it.
var errLeft = errors.New("runtime: left")

func (t *trainCall) emit(e Event) error {
	e.Batches, e.Applied, e.Wall = int(t.steps), t.state.Step, time.Since(t.began)
	e.Rows = t.counted()
	e.Stages = make(map[string]time.Duration)
	busy := t.clock.Busy()
	busy[clock.Load] = t.clock.Occupied()[clock.Load] // reads wait, several at a time
	for s := clock.Sample; s <= clock.Compute; s++ {
		if busy[s] > 0 || s == clock.Sample || s == clock.Load || s == clock.Compute {
			e.Stages[s.String()] = busy[s]
		}
	}
	for i, name := range t.r.stages.names() {
		e.Stages[name] = busy[clock.Own+clock.Stage(i)]
	}
	if e.Kind == EventDone {
		actors := [clock.Stages]int{clock.Sample: max(t.samplers, t.r.plan.Samplers), clock.Compute: t.r.plan.Trainers}
		for s := clock.Own; s < clock.Stages; s++ {
			actors[s] = t.r.plan.MaxSamplers
		}
		// Samplers work ahead between epochs too, when the pipeline is not let run.
		e.Overlap = min(1, clock.Overlap(busy, actors, t.piping))
		if t.state.Step < t.steps { // no epoch was trained
			e.Loss = math.NaN()
		}
	}
	if !t.yield(e, nil) {
		t.left = true
		return errLeft
	}
	return nil
}

// counted returns the rows of this training so far.
func (t *trainCall) counted() RowStats {
	rows := t.rows
	rows.add(t.mem.stats())
	return rows
}

// check reports why the data cannot be trained on.
func (r *Runtime) check() error {
	switch {
	case r.model == nil:
		return r.noModel
	case r.cfg.Cluster.SamplesOnly:
		return fmt.Errorf("%w: Cluster.SamplesOnly: this process samples for others and does not train", ErrConfig)
	}
	if r.cfg.Training.followsValidation() && len(r.data.ds.Valid) == 0 && r.NumLinks(ValidLinks) == 0 {
		return fmt.Errorf("%w: patience, keep best and the plateau schedule follow the validation accuracy, but %s has no validation set", ErrConfig, r.data.ds.Name)
	}
	if r.links != nil {
		return nil // there are training links, or Start had failed
	}
	ds := r.data.ds
	if ds.Labels == nil {
		return fmt.Errorf("%w: %s has no labels to learn; add them to the data", ErrNoModel, ds.Name)
	}
	if len(ds.Train) == 0 {
		return fmt.Errorf("runtime: the training set of %s is empty; add a train split to the data, say by 'gnnactor import --split random:60/20/20'", ds.Name)
	}
	for _, v := range ds.Train {
		if !ds.Labels.Known(v) {
			return fmt.Errorf("runtime: node %d is in the training set of %s but has no label; label it or take it out", v, ds.Name)
		}
	}
	return nil
}

func (t *trainCall) run(ctx context.Context) (err error) {
	r := t.r
	if err := errors.Join(r.check(), r.plan.Check()); err != nil {
		return err
	}
	t.began = time.Now()
	t.enter(training.Opening)
	defer t.enter(training.Idle)
	work := r.work()
	t.steps = work.Steps()
	if dir := r.cfg.Checkpoint.Dir; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("runtime: checkpoint directory: %w", err)
		}
		if !r.shared() {
			if t.unlock, err = lockDir(dir); err != nil {
				return err
			}
		}
	}
	if r.cfg.Cluster.Peers != nil { // what the others add to theirs cannot be taken back
		if err := r.Verified(ctx); err != nil {
			return err
		}
	}
	message, resumed, err := t.open(ctx)
	if t.updater != nil {
		defer t.updater.close(r)
	}
	if err != nil {
		return err
	}
	for _, note := range []string{r.plan.Raised, r.plan.Fitted, r.data.lacks(), r.fallback} {
		if message != "" && note != "" {
			message += "; "
		}
		message += note
	}
	start := Event{Kind: EventStart, Epoch: int(t.state.Step / t.steps), Message: message, Resumed: resumed}
	if err := t.emit(start); err != nil {
		return err
	}
	if err := t.endLast(ctx); err != nil {
		return err
	}
	if t.more() {
		if err := t.loop(ctx, work); err != nil {
			return errors.Join(err, t.hold())
		}
	}
	if err := t.hold(); err != nil {
		return err
	}
	params := r.params
	t.enter(training.Finishing)
	done := Event{Kind: EventDone, Epoch: int(t.state.Step/t.steps) - 1, Loss: t.state.LastLoss, TrainAccuracy: math.NaN(), Lineage: t.state.Chain.String(), Late: t.lateness, Best: t.state.BestEpoch()}
	done.ValidAccuracy, done.TestAccuracy, err = r.accuracies(ctx, params)
	if err = r.data.checked(err); err != nil {
		return err
	}
	if err := r.Verified(ctx); err != nil {
		return err
	}
	return t.emit(done)
}

// hold has the runtime keep what training ends with: the last parameters, or the best.
func (t *trainCall) hold() error {
	params, err := t.updater.InHost()
	if err != nil {
		return err
	}
	if best := t.state.Kept; best != nil {
		params = best.Params
	}
	t.r.mu.Lock()
	t.r.params = params
	t.r.mu.Unlock()
	return nil
}

// work is what a training of all epochs makes.
func (r *Runtime) work() actors.Work {
	return actors.Work{
		Phase: "train", Seed: r.cfg.Training.Seed, Nodes: r.seeds(), Micro: r.cfg.Sampling.MicroBatches, Epochs: r.cfg.Training.Epochs,
		BatchSize: r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(r.seeds())),
		Batches:   r.ownBatches(),
	}
}

// expected returns what the run of an identity can go on from.
func (t *trainCall) expected(id Identity) *checkpoint.Expected {
	return &checkpoint.Expected{Layout: t.r.model.Layout(), Identity: id, Steps: t.steps, OtherKernels: t.r.cfg.Checkpoint.AllowOtherKernels}
}

// open readies the state: the newest checkpoint's, or a fresh one.
func (t *trainCall) open(ctx context.Context) (message string, resumed bool, err error) {
	r := t.r
	dir := r.cfg.Checkpoint.Dir
	id := r.identity
	r.mu.Lock()
	params := r.params
	r.mu.Unlock()
	start := r.model.Layout().SHA256(params)
	if r.start == "" || dir == "" || !r.cfg.Checkpoint.Resume {
		r.start = start
	}
	id.Start = r.start // of the run that this one goes on with, if it is the same Runtime's
	t.state = checkpoint.State{Identity: id}
	t.updater, t.first = newUpdater(r, params), params
	if dir == "" {
		return "", false, nil
	}
	if !r.cfg.Checkpoint.Resume {
		old, err := checkpoint.List(dir)
		if err != nil {
			return "", false, err
		}
		if len(old) > 0 {
			return "", false, fmt.Errorf("%w: checkpoint: %s holds another run's checkpoints; resume it, or choose an empty directory", ErrConfig, dir)
		}
		return "", false, checkpoint.Writable(dir, r.shared()) // now, and not after an epoch
	}
	if err := checkpoint.Writable(dir, r.shared()); err != nil {
		return "", false, err
	}
	var c *checkpoint.State
	var skipped []error
	e := t.expected(id)
	if r.shared() {
		if c, err = r.published(e); err != nil {
			return "", false, err
		}
	}
	if c == nil {
		c, skipped, err = e.Load(dir)
	}
	var copied string
	if !r.shared() && !errors.Is(err, ErrIdentity) {
		c, copied, err = t.further(ctx, e, c, err)
	}
	if err != nil {
		return "", false, err
	}
	if c == nil {
		r.start, t.state.Identity.Start = start, start
		return fmt.Sprintf("no checkpoint in %s: starting afresh", dir), false, nil
	}
	t.state, t.state.Identity = *c, id
	t.unaudited, t.state.Unaudited = c.Unaudited, false
	t.updater.Restore(c)
	message = fmt.Sprintf("resumed after %d batches, at the end of epoch %d", c.Step, c.Step/t.steps)
	if c.Step%t.steps > 0 {
		message = fmt.Sprintf("resumed after %d batches, in epoch %d", c.Step, c.Step/t.steps+1)
	}
	if done := c.Step / t.steps; done > int64(r.cfg.Training.Epochs) {
		message += fmt.Sprintf("; %d epochs are done, more than the %d that were asked for: nothing is trained", done, r.cfg.Training.Epochs)
	}
	if id.Sync != "" {
		message += "; with --sync " + id.Sync + " no run has the bits of another, nor of one that was not interrupted"
	}
	if copied != "" {
		message += "; from the copy at node " + copied
	}
	if c.Version == 0 {
		message += "; that checkpoint is of an older version: its parameters and moments are what was written, of the step and the statistics nothing tells"
	}
	for _, why := range skipped {
		message += fmt.Sprintf("; passed over a damaged one: %v", why)
	}
	return message, true, nil
}
