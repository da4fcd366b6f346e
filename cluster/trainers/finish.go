package trainers

import (
	"context"
	"slices"

	"github.com/gnnactor/gnnactor/cluster/group"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Finish ends a run in a group, after its last step, and reports whether it has: every
// trainer of the group has come here. If not, the group is over, and those that are
// there meet again. Those that come after the end train without this node.
func (s *Share) Finish(ctx context.Context, step int64) (bool, error) {
	// No step is going to end the group: who came meanwhile shall have the state
	// that the run ends with.
	s.t.between(s.id, false)
	if _, err := s.round(ctx, firstStep+step, hello{}); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		return false, s.t.failed(ctx, s.id)
	}
	s.t.withdraw() // nobody of the group lacks the state
	s.t.end()
	return true, nil
}

func (t *Trainers) end() {
	t.step(group.Ended{Is: true})
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// retire says that this node trains no more, to those that came after its last
// step and wait for it in a group of theirs, which is the newest.
func (t *Trainers) retire(ctx context.Context, newest int64) error {
	t.announcing.Lock()
	defer t.announcing.Unlock()
	t.mu.Lock()
	ended := t.part.HasEnded()
	t.mu.Unlock()
	if !ended { // it began another run meanwhile
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
	defer cancel()
	err := t.o.Member.Announce(ctx, func(i *membership.Info) {
		i.Kinds = slices.DeleteFunc(slices.Clone(i.Kinds), func(k string) bool { return k == Kind })
		i.Left = newest
	})
	if err == nil {
		t.announced = false
	}
	return err
}
