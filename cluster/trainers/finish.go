package trainers

import (
	"context"
	"slices"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Finish ends a run: it returns when every trainer has made the last step, or
// is gone. Those that come later train without this node.
func (t *Trainers) Finish(ctx context.Context, share *Share, s State) error {
	for {
		if share != nil {
			// No step is going to end the group: who came meanwhile shall have the state
			// that the run ends with.
			t.between(share.group, false)
			_, err := share.round(ctx, firstStep+s.Step, hello{})
			if err == nil {
				t.withdraw() // nobody of the group lacks the state
				t.end()
				return nil
			}
			if ctx.Err() != nil {
				return err
			}
			if err := t.failed(ctx, share.id, share.group.Members()); err != nil {
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
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// retire says that this node trains no more, to those that came after its last
// step and wait for it in a group of theirs.
func (t *Trainers) retire(ctx context.Context) error {
	t.part.Lock()
	defer t.part.Unlock()
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if !ended { // it began another run meanwhile
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
	defer cancel()
	err := t.o.Member.Announce(ctx, func(i *membership.Info) {
		i.Kinds = slices.DeleteFunc(slices.Clone(i.Kinds), func(k string) bool { return k == Kind })
	})
	if err == nil {
		t.said = false
	}
	return err
}
