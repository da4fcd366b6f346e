package trainers

import (
	"context"
	"slices"

	"github.com/gnnactor/gnnactor/cluster/group"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Finish ends a run: it returns when every trainer has made the last step, or
// is gone. Those that come later train without this node.
func (t *Trainers) Finish(ctx context.Context, share *Share, s State) error {
	for {
		if share != nil {
			// No step is going to end the group: who came meanwhile shall have the state
			// that the run ends with.
			t.between(share.id, false)
			_, err := share.round(ctx, firstStep+s.Step, hello{})
			if err == nil {
				t.withdraw() // nobody of the group lacks the state
				t.end()
				return nil
			}
			if ctx.Err() != nil {
				return err
			}
			if err := t.failed(ctx, share.id); err != nil {
				return err
			}
		}
		var err error
		if share, err = t.Meet(ctx, s); err != nil {
			return err
		}
	}
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
	t.saying.Lock()
	defer t.saying.Unlock()
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
		t.said = false
	}
	return err
}
