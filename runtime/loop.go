package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// State returns what the training of this process does.
func (r *Runtime) State() training.State { return training.State(r.state.Load()) }

// enter says what the training does from now on.
func (t *trainCall) enter(s training.State) { t.r.state.Store(int32(s)) }

// strategy is how the run's steps are made.
func (t *trainCall) strategy(work actors.Work) training.Strategy {
	if t.r.cfg.Training.Sync.Asynchronous() {
		return &bounded{trainCall: t, work: work}
	}
	return &pipelined{trainCall: t, work: work}
}

// loop makes the steps that are left, alone or in one group of nodes after the other. Whenever
// the nodes change, all go on from the last step that was made.
func (t *trainCall) loop(ctx context.Context, work actors.Work) (err error) {
	r, s := t.r, t.strategy(work)
	defer func() {
		if v := t.verdict(); err != nil && v != nil && v.Names(r.cfg.Cluster.Peers.Node()) {
			err = v // who is put out for a verdict may hear first that it is fenced
		}
		if err != nil && t.group != nil {
			t.group.Leave() // the others must not wait for a step from here
		}
		err = s.Leave(ctx, err)
	}()
	if r.cfg.Cluster.Peers != nil {
		if err := t.join(work); err != nil {
			return err
		}
		defer t.team.Close()
		if _, verdict := t.team.Verdict(); verdict > 0 && t.unaudited {
			if err := t.goBack(nil, "there was a verdict of the audit in this run, and the audits of the newest checkpoint had not come back"); err != nil {
				return err
			}
		}
		if err := t.warm(ctx); err != nil {
			return err
		}
	}
	for {
		if err := t.meet(ctx, s); err != nil {
			return err
		}
		err := t.inGroup(ctx, s)
		if err == nil || !errors.Is(err, actors.ErrReduce) || ctx.Err() != nil {
			return err
		}
		if t.verdict() != nil { // the leader may see no other reason for a new group
			err = t.group.Abort(ctx, err)
		}
		r.log.Info("the trainers changed", "step", t.state.Step, "because", err)
	}
}

// verdict returns one of the audit that the state has not seen; nil: there is none.
func (t *trainCall) verdict() training.Verdict {
	if t.team == nil {
		return nil
	}
	v, _ := t.team.Verdict()
	return v
}

// meet waits for a group of this node's team, if it has one, and brings the state to where the
// group is.
func (t *trainCall) meet(ctx context.Context, s training.Strategy) error {
	if t.team == nil {
		return nil
	}
	t.enter(training.Meeting)
	for {
		if v := t.verdict(); v != nil && ctx.Err() == nil {
			if err := t.judged(v); err != nil {
				return err
			}
		}
		p, err := t.position()
		if err != nil {
			return err
		}
		p.Begin = func(g training.Group, step int64) error { return s.Begin(ctx, g, step) }
		group, err := t.team.Rendezvous(ctx, p)
		if err == nil {
			t.group = group
			return nil
		}
		if t.verdict() != nil && ctx.Err() == nil {
			continue
		}
		// Whoever is fenced keeps its state for when it is back: steps are made
		// by all of a group or not at all, so that it is the run's.
		if errors.Is(err, training.ErrDrained) || errors.Is(err, training.ErrLast) || ctx.Err() != nil ||
			errors.Is(err, training.ErrFenced) && t.r.identity.Sync == "" {
			t.unsaved = t.saveLast(errors.Is(err, training.ErrFenced))
		}
		return err
	}
}

