package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
)

func (n *Node) samplersOptions() samplers.Options {
	return samplers.Options{Member: n.Member, Control: n.Control, Plane: n.Plane, Logger: n.log}
}

// Sample makes this node sample for the run's trainers, of which open makes what draws
// the micro-batches, for each sampler one. Leave ends it.
func (n *Node) Sample(ctx context.Context, open func() samplers.Draw) error {
	h := samplers.Serve(n.samplersOptions(), open)
	n.mu.Lock()
	n.host = h
	n.mu.Unlock()
	return n.Member.Announce(ctx, func(i *membership.Info) {
		if !slices.Contains(i.Kinds, samplers.Kind) {
			i.Kinds = append(slices.Clone(i.Kinds), samplers.Kind)
		}
	})
}

// Samplers returns what has this node's samplers sample where they are; local: also
// here.
func (n *Node) Samplers(local bool) *samplers.Remote {
	r := samplers.NewRemote(n.samplersOptions(), local)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.remote = r
	return r
}

// idle is how long nobody asks a node that drains for a batch before it leaves.
const idle = 300 * time.Millisecond

// Attend is what a node does that does not train: it waits until the run has come to
// its end, or it has drained, which is reported.
func (n *Node) Attend(ctx context.Context) (drained bool, err error) {
	for {
		_, changed := n.Member.View()
		r, revision, err := n.record()
		if err != nil {
			return false, err
		}
		n.mu.Lock()
		mine := n.run
		n.mu.Unlock()
		if r == nil || r.Done || !r.same(mine) {
			return false, n.ended(r, revision)
		}
		select {
		case <-changed:
		case <-n.draining:
			if _, err := n.Member.Until(ctx, func(v *membership.View) bool { // its shards are with others
				me, in := v.Member(n.Plane.Node())
				return !in || me.Drain
			}); err != nil {
				return true, err
			}
			return true, n.quiet(ctx)
		case <-n.Member.Lost():
			return false, n.Member.Err()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// ended forgets the run that has come to its end.
func (n *Node) ended(r *Run, revision int64) error {
	if r != nil && !r.Done {
		return fmt.Errorf("%w: node %s began another at revision %d", ErrOtherRun, r.Node, revision)
	}
	return n.forgetRun()
}

// quiet waits until what this node was to give away is with others.
func (n *Node) quiet(ctx context.Context) error {
	n.mu.Lock()
	h := n.host
	n.mu.Unlock()
	if h == nil {
		return nil
	}
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for before := int64(-1); ; {
		drawn, _ := h.Drawn()
		if drawn == before {
			return nil
		}
		before = drawn
		select {
		case <-tick.C:
		case <-n.Member.Lost():
			return n.Member.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
