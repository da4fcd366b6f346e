package trainers

import (
	"context"
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Finish implements training.Group: it waits for every trainer of the group to come here. If not
// all do, the group is over, and those that are there meet again. Those that come after the end train
// without this node.
func (s *Share) Finish(ctx context.Context, step int64) error {
	// No step is going to end the group: who came meanwhile shall have the state
	// that the run ends with.
	s.t.between(s.id, false)
	if _, err := s.round(ctx, firstStep+step, hello{}); err != nil {
		if ctx.Err() != nil {
			return err
		}
		if err := s.t.failed(ctx, s.id); err != nil {
			return err
		}
		return fmt.Errorf("%w: not all of them have made the last step", actors.ErrReduce)
	}
	s.t.withdraw() // nobody of the group lacks the state
	s.t.end()
	return nil
}

func (t *Trainers) end() {
	t.step(membership.Ended{Is: true})
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
