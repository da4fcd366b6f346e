package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/audit"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/sampling"
)

// Nodes of a cluster audit each other's sampling (package audit). What is kept of a run
// waits for the audits up to there; after a verdict the run goes on from that.

// audited is a sampler whose batches are audited.
type audited struct {
	sampling.Sampler
	auditor *audit.Auditor
}

// Sample implements sampling.Sampler.
func (s audited) Sample(b *sampling.Batch, key rng.Key, seeds []uint32) error {
	err := s.Sampler.Sample(b, key, seeds)
	if err == nil {
		s.auditor.Sampled(b)
	}
	return err
}

// audit has the batches of s audited, if this process is one of several.
func (t *training) audit(s sampling.Sampler) sampling.Sampler {
	if t.auditor == nil {
		return s
	}
	return audited{s, t.auditor}
}

// startAudit begins this node's part in the audit of the run.
func (t *training) startAudit(work actors.Work) error {
	id, err := json.Marshal(t.state.Identity)
	if err != nil {
		return fmt.Errorf("runtime: identity: %w", err)
	}
	team := t.r.cfg.Cluster.Peers
	t.auditor = audit.Start(audit.Options{
		Member: team.Member(), Plane: team.Plane(), Identity: string(id), Seed: t.r.cfg.Training.Seed, Rate: t.r.cfg.Cluster.Audit,
		Again: t.again(work), Expel: team.Member().Expel, Logger: t.r.log,
	})
	return nil
}

// again returns what samples a micro-batch of another node.
func (t *training) again(work actors.Work) func(sampling.ID) (audit.Digest, error) {
	draw, b := t.r.newDraw(work), new(sampling.Batch)
	return func(id sampling.ID) (audit.Digest, error) {
		if err := draw(b, id); err != nil {
			return 0, err
		}
		return audit.DigestOf(b), nil
	}
}

// settle waits for the audits of all that led to the state, in this group. An error
// that wraps actors.ErrReduce: the group is over, or the audit came to a verdict, which
// Rendezvous returns.
func (t *training) settle(ctx context.Context, share *trainers.Share) error {
	if t.auditor == nil || share == nil || share == t.settledIn && t.state.Step == t.settledAt {
		return nil
	}
	settle, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		select {
		case <-share.Over():
			cancel()
		case <-share.Done():
			cancel()
		case <-settle.Done():
		}
	}()
	err := t.auditor.Settle(settle)
	cancel()
	<-waits
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", actors.ErrReduce, err)
	}
	if err == nil {
		t.settledIn, t.settledAt = share, t.state.Step
	}
	return err
}

// settling is how long the last checkpoint of a run that is interrupted waits for its
// audits.
const settling = time.Second

// saveLast saves the state in which a run is interrupted, unless the audit found it to
// be spoiled. One whose audits have not come back is marked, as is that of a fenced node,
// which may have been put out for what it is not told yet.
func (t *training) saveLast(fenced bool) error {
	unaudited := fenced && t.auditor != nil
	if t.auditor != nil && t.share != nil && !fenced { // also where nothing is kept: the others must hear
		ctx, cancel := context.WithTimeout(context.Background(), settling)
		err := t.auditor.Settle(ctx)
		cancel()
		var v *audit.Verdict
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
func (t *training) fresh() *checkpoint {
	n := len(t.first)
	return &checkpoint{params: slices.Clone(t.first), m: make([]float32, n), v: make([]float32, n)}
}

// judged goes on after a verdict of the audit. One that names this node is the error.
func (t *training) judged(v *audit.Verdict) error {
	if v.Names(t.r.cfg.Cluster.Peers.Plane().Node()) {
		return v
	}
	err := t.goBack(v.Error())
	t.auditor.WentBack(v)
	return err
}

// goBack makes the state the last that was kept with its audits, or the run's first.
func (t *training) goBack(because string) error {
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
	t.updater.restore(c)
	t.due, t.share = t.state.Step, nil
	t.r.cfg.Cluster.Peers.Resume(t.state.Lineage)
	return t.emit(Event{
		Kind: EventStart, Epoch: int(t.state.Step / t.steps), Resumed: true,
		Message: fmt.Sprintf("%s; back from step %d to step %d", because, from, t.state.Step),
	})
}

// audited returns the newest checkpoint that was kept with its audits; nil: there is none.
func (t *training) audited() (*checkpoint, error) {
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
	paths, err := checkpoints(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		c, err := e.read(path)
		if err == nil && !c.Unaudited {
			return c, nil
		}
		r.log.Info("a checkpoint is passed over", "file", path, "unaudited", err == nil, "error", err)
	}
	return nil, nil
}
