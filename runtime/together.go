package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/training"
)

// together is epochs for one of several nodes. Whenever the nodes change, all go on
// from the last step that was made.
func (t *trainCall) together(ctx context.Context, work actors.Work, _ training.Group) (err error) {
	r := t.r
	defer func() {
		if err != nil && t.team != nil { // who is put out for a verdict may hear first that it is fenced
			if v, _ := t.team.Verdict(); v != nil && v.Names(r.cfg.Cluster.Peers.Node()) {
				err = v
			}
		}
		if err != nil && t.group != nil {
			t.group.Leave() // the others must not wait for a step from here
		}
		err = errors.Join(err, t.unready())
	}()
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
	for {
		if verdict, _ := t.team.Verdict(); verdict != nil && ctx.Err() == nil {
			if err := t.judged(verdict); err != nil {
				return err
			}
		}
		p, err := t.position()
		if err != nil {
			return err
		}
		// A node samples and reads rows while the state is on its way to it, unless the
		// state says which batch an order goes on from.
		if !r.cfg.Training.Sync.Asynchronous() && r.plan.Reorder <= 1 {
			p.Begin = func(g training.Group, step int64) error { return t.begin(ctx, work, g, step) }
		}
		group, err := t.team.Meet(ctx, p)
		if err != nil {
			if verdict, _ := t.team.Verdict(); verdict != nil && ctx.Err() == nil {
				continue
			}
			// Whoever is fenced keeps its state for when it is back: steps are made
			// by all of a group or not at all, so that it is the run's.
			if errors.Is(err, training.ErrDrained) || errors.Is(err, training.ErrLast) || ctx.Err() != nil ||
				errors.Is(err, training.ErrFenced) && r.identity.Sync == "" {
				t.unsaved = t.saveLast(errors.Is(err, training.ErrFenced))
			}
			return err
		}
		t.group = group
		if err = t.inGroup(ctx, work, group); err == nil {
			break
		}
		if !errors.Is(err, actors.ErrReduce) || ctx.Err() != nil {
			return err
		}
		if v, _ := t.team.Verdict(); v != nil { // the leader may see no other reason for a new group
			err = group.Abort(ctx, err)
		}
		r.log.Info("the trainers changed", "step", t.state.Step, "because", err)
	}
	r.mu.Lock()
	r.params = t.updater.params
	r.mu.Unlock()
	return nil
}

// inGroup goes on with the run in a group, to its end. An error that wraps
// actors.ErrReduce: the group is over.
func (t *trainCall) inGroup(ctx context.Context, work actors.Work, group training.Group) error {
	r := t.r
	if err := t.late(ctx); err != nil {
		return err
	}
	// The state may be one that another node was in between two epochs.
	if ended := t.state.Step / t.steps; t.state.Step%t.steps == 0 && int64(t.state.Ended) < ended {
		if err := t.endEpoch(ctx, int(ended)-1); err != nil {
			return err
		}
	}
	if t.state.Step < int64(r.cfg.Training.Epochs)*t.steps && !t.state.Best.Stop(r.cfg.Training.Patience) {
		var err error
		if r.cfg.Training.Sync.Asynchronous() {
			err = t.stale(ctx, work, group)
		} else {
			work.First, work.Mine = t.state.Step, group.Mine
			err = t.epochs(ctx, work, group)
		}
		if err != nil {
			return err
		}
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := errors.Join(t.shareLast(ctx), t.unready()); err != nil {
		return err
	}
	return group.Finish(ctx, t.state.Step)
}

// begin starts the pipeline that makes step, in place of one that was for another group.
func (t *trainCall) begin(ctx context.Context, work actors.Work, group training.Group, step int64) error {
	err := t.unready()
	if err == nil && step < int64(t.r.cfg.Training.Epochs)*t.steps {
		work.First, work.Mine = step, group.Mine
		t.ready, err = t.startPipeline(ctx, work, group)
	}
	return err
}

// unready stops the pipeline that was begun and is not used.
func (t *trainCall) unready() error {
	f := t.ready
	if t.ready = nil; f == nil {
		return nil
	}
	return f.stop()
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
			b.Grow(3*4*len(t.updater.params) + stateHead)
			state := t.state
			state.Lineage = nil // the nodes tell each other what theirs is
			state.params, state.m, state.v = t.updater.params, t.updater.m, t.updater.v
			err := state.write(&b, l)
			return b.Bytes(), err
		},
		Restore: func(b []byte) (int64, error) {
			id := t.state.Identity
			c, err := (&expected{l, id, t.steps, false}).state(b)
			if err != nil {
				return 0, err
			}
			t.state, t.state.Identity = *c, id
			t.updater.restore(c)
			return c.Step, nil
		},
	}, nil
}
