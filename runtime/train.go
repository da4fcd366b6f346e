package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/cluster/audit"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
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
	TrainAccuracy float64 // on the seeds as they were trained, with dropout
	ValidAccuracy float64 // exact, by inference; NaN when not evaluated; of links, the AUC
	TestAccuracy  float64

	Rows    RowStats                 // feature rows that this Train asked for and read so far
	Stages  map[string]time.Duration // busy time of each stage so far; of load, the time in which anything was read
	Wall    time.Duration            // since training began
	Overlap float64                  // EventDone: the longest stage's busy time per actor / the pipeline's wall time

	Resumed bool
	Message string

	// Lineage is, in hex, a hash chain over the batches that led to the
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
		t := &training{r: r, yield: func(e Event, err error) bool {
			outside = true
			if observe := r.cfg.Observe; observe != nil {
				observe(e)
			}
			more := yield(e, err)
			outside = false
			return more
		}}
		if n := r.cfg.Execution.Spans; n > 0 || r.cfg.Execution.Trace != "" {
			t.clock.Keep(max(n, traceSpans))
		}
		err = damaged(explained(fault.GuardOutside(&outside, func() error { return t.run(ctx) })))
		t.replicator.end()
		err = errors.Join(err, t.trace())
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

// training is one call of Train.
type training struct {
	r          *Runtime
	yield      func(Event, error) bool
	left       bool // the loop was left
	steps      int64
	work       actors.Work
	state      checkpoint
	updater    *updater
	clock      clock.Recorder
	began      time.Time
	piping     time.Duration // wall time that the pipeline was let run
	samplers   int           // the most that ever worked
	unlock     func() error  // the checkpoint directory
	unsaved    error         // why an interrupted run has no last checkpoint
	ragged     bool          // the steps that were applied are not a prefix of their epoch
	lateness   []int64       // steps by staleness
	share      *trainers.Share
	ready      *trainingPipeline // begun while the state was on its way; nil: none
	unshared   bool              // the newest checkpoint could not be published
	due        int64             // the step of the newest checkpoint that there should be
	replicator *replicator       // of checkpoints; nil: none was needed
	settledIn  *trainers.Share   // the group that was settled last, at step settledAt
	settledAt  int64
	auditor    *audit.Auditor // of a cluster; nil: this process is alone
	unaudited  bool           // it resumed from a state whose audits had not come back
	mem        *resident      // of the pipeline that runs
	rows       RowStats       // of those before
	first      []float32      // the parameters that the run began with; read only
}

// errLeft ends a run whose loop was left; nobody sees it.
var errLeft = errors.New("runtime: left")

