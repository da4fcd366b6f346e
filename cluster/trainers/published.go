package trainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// publishedKey is where the newest checkpoint of a run in a directory that the nodes share is named.
// The first trainer of a group writes it, as long as the group is the newest: one that was frozen, or cut
// off, and goes on writing can neither replace a newer checkpoint nor be taken for it.
const publishedKey = "checkpoint"

// Published implements training.Archive.
func (t *Trainers) Published() (training.Published, bool) {
	b, _ := t.o.Member.Value(publishedKey)
	var p training.Published
	if b == nil || json.Unmarshal(b, &p) != nil {
		return training.Published{}, false
	}
	return p, true
}

// First implements training.Writing.
func (s *Share) First() bool { return s.group.self == 0 }

// Number implements training.Writing.
func (s *Share) Number() int64 { return s.id }

// Publish implements training.Writing.
func (s *Share) Publish(ctx context.Context, p training.Published) error {
	p.Group = s.id
	value, err := json.Marshal(&p)
	if err != nil {
		return fmt.Errorf("trainers: %w", err)
	}
	m := s.t.o.Member
	for {
		call, cancel := context.WithTimeout(ctx, m.Patience())
		_, err = m.SetUnder(call, groupKey, s.id, publishedKey, value)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, membership.ErrFenced):
			return err
		case errors.Is(err, membership.ErrStale):
			return fmt.Errorf("%w than %d, which would publish %s: %w", training.ErrStaleGroup, s.id, p.File, err)
		case ctx.Err() != nil:
			return fmt.Errorf("trainers: publish %s: %w", p.File, err)
		case !m.MayDecide():
			return fmt.Errorf("%w: publish %s: %w", training.ErrAway, p.File, err)
		}
		if !sleep(ctx, patience) { // a store without a leader refuses at once
			return fmt.Errorf("trainers: publish %s: %w", p.File, err)
		}
	}
}
