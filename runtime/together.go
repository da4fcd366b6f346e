package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/async"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
)

// together is epochs for one of several nodes. Whenever the nodes change, all go on
// from the last step that was made.
func (t *training) together(ctx context.Context, work actors.Work, _ actors.Reducer) (err error) {
	r := t.r
	defer func() {
		if err != nil && t.auditor != nil { // who is put out for a verdict may hear first that it is fenced
			if v, _ := t.auditor.Verdict(); v != nil && v.Names(r.cfg.Cluster.Peers.Plane().Node()) {
				err = v
			}
		}
		if err != nil && t.share != nil {
			t.share.Leave() // the others must not wait for a step from here
		}
		err = errors.Join(err, t.unready())
	}()
	r.cfg.Cluster.Peers.Resume(t.state.Lineage)
	if err := t.startAudit(work); err != nil {
		return err
	}
	defer t.auditor.Close()
	if _, verdict := t.auditor.Verdict(); verdict > 0 && t.unaudited {
		if err := t.goBack("there was a verdict of the audit in this run, and the audits of the newest checkpoint had not come back"); err != nil {
			return err
		}
	}
	var service *async.Service // of the asynchronous mode
	if r.cfg.Training.Sync.Asynchronous() {
		service = async.NewService(r.cfg.Cluster.Peers.Plane())
		defer service.Close()
	}
	if err := t.warm(ctx); err != nil {
		return err
	}
	for {
		if verdict, _ := t.auditor.Verdict(); verdict != nil && ctx.Err() == nil {
			if err := t.judged(verdict); err != nil {
				return err
			}
		}
		state, err := t.meeting()
		if err != nil {
			return err
		}
		// A node samples and reads rows while the state is on its way to it, unless the
		// state says which batch an order goes on from.
		if service == nil && r.plan.Reorder <= 1 {
			state.Begin = func(s *trainers.Share, step int64) error { return t.begin(ctx, work, s, step) }
		}
		share, err := r.cfg.Cluster.Peers.Rendezvous(ctx, state)
		if err != nil {
			if verdict, _ := t.auditor.Verdict(); verdict != nil && ctx.Err() == nil {
				continue
			}
			// Whoever is fenced keeps its state for when it is back: steps are made
			// by all of a group or not at all, so that it is the run's.
			if errors.Is(err, trainers.ErrDrained) || errors.Is(err, trainers.ErrLast) || ctx.Err() != nil ||
				errors.Is(err, membership.ErrFenced) && r.identity.Sync == "" {
				t.unsaved = t.saveLast(errors.Is(err, membership.ErrFenced))
			}
			return err
		}
		t.share = share
		t.auditor.Group(share.Members(), share.Leave)
		if err = t.inGroup(ctx, work, share, service); err == nil {
			break
		}
		if !errors.Is(err, actors.ErrReduce) || ctx.Err() != nil {
			return err
		}
		if v, _ := t.auditor.Verdict(); v != nil { // the leader may see no other reason for a new group
			err = share.Abort(ctx, err)
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
func (t *training) inGroup(ctx context.Context, work actors.Work, share *trainers.Share, service *async.Service) error {
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
		if service != nil {
			err = t.staleTogether(ctx, work, share, service)
		} else {
			work.First, work.Mine = t.state.Step, share.Mine
			err = t.epochs(ctx, work, share)
		}
		if err != nil {
			return err
		}
	}
	if err := t.settle(ctx, share); err != nil {
		return err
	}
	if err := errors.Join(t.shareLast(ctx), t.unready()); err != nil {
		return err
	}
	ended, err := share.Finish(ctx, t.state.Step)
	if err == nil && !ended {
		err = fmt.Errorf("%w: not all of them have made the last step", actors.ErrReduce)
	}
	return err
}

// begin starts the pipeline that makes step, in place of one that was for another group.
func (t *training) begin(ctx context.Context, work actors.Work, share *trainers.Share, step int64) error {
	err := t.unready()
	if err == nil && step < int64(t.r.cfg.Training.Epochs)*t.steps {
		work.First, work.Mine = step, share.Mine
		t.ready, err = t.startPipeline(ctx, work, share)
	}
	return err
}

// unready stops the pipeline that was begun and is not used.
func (t *training) unready() error {
	f := t.ready
	if t.ready = nil; f == nil {
		return nil
	}
	return f.stop()
}

// stateHead is room for what a state has beside parameters and moments.
const stateHead = 1 << 16

// meeting is where this node's run is, for the others. Nothing may be computing.
func (t *training) meeting() (trainers.State, error) {
	l := t.r.model.Layout()
	id, err := json.Marshal(t.state.Identity)
	if err != nil {
		return trainers.State{}, fmt.Errorf("runtime: identity: %w", err)
	}
	mark := t.state.Chain.String()
	if t.r.identity.Sync != "" { // no two nodes have seen the same
		mark = ""
	}
	return trainers.State{
		Identity: string(id), Step: t.state.Step, Mark: mark, Audited: t.auditor.Known,
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
