package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// A run is over when its record says so. Who made its last step writes that down (Finish), or who was the last to train
// and failed (Withdraw). A node that takes part and was in neither of them has nothing to wait for any more: not for data,
// rows or samplers that were others', and not for a group.

// over says why this node need not go on with the run that it takes part in; nil: it is not over, or this node made its last step.
func (n *Node) over() error {
	r, revision, err := n.record()
	n.mu.Lock()
	mine, at := n.run, n.revision
	n.mu.Unlock()
	t := n.trainers.Load()
	if mine == nil || revision <= at { // the view may be older
		return nil
	}
	met := t != nil && len(t.Mates()) > 0
	switch {
	case err != nil:
		return fmt.Errorf("%w: the one that node %s began; what has its place cannot be read: %w", ErrWithdrawn, mine.Node, err)
	case r.Failed != "":
		return fmt.Errorf("%w: the one that node %s began: %s", ErrWithdrawn, r.Node, r.Failed)
	case !r.Done && met:
		return nil // how it ended was not seen, or it has not for this node
	case !r.Done:
		return fmt.Errorf("%w: the one that node %s began; there is another by node %s", ErrWithdrawn, mine.Node, r.Node)
	case r.Last[n.Plane.Node()] == n.Member.Epoch():
		return nil
	}
	return fmt.Errorf("%w: the one that node %s began came to its end, and nothing is left to do for this node", ErrEnded, r.Node)
}

// runOver reports whether err says that the run is over without this node.
func runOver(err error) bool { return errors.Is(err, ErrEnded) || errors.Is(err, ErrWithdrawn) }

// untilOver returns a context that ends, with why, when there is nothing left to do for this node, and stop, which ends it.
// A node that began with settings and data of its own goes on by itself with a run that has ended.
func (s *Session) untilOver(ctx context.Context) (_ context.Context, stop func()) {
	goesOn := s.o.Joins || s.o.Config.Checkpoint.Resume || !s.o.Roles.Sample
	return watched(ctx, func(ctx context.Context, end context.CancelCauseFunc) {
		for {
			_, changed := s.node.Member.View()
			why := s.node.over()
			if why != nil && (goesOn || !errors.Is(why, ErrEnded)) {
				end(why)
			}
			if s.node.Member.Wait(ctx, changed, 0) != nil {
				return
			}
		}
	})
}

// watched returns a context that watch may end, which runs beside, and stop, which ends both and waits.
func watched(ctx context.Context, watch func(ctx context.Context, end context.CancelCauseFunc)) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { watch(ctx, end) })
	return ctx, func() {
		end(nil)
		running.Wait()
	}
}

// because is err, or why the run was over for this node when that made it.
func (s *Session) because(err error) error {
	if cause := context.Cause(s.ctx); err != nil && runOver(cause) {
		return cause
	}
	return err
}

// Finish says that the run is done: the next node that comes may begin another.
func (n *Node) Finish(ctx context.Context) error {
	if err := n.forgetRun(); err != nil {
		return err
	}
	t := n.trainers.Load()
	return n.end(ctx, func(r *Run, _ int64, _ *membership.View) bool {
		if r.Done = true; t != nil {
			r.Last = t.Mates()
		}
		return true
	})
}

// Withdraw says that the run came to nothing, for why, which has failed here for good, if no other node trains for it, or none can: so that
// whoever begins one again, with what it lacked, does not have to take part in this one. This node trains no more.
func (n *Node) Withdraw(ctx context.Context, why error) (withdrawn bool, err error) {
	// Of two that fail at the same time one sees that the other trains no more.
	said, err := n.Member.AnnounceAt(ctx, func(i *membership.Info) { i.Drain = true })
	if err != nil {
		return false, err
	}
	if _, err := n.Member.Until(ctx, func(v *membership.View) bool { return v.Revision >= said }); err != nil {
		return false, err
	}
	err = n.end(ctx, func(r *Run, revision int64, v *membership.View) bool {
		withdrawn = errors.Is(why, errNobodySamples) || !slices.ContainsFunc(slices.Concat(v.Members, v.Absent), func(m membership.Info) bool {
			return m.Node != n.Plane.Node() && !m.Drain && r.carried(&m, revision)
		})
		r.Done, r.Failed = true, fmt.Sprintf("%.500v", why)
		return withdrawn
	})
	if err == nil && withdrawn {
		err = n.forgetRun()
	}
	return withdrawn && err == nil, err
}

// end writes down how the run that this node takes part in is over, which change says, if it does: false, it is not.
func (n *Node) end(ctx context.Context, change func(r *Run, revision int64, v *membership.View) bool) error {
	n.mu.Lock()
	at := n.revision
	n.mu.Unlock()
	for {
		v, err := n.Member.Until(ctx, func(v *membership.View) bool { return v.Revision >= at })
		if err != nil {
			return err
		}
		r, revision, err := n.record()
		if err != nil || r == nil || revision != at {
			return err // another node did, or there is another run
		}
		if !change(r, revision, v) {
			return nil
		}
		value, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
		_, err = n.Member.Propose(ctx, runKey, revision, value)
		if err == nil || errors.Is(err, membership.ErrStale) {
			return nil
		}
		if err := n.patient(ctx, "the run's end could not be written down yet", err); err != nil {
			return err
		}
	}
}
