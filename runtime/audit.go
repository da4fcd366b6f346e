package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// Nodes of a cluster audit each other's sampling (package cluster/trainers). What is kept of a run
// waits for the audits up to there; after a verdict the run goes on from that.

// audited is a sampler whose batches are audited.
type audited struct {
	sampling.Sampler
	team training.Team
}

// Sample implements sampling.Sampler.
func (s audited) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	err := s.Sampler.Sample(b, key, seeds)
	if err == nil {
		s.team.Sampled(b, "")
	}
	return err
}

// auditedElsewhere has what other nodes sample audited.
type auditedElsewhere struct {
	actors.Elsewhere
	team training.Team
}

// Draw implements actors.Elsewhere.
func (s auditedElsewhere) Draw(ctx context.Context, i int, m *messages.Seeds, b *sampling.Batch) (node string, err error) {
	node, err = s.Elsewhere.Draw(ctx, i, m, b)
	if err == nil {
		s.team.Sampled(b, node)
	}
	return node, err
}

// join begins this node's part in the run, audits included.
func (t *trainCall) join(work actors.Work) error {
	id, err := json.Marshal(t.state.Identity)
	if err != nil {
		return fmt.Errorf("runtime: identity: %w", err)
	}
	c := &t.r.cfg
	a := training.Audit{Identity: string(id), Seed: c.Training.Seed, Rate: c.Cluster.Audit}
	if !c.Cluster.Away {
		a.Draw = t.r.newDraw(&epochOrders{work: work})
	}
	t.team = c.Cluster.Peers.Begin(a, t.state.Lineage)
	return nil
}

// settle waits for the audits of all that led to the state.
func (t *trainCall) settle(ctx context.Context) error {
	if t.group == nil {
		return nil
	}
	return t.group.Settle(ctx, t.state.Step)
}

// settling is how long the last checkpoint of a run that is interrupted waits for its
// audits.
const settling = time.Second

// saveLast saves the state in which a run is interrupted, unless the audit found it to
// be spoiled. One whose audits have not come back is marked, as is that of a fenced node,
// which may have been put out for what it is not told yet.
func (t *trainCall) saveLast(fenced bool) error {
	unaudited := fenced && t.team != nil
	if t.team != nil && t.group != nil && !fenced { // also where nothing is kept: the others must hear
		ctx, cancel := context.WithTimeout(context.Background(), settling)
		err := t.team.Audited(ctx)
		cancel()
		var v training.Verdict
		if errors.As(err, &v) {
			return fmt.Errorf("runtime: the state after step %d is not kept: %w", t.state.Step, v)
		}
		unaudited = err != nil
	}
	if t.r.cfg.Checkpoint.Dir == "" {
		return nil
	}
	t.state.Unaudited = unaudited
	err := t.save()
	t.state.Unaudited = false
	return err
}

// fresh is the state in which the run began.
func (t *trainCall) fresh() *checkpoint.State {
	n := len(t.first)
	return &checkpoint.State{Params: slices.Clone(t.first), M: make([]float32, n), V: make([]float32, n)}
}

// judged goes on after a verdict of the audit. One that names this node, or does not know which of those that
// sample for it is wrong, is the error.
func (t *trainCall) judged(v training.Verdict) error {
	if v.Names(t.r.cfg.Cluster.Peers.Node()) || !v.Decided() {
		return v
	}
	return t.goBack(v, v.Error())
}

// goBack makes the state the last that was kept with its audits, or the run's first, for a verdict
// that it had not seen, or nil.
func (t *trainCall) goBack(v training.Verdict, because string) error {
	c, err := t.audited()
	if err != nil {
		return fmt.Errorf("%s: %w", because, err)
	}
	if c == nil {
		c = t.fresh()
	}
	from := t.state.Step
	id := t.state.Identity
	t.state, t.state.Identity = *c, id
	t.updater.Restore(c)
	t.due, t.group = t.state.Step, nil
	t.team.WentBack(v, t.state.Lineage)
	return t.emit(Event{
		Kind: EventStart, Epoch: int(t.state.Step / t.steps), Resumed: true,
		Message: fmt.Sprintf("%s; back from step %d to step %d", because, from, t.state.Step),
	})
}

// audited returns the newest checkpoint that was kept with its audits; nil: there is none.
func (t *trainCall) audited() (*checkpoint.State, error) {
	r, dir := t.r, t.r.cfg.Checkpoint.Dir
	if dir == "" {
		return nil, nil
	}
	e := t.expected(t.state.Identity)
	if r.shared() {
		if c, err := r.published(e); c != nil && !c.Unaudited || err != nil {
			return c, err
		}
	}
	paths, err := checkpoint.List(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		c, err := e.Read(path)
		if err == nil && !c.Unaudited {
			return c, nil
		}
		r.log.Info("a checkpoint is passed over", "file", path, "unaudited", err == nil, "error", err)
	}
	return nil, nil
}
