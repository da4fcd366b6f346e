package trainers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// What follows is for trainers that make steps in another way than by AllReduce: the
// first of a group makes them, for all (package async).

// ServeParameters implements training.SSP. It waits until all of the group follow, as who does takes the state over
// when the group is over: steps that were made before might be nowhere then.
func (s *Share) ServeParameters(ctx context.Context, epoch int, p async.Parameters, size int) error {
	if s.epochs == 0 {
		s.t.tasks.Go(s.suspect)
	}
	s.epoch()
	s.team.ssp.open(uint64(s.id), int64(epoch), s.group.Members(), p, size)
	return s.whileGroup(ctx, s.team.ssp.joined)
}

// whileGroup waits for something about all members of the group, until the group is over.
func (s *Share) whileGroup(ctx context.Context, wait func(context.Context, []string) error) error {
	ctx, end := training.Until(ctx, s.Done(), training.ErrGroup)
	defer end()
	return wait(ctx, s.group.Members())
}

// epoch counts the epochs that this node leads or follows.
func (s *Share) epoch() {
	if s.epochs++; s.epochs == 3 { // the second was not begun before all had ended the first
		s.t.withdraw() // what those needed that lacked the group's state
	}
}

// handing is how long a node waits for the state of one that may not be there any
// more, and that one for it to be taken.
const handing = 5 * time.Second

// HandOver implements training.SSP. Of the group's nodes, when it is over, it waits for those that have
// begun to follow: the others have the state that it began with, and may be in the next group already.
func (s *Share) HandOver(ctx context.Context, state []byte, over error) error {
	ssp := s.team.ssp
	ssp.finish(state)
	if over == nil {
		if over = s.whileGroup(ctx, ssp.taken); over == nil {
			return nil
		}
	}
	ssp.end(uint64(s.id))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), handing)
	defer cancel()
	connected := s.t.o.Plane.Peers()
	others := slices.DeleteFunc(ssp.begun(s.others()), func(node string) bool { return !slices.Contains(connected, node) })
	if err := ssp.taken(last, others); err != nil {
		s.t.o.Logger.Warn("not every node took the state over; what was trained in this epoch may be trained again", "error", err)
	}
	if !errors.Is(over, training.ErrGroup) {
		return over
	}
	return fmt.Errorf("%w: %w", actors.ErrReduce, s.Abort(ctx, over))
}

// looking is how often who has the parameters looks whether a member is not connected, and doubting how often
// it then looks whether such a one has died.
const looking, doubting = handing / 200, handing / 20

// suspect looks, until the group is over, whether members that are not connected have died, and takes those
// that have out of the cluster, so that there is a group without them soon: others may wait for batches
// that were dealt to them.
func (s *Share) suspect() {
	ctx, end := training.Until(s.t.life, s.Done(), training.ErrGroup)
	defer end()
	tick := time.NewTicker(looking)
	defer tick.Stop()
	var asked time.Time
	for before := []string(nil); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		connected := s.t.o.Plane.Peers()
		gone := slices.DeleteFunc(slices.Clone(s.group.Members()), func(node string) bool { return slices.Contains(connected, node) })
		if len(gone) == 0 || slices.Equal(gone, before) && time.Since(asked) < doubting {
			continue
		}
		before, asked = gone, time.Now()
		died, err := s.t.o.Member.Suspect(ctx, gone)
		if err != nil && ctx.Err() == nil {
			s.t.o.Logger.Warn("a trainer that died could not be taken out yet", "group", s.id, "error", err)
		}
		if len(died) > 0 {
			s.t.o.Logger.Info("trainers died", "group", s.id, "trainers", died)
		}
	}
}

// others returns the group's other nodes that are still there: in the newest
// group, or, if this is the newest, in the cluster.
func (s *Share) others() []string {
	r, err := newestOf(s.t.o.Member)
	v, _ := s.t.o.Member.View()
	there := func(node string) bool {
		if err == nil && r.ID > s.id {
			return slices.ContainsFunc(r.Members, func(m membership.Peer) bool { return m.Node == node })
		}
		_, ok := v.Member(node)
		return ok
	}
	return slices.DeleteFunc(slices.Clone(s.group.Members()), func(node string) bool { return node == s.t.Node() || !there(node) })
}

// RemoteParameters implements training.SSP.
func (s *Share) RemoteParameters(epoch, i, size int) async.Parameters {
	if i == 0 {
		s.epoch()
	}
	return counting{s.remote(epoch, i, size), s}
}

func (s *Share) remote(epoch, i, size int) *remote {
	return newRemote(s.t.o.Plane, s.group.Members()[0], uint64(s.id), int64(epoch), i, size)
}

// counting counts what this node computes for another.
type counting struct {
	*remote
	share *Share
}

// Push implements async.Parameters.
func (c counting) Push(ctx context.Context, trainer string, g async.Push) error {
	err := c.remote.Push(ctx, trainer, g)
	if err == nil {
		c.share.Made(0, 0, 1)
	}
	return err
}

// TakeOver implements training.SSP. When the group is over the node with the parameters may be
// there all the same, and waits for its state to be taken.
func (s *Share) TakeOver(ctx context.Context, epoch int, most int64) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-s.Done():
			s.outlive(ctx)
			cancel(training.ErrGroup)
		case <-ctx.Done():
		}
	})
	return s.remote(epoch, 0, 0).State(ctx, most)
}

// outlive waits for a while, or until the node with the parameters is not there any more: in no newer group, unless
// it drains, as one that does is in none and waits to give its state away.
func (s *Share) outlive(ctx context.Context) {
	last := time.NewTimer(handing)
	defer last.Stop()
	for {
		v, changed := s.t.o.Member.View()
		first := s.group.Members()[0]
		if m, _ := v.Member(first); !m.Drains() && !slices.Contains(s.others(), first) {
			return
		}
		select {
		case <-changed:
		case <-last.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Decides implements training.Writing: this node's lease must live.
func (s *Share) Decides(ctx context.Context) error { return s.t.o.Member.Decides(ctx) }

// MayDecide implements training.Writing.
func (s *Share) MayDecide() bool { return s.t.o.Member.MayDecide() }

// Done implements training.SSP.
func (s *Share) Done() <-chan struct{} { return s.group.closed }

// Made implements training.SSP.
func (s *Share) Made(from, to int64, here int) {
	s.t.mu.Lock()
	s.t.made += int64(here)
	s.t.mu.Unlock()
	for step := from; step < to; step++ {
		s.first(step, s.t.record(step, s.id, 0))
	}
}

// Abort implements training.Group. It tells the leader if there is no newer group soon.
func (s *Share) Abort(ctx context.Context, why error) error {
	s.group.Close()
	return errors.Join(why, s.t.failed(ctx, s.id))
}