func (t *training) emit(e Event) error {
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
	if e.Kind == EventDone {
		actors := [clock.Stages]int{clock.Sample: max(t.samplers, t.r.plan.Samplers), clock.Compute: t.r.plan.Trainers}
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
func (t *training) counted() RowStats {
	rows := t.rows
	rows.add(t.mem.stats())
	return rows
}

// check reports why the data cannot be trained on.
func (r *Runtime) check() error {
	if r.model == nil {
		return r.noModel
	}
	if r.links != nil {
		return nil // there are training links, or Start had failed
	}
	ds := r.data.ds
	if len(ds.Train) == 0 {
		return fmt.Errorf("runtime: the training set of %s is empty; add a train split to the data", ds.Name)
	}
	for _, v := range ds.Train {
		if !ds.Labels.IsMulti() && ds.Labels.Class[v] == graph.Unlabeled {
			return fmt.Errorf("runtime: node %d is in the training set of %s but has no label; label it or take it out", v, ds.Name)
		}
	}
	return nil
}

func (t *training) run(ctx context.Context) (err error) {
	r := t.r
	if err := errors.Join(r.check(), r.plan.Check()); err != nil {
		return err
	}
	if (r.cfg.Training.Patience > 0 || r.cfg.Training.Schedule == "plateau") && len(r.data.ds.Valid) == 0 && r.NumLinks(ValidLinks) == 0 {
		return fmt.Errorf("%w: patience and the plateau schedule follow the validation accuracy, but %s has no validation set", ErrConfig, r.data.ds.Name)
	}
	t.began = time.Now()
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
	if err != nil {
		return err
	}
	for _, note := range []string{r.plan.Raised, r.plan.Fitted, r.data.lacks()} {
		if message != "" && note != "" {
			message += "; "
		}
		message += note
	}
	start := Event{Kind: EventStart, Epoch: int(t.state.Step / t.steps), Message: message, Resumed: resumed}
	if err := t.emit(start); err != nil {
		return err
	}
	// A run that was interrupted between an epoch's last batch and its end.
	if ended := t.state.Step / t.steps; t.state.Step%t.steps == 0 && int64(t.state.Ended) < ended {
		if err := t.endEpoch(ctx, int(ended)-1); err != nil {
			return err
		}
	}
	if t.state.Step < int64(r.cfg.Training.Epochs)*t.steps && !t.state.Best.Stop(r.cfg.Training.Patience) {
		work.First = t.state.Step
		train := t.epochs
		switch {
		case r.cfg.Cluster.Peers != nil:
			train = t.together
		case r.cfg.Training.Sync.Asynchronous():
			train = t.stale
		}
		if err := train(ctx, work, nil); err != nil {
			return err
		}
	} else {
		r.mu.Lock()
		r.params = t.updater.params // the checkpoint's
		r.mu.Unlock()
	}
	done := Event{Kind: EventDone, Epoch: int(t.state.Step/t.steps) - 1, Loss: t.state.LastLoss, TrainAccuracy: math.NaN(), Lineage: t.state.Chain.String(), Late: t.lateness}
	done.ValidAccuracy, done.TestAccuracy, err = r.accuracies(ctx, t.updater.params)
	if err = r.data.checked(err); err != nil {
		return err
	}
	if err := r.Verified(ctx); err != nil {
		return err
	}
	return t.emit(done)
}

// work is what a training of all epochs makes.
func (r *Runtime) work() actors.Work {
	return actors.Work{
		Phase: "train", Seed: r.cfg.Training.Seed, Nodes: r.seeds(), Micro: r.cfg.Sampling.MicroBatches, Epochs: r.cfg.Training.Epochs,
		BatchSize: r.sampler.Spec().BatchSize(r.cfg.Sampling.BatchSize, len(r.seeds())),
		Batches:   r.ownBatches(),
	}
}

// open readies the state: the newest checkpoint's, or a fresh one.
func (t *training) open(ctx context.Context) (message string, resumed bool, err error) {
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
	t.state = checkpoint{Identity: id}
	t.updater, t.first = newUpdater(r, params), params
	if dir == "" {
		return "", false, nil
	}
	if !r.cfg.Checkpoint.Resume {
		old, err := checkpoints(dir)
		if err != nil {
			return "", false, err
		}
		if len(old) > 0 {
			return "", false, fmt.Errorf("%w: checkpoint: %s holds another run's checkpoints; resume it, or choose an empty directory", ErrConfig, dir)
		}
		return "", false, writable(dir, r.shared()) // now, and not after an epoch
	}
	if err := writable(dir, r.shared()); err != nil {
		return "", false, err
	}
	var c *checkpoint
	var skipped []error
	e := t.expected(id)
	if r.shared() {
		if c, err = r.published(e); err != nil {
			return "", false, err
		}
	}
	if c == nil {
		c, skipped, err = e.load(dir)
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
	t.updater.restore(c)
	message = fmt.Sprintf("resumed after %d batches, in epoch %d", c.Step, c.Step/t.steps)
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

// InFlight returns how many micro-batches of the training that runs are being
// sampled, loaded or computed here, or wait for that.
func (r *Runtime) InFlight() int {
	r.mu.Lock()
	p := r.training
	r.mu.Unlock()
	if p == nil {
		return 0
	}
	return p.InFlight()
}

// trainingPipeline is a pipeline that trains, or is going to.
type trainingPipeline struct {
	p   *actors.Pipeline
	mem *resident
}

// startPipeline starts the pipeline of work; it samples and loads, and computes from its
// first Proceed on.
func (t *training) startPipeline(ctx context.Context, work actors.Work, share actors.Reducer) (*trainingPipeline, error) {
	t.updater.share, t.updater.auditor = share, t.auditor
	work.Window, work.After = t.r.plan.Reorder, t.state.After
	t.work = work
	p, mem, err := t.r.trainingPipeline(ctx, work, t.updater, &t.clock)
	if err != nil {
		return nil, err
	}
	return &trainingPipeline{p, mem}, nil
}

func (f *trainingPipeline) stop() error {
	f.p.Stop()
	return f.mem.close()
}

// epochs runs the pipeline to the end of the last epoch; share is this node's
// part in it, nil: it is alone.
func (t *training) epochs(ctx context.Context, work actors.Work, share actors.Reducer) (err error) {
	r := t.r
	f := t.ready
	if t.ready = nil; f == nil {
		if f, err = t.startPipeline(ctx, work, share); err != nil {
			return err
		}
	}
	p := f.p
	t.mem = f.mem
	over := make(chan struct{})
	r.mu.Lock()
	r.training, r.over = p, over
	r.mu.Unlock()
	defer func() {
		closed, rest := f.stop(), p.Rest()
		t.rows, t.mem = t.counted(), nil
		for _, a := range rest {
			t.applied(a)
		}
		r.mu.Lock()
		r.training, r.over, r.params = nil, nil, t.updater.params
		r.mu.Unlock()
		close(over)
		if errors.Is(err, actors.ErrReduce) && ctx.Err() == nil { // the run goes on
			for _, a := range rest {
				if left := t.stepped(a); left != nil {
					err = left
					break
				}
			}
		}
		err = errors.Join(err, closed)
		// A run that was cut off mid-epoch goes on from where it stopped.
		if err != nil && r.cfg.Checkpoint.Dir != "" && (ctx.Err() != nil || t.left) {
			t.unsaved = t.saveLast(false)
		}
	}()
	// A step that will not be made may wait for rows of a node that is gone.
	next, stop := context.WithCancel(ctx)
	defer stop()
	if s, ok := share.(interface{ Over() <-chan struct{} }); ok {
		over := make(chan struct{})
		defer func() { stop(); <-over }()
		go func() {
			defer close(over)
			select {
			case <-s.Over():
				stop()
			case <-next.Done():
			}
		}()
	}
	refiner := r.newRefiner()
	for epoch := int(work.First / t.steps); epoch < r.cfg.Training.Epochs; epoch++ {
		began := time.Now()
		t.updater.setRate(epoch, t.state.scale())
		p.Proceed(t.state.Step)
		for last := false; !last; {
			x, err := p.Next(next)
			if err != nil && next.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%w: the group is over", actors.ErrReduce)
			}
			if err != nil {
				return err
			}
			a := x.(*messages.Applied)
			last = a.Last
			t.applied(a)
			if a.Step == work.First && hurries(&t.work) {
				p.Tune(*tune(r.plan.Tuning()))
			}
			if err := t.stepped(a); err != nil {
				return err
			}
			if last { // what follows is evaluation
				refiner.steps = 0
			} else if err := t.refine(refiner, p, epoch); err != nil {
				return err
			}
		}
		t.piping += time.Since(began)
		if err := t.endEpoch(ctx, epoch); err != nil {
			return err
		}
		if t.state.Best.Stop(r.cfg.Training.Patience) {
			r.log.Info("stopping early", "epoch", epoch, "patience", r.cfg.Training.Patience, "best", t.state.Best.Figure)
			break
		}
	}
	return nil
}

// stepped tells of a step.
func (t *training) stepped(a *messages.Applied) error {
	return t.emit(Event{
		Kind: EventStep, Epoch: int(a.Step / t.steps), Batch: a.ID.Batch, Loss: a.Stats.Loss / a.Stats.Weight,
		TrainAccuracy: ratio(a.Stats.Correct, a.Stats.Count), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}

// applied books a step.
func (t *training) applied(a *messages.Applied) {
	t.r.mu.Lock()
	t.r.counted.Steps++
	t.r.mu.Unlock()
	t.state.Step = a.Step + 1
	t.state.Chain.extend(a)
	if t.r.cfg.Cluster.Peers == nil {
		t.state.Lineage = trainers.Extend(t.state.Lineage, 0, a.Step)
	}
	t.state.After = t.work.NextAfter(a.Step, a.ID.Batch, t.state.After)
	t.state.Epoch.Add(a.Stats)
	if a.Last {
		t.state.LastLoss = 0 // of an epoch whose subgraphs held no training node
		if t.state.Epoch.Weight > 0 {
			t.state.LastLoss = t.state.Epoch.Loss / t.state.Epoch.Weight
		}
		t.state.Last, t.state.Epoch = t.state.Epoch, messages.Stats{}
	}
}

func (t *training) endEpoch(ctx context.Context, epoch int) error {
	r := t.r
	e := Event{Kind: EventEpoch, Epoch: epoch, Loss: t.state.LastLoss, ValidAccuracy: math.NaN(), TestAccuracy: math.NaN()}
	e.TrainAccuracy = ratio(t.state.Last.Correct, t.state.Last.Count)
	// Both end before anything changes: it may have to be done again.
	var settled error
	var settling sync.WaitGroup
	if r.cfg.Checkpoint.Dir != "" {
		settling.Go(func() { settled = t.settle(ctx, t.share) })
	}
	n := r.cfg.Training.EvalEvery
	evaluates := n > 0 && (epoch+1)%n == 0
	var err error
	if evaluates {
		e.ValidAccuracy, e.TestAccuracy, err = r.accuracies(ctx, t.updater.params)
	}
	if settling.Wait(); settled != nil {
		return settled
	}
	if err != nil {
		return err
	}
	if evaluates {
		t.state.Best.Report(e.ValidAccuracy)
		if p := &t.updater.recipe; p.Schedule == "plateau" {
			t.state.Plateau.Factor, t.state.Plateau.Patience = p.Factor, p.Every
			t.state.Plateau.Report(e.ValidAccuracy, p.LR)
		}
	}
	t.state.Ended = epoch + 1
	if r.cfg.Checkpoint.Dir != "" {
		if err := r.Verified(ctx); err != nil {
			return err
		}
		t.due = t.state.Step
		if err := t.save(); err != nil {
			return err
		}
	}
	return t.emit(e)
}

// save writes a checkpoint of the current state. Nothing may be computing.
func (t *training) save() error {
	if err := t.r.verifiedSoon(); err != nil {
		return err
	}
	t.state.params, t.state.m, t.state.v = t.updater.params, t.updater.m, t.updater.v
	if team := t.r.cfg.Cluster.Peers; team != nil {
		t.state.Lineage = team.RunsTo(t.state.Step)
	}
	if t.r.shared() {
		return t.saveShared()
	}
	if err := t.state.save(t.r.cfg.Checkpoint.Dir, t.r.cfg.Checkpoint.Keep, t.r.model.Layout()); err != nil {
		return err
	}
	return t.replicate(checkpointPath(t.r.cfg.Checkpoint.Dir, t.state.Step))
}

func ratio(a, b int) float64 {
	if b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}
