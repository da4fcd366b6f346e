package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

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
func (t *trainCall) startPipeline(ctx context.Context, work actors.Work, group training.Group) (*trainingPipeline, error) {
	t.updater.share, t.updater.team = group, t.team
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

// epochs runs the pipeline to the end of the last epoch; nil: without a group.
func (t *trainCall) epochs(ctx context.Context, work actors.Work, group training.Group) (err error) {
	r := t.r
	f := t.ready
	if t.ready = nil; f == nil {
		if f, err = t.startPipeline(ctx, work, group); err != nil {
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
	if group != nil {
		over := make(chan struct{})
		defer func() { stop(); <-over }()
		go func() {
			defer close(over)
			select {
			case <-group.Over():
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
			if a.Step == work.First && limitsFirstStep(&t.work) {
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
func (t *trainCall) stepped(a *messages.Applied) error {
	return t.emit(Event{
		Kind: EventStep, Epoch: int(a.Step / t.steps), Batch: a.ID.Batch, Loss: a.Stats.Loss / a.Stats.Weight,
		TrainAccuracy: ratio(a.Stats.Correct, a.Stats.Count), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}

// applied books a step.
func (t *trainCall) applied(a *messages.Applied) {
	t.r.mu.Lock()
	t.r.counted.Steps++
	t.r.mu.Unlock()
	t.state.Step = a.Step + 1
	t.state.Chain.extend(a)
	if t.r.cfg.Cluster.Peers == nil {
		t.state.Lineage = training.Extend(t.state.Lineage, 0, a.Step)
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

func (t *trainCall) endEpoch(ctx context.Context, epoch int) error {
	r := t.r
	e := Event{Kind: EventEpoch, Epoch: epoch, Loss: t.state.LastLoss, ValidAccuracy: math.NaN(), TestAccuracy: math.NaN()}
	e.TrainAccuracy = ratio(t.state.Last.Correct, t.state.Last.Count)
	// Both end before anything changes: it may have to be done again.
	var settled error
	var settling sync.WaitGroup
	if r.cfg.Checkpoint.Dir != "" {
		settling.Go(func() { settled = t.settle(ctx) })
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
func (t *trainCall) save() error {
	if err := t.r.verifiedSoon(); err != nil {
		return err
	}
	t.state.params, t.state.m, t.state.v = t.updater.params, t.updater.m, t.updater.v
	if t.team != nil {
		t.state.Lineage = t.team.Lineage(t.state.Step)
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
