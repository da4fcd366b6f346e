package trainers

import (
	"context"
	"errors"
	"slices"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/group"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// What follows is for trainers that make steps in another way than by AllReduce: one of
// a group makes them, for all (package async).

// Plane returns this node's data plane.
func (t *Trainers) Plane() *dataplane.Plane { return t.o.Plane }

// Member returns this node's membership.
func (t *Trainers) Member() *membership.Member { return t.o.Member }

// Members returns the names of the group's nodes, in order.
func (s *Share) Members() []string { return s.group.Members() }

// Others returns the group's other nodes that are still there: in the newest
// group, or, if this is the newest, in the cluster.
func (s *Share) Others() []string {
	r, err := newestOf(s.t.o.Member)
	v, _ := s.t.o.Member.View()
	there := func(node string) bool {
		if err == nil && r.ID > s.id {
			return slices.ContainsFunc(r.Members, func(m group.Member) bool { return m.Node == node })
		}
		_, ok := v.Member(node)
		return ok
	}
	return slices.DeleteFunc(s.Members(), func(node string) bool { return node == s.t.o.Plane.Node() || !there(node) })
}

// Suspect takes members that died out of the cluster, so that there is a group
// without them soon.
func (s *Share) Suspect(ctx context.Context) {
	died, err := s.t.o.Member.Suspect(ctx, s.Members())
	if err != nil && ctx.Err() == nil {
		s.t.o.Logger.Warn("a trainer that died could not be taken out yet", "group", s.id, "error", err)
	}
	if len(died) > 0 {
		s.t.o.Logger.Info("trainers died", "group", s.id, "trainers", died)
	}
}

// Decides waits until this node may make a step by itself: its lease lives. It returns
// an error when the node is fenced, or ctx ends.
func (s *Share) Decides(ctx context.Context) error { return s.t.o.Member.Decides(ctx) }

// MayDecide reports whether Decides would not wait.
func (s *Share) MayDecide() bool { return s.t.o.Member.MayDecide() }

// Done is closed when the group is over.
func (s *Share) Done() <-chan struct{} { return s.group.Done() }

// Steps books steps [from, to) that the group made.
func (s *Share) Steps(from, to int64) {
	for step := from; step < to; step++ {
		s.first(step, s.t.record(step, s.id, 0))
	}
}

// Settled says that all members have the state that the group began with: what
// this node has on offer for those that lacked it goes.
func (s *Share) Settled() { s.t.withdraw() }

// Computed books a batch that this node computed, and that was applied.
func (s *Share) Computed() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.made++
}

// Abort ends the group, for a reason, and tells the leader if there is no newer
// one soon.
func (s *Share) Abort(ctx context.Context, err error) error {
	s.group.Close()
	return errors.Join(err, s.t.failed(ctx, s.id))
}