// inGroup goes on with the run, in the group if there is one, to its end. An error that wraps
// actors.ErrReduce: the group is over.
func (t *trainCall) inGroup(ctx context.Context, s training.Strategy) error {
	if err := t.late(ctx); err != nil {
		return err
	}
	if err := t.endLast(ctx); err != nil { // the state may be another node's
		return err
	}
	if t.more() {
		err := s.Enter(ctx, t.group)
		if err == nil {
			err = t.epochs(ctx, s)
		}
		err = s.Leave(ctx, err)
		// A run that was cut off mid-epoch goes on from where it stopped.
		switch {
		case err == nil || t.r.cfg.Checkpoint.Dir == "" || ctx.Err() == nil && !t.left:
		case t.incompletePrefix:
			t.unsaved = errRagged
		default:
			t.unsaved = t.saveLast(false)
		}
		if err != nil {
			return err
		}
	}
	t.enter(training.Finishing)
	if t.group == nil {
		return nil
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := s.Leave(ctx, t.shareLast(ctx)); err != nil {
		return err
	}
	return t.group.Finish(ctx, t.state.Step)
}

// endLast ends the epoch before the state, if that is one between an epoch's last batch and its end.
func (t *trainCall) endLast(ctx context.Context) error {
	if ended := t.state.Step / t.steps; t.state.Step%t.steps == 0 && int64(t.state.Ended) < ended {
		return t.endEpoch(ctx, int(ended)-1)
	}
	return nil
}

// more reports whether there are epochs left to train.
func (t *trainCall) more() bool {
	return t.state.Step < int64(t.r.cfg.Training.Epochs)*t.steps && !t.state.Best.Stop(t.r.cfg.Training.Patience)
}

// epochs makes those that are left.
func (t *trainCall) epochs(ctx context.Context, s training.Strategy) error {
	for t.more() {
		epoch := int(t.state.Step / t.steps)
		t.enter(training.Stepping)
		t.updater.SetRate(epoch, t.state.Scale())
		began := time.Now()
		err := s.Epoch(ctx, epoch)
		t.piping += time.Since(began)
		if err == nil {
			err = t.endEpoch(ctx, epoch)
		}
		if err != nil {
			return err
		}
		if t.state.Best.Stop(t.r.cfg.Training.Patience) {
			t.r.log.Info("stopping early", "epoch", epoch, "patience", t.r.cfg.Training.Patience, "best", t.state.Best.Figure)
		}
	}
	return nil
}

// stateHead is room for what a state has beside parameters and moments.
const stateHead = 1 << 16

// position is where this node's run is, for the others. Nothing may be computing.
func (t *trainCall) position() (training.Position, error) {
	l := t.r.model.Layout()
	id, err := json.Marshal(t.state.Identity)
	if err != nil {
		return training.Position{}, fmt.Errorf("runtime: identity: %w", err)
	}
	mark := t.state.Chain.String()
	if t.r.identity.Sync != "" { // no two nodes have seen the same
		mark = ""
	}
	return training.Position{
		Identity: string(id), Step: t.state.Step, Mark: mark,
		Save: func() ([]byte, error) {
			var b bytes.Buffer
			b.Grow(4*4*len(t.updater.Params()) + stateHead)
			state := t.state
			state.Lineage = nil // the nodes tell each other what theirs is
			err := t.updater.Save(&state)
			if err == nil {
				err = state.Write(&b, l)
			}
			return b.Bytes(), err
		},
		Restore: func(b []byte) (int64, error) {
			id := t.state.Identity
			c, err := (&checkpoint.Expected{Layout: l, Identity: id, Steps: t.steps}).FromPeer(b)
			if err != nil {
				return 0, err
			}
			t.state, t.state.Identity = *c, id
			t.updater.Restore(c)
			return c.Step, nil
		},
	}, nil
}

// stepped tells of a step.
func (t *trainCall) stepped(a *messages.Applied) error {
	return t.emit(Event{
		Kind: EventStep, Epoch: int(a.Step / t.steps), Batch: a.ID.Batch, Loss: a.Stats.Loss / a.Stats.Weight,
		TrainAccuracy: t.r.share(a.Stats), ValidAccuracy: math.NaN(), TestAccuracy: math.NaN(),
	})
}

// applied books a step.
func (t *trainCall) applied(a *messages.Applied) {
	t.r.mu.Lock()
	t.r.counted.Steps++
	t.r.mu.Unlock()
	t.state.Step = a.Step + 1
	t.state.Chain.Extend(a)
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
	t.enter(training.Ending)
	e := Event{Kind: EventEpoch, Epoch: epoch, Loss: t.state.LastLoss, ValidAccuracy: math.NaN(), TestAccuracy: math.NaN()}
	e.TrainAccuracy = r.share(t.state.Last)
	// Both end before anything changes: it may have to be done again.
	var settled error
	var settling sync.WaitGroup
	if r.cfg.Checkpoint.Dir != "" {
		settling.Go(func() { settled = t.settle(ctx) })
	}
	n := r.cfg.Training.EvalEvery
	evaluates := n > 0 && (epoch+1)%n == 0
	var err error
	var params []float32
	if evaluates {
		for _, w := range t.updater.workers {
			w.rest()
		}
		if params, err = t.updater.InHost(); err == nil {
			e.ValidAccuracy, e.TestAccuracy, err = r.accuracies(ctx, params)
		}
	}
	if settling.Wait(); settled != nil {
		return settled
	}
	if err != nil {
		return err
	}
	if evaluates {
		figure := e.ValidAccuracy
		if r.Regression() {
			figure = -figure // an error: the smallest is the best
		}
		if t.state.Best.Report(figure) && r.cfg.Training.keepsBest() {
			t.state.Keep(epoch+1, figure, params)
		}
		if p := t.updater.Recipe(); p.Schedule == "plateau" {
			t.state.Plateau.Factor, t.state.Plateau.Patience = p.Factor, p.Every
			t.state.Plateau.Report(figure, p.LR)
		}
	}
	t.state.Ended, e.Best = epoch+1, t.state.BestEpoch()
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
	err := t.updater.Save(&t.state)
	if err == nil {
		t.state.About, err = describeModel(t.r.model, &t.r.cfg, t.r.data.ds.Recipe)
	}
	if err != nil {
		return err
	}
	if t.team != nil {
		t.state.Lineage = t.team.Lineage(t.state.Step)
	}
	if t.r.shared() {
		return t.saveShared()
	}
	if err := t.state.Save(t.r.cfg.Checkpoint.Dir, t.r.cfg.Checkpoint.Keep, t.r.model.Layout()); err != nil {
		return err
	}
	return t.replicate(checkpoint.Path(t.r.cfg.Checkpoint.Dir, t.state.Step))
}

// share is that of the targets that were right; numbers are not right or wrong.
func (r *Runtime) share(s messages.Stats) float64 {
	if r.Regression() {
		return math.NaN()
	}
	return ratio(s.Correct, s.Count)
}

// ratio is NaN of nothing.
func ratio(a, b int) float64 { return float64(a) / float64(b) }
