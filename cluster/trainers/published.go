package trainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Published names the newest checkpoint of a run in a directory that the nodes
// share. It is written to the store by the first trainer of a group, as long as
// the group is the newest: one that was frozen, or cut off, and goes on writing
// can neither replace a newer checkpoint nor be taken for it.
type Published struct {
	File   string `json:"file"` // within the directory
	SHA256 string `json:"sha256"`
	Step   int64  `json:"step"`
	Group  int64  `json:"group"`
}

const publishedKey = "checkpoint"

// ErrAway: the store does not answer.
var ErrAway = errors.New("trainers: the store is away")

// ErrStaleGroup: a checkpoint of a group that is not the newest any more.
var ErrStaleGroup = errors.New("trainers: there is a newer group")

// Published returns what was published last; false: nothing yet.
func (t *Trainers) Published() (Published, bool) {
	b, _ := t.o.Member.Value(publishedKey)
	var p Published
	if b == nil || json.Unmarshal(b, &p) != nil {
		return Published{}, false
	}
	return p, true
}

// First reports whether this node is the one that writes for the group.
func (s *Share) First() bool { return s.group.Self() == 0 }

// Group returns the group's number: larger for later ones.
func (s *Share) Group() int64 { return s.id }

// Publish makes a checkpoint that this node has written the newest. It tries
// until it has, or there is a newer group (ErrStaleGroup), or the store is away
// (ErrAway), or ctx ends.
func (s *Share) Publish(ctx context.Context, p Published) error {
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
			return fmt.Errorf("%w than %d, which would publish %s: %w", ErrStaleGroup, s.id, p.File, err)
		case ctx.Err() != nil:
			return fmt.Errorf("trainers: publish %s: %w", p.File, err)
		case !m.MayDecide():
			return fmt.Errorf("%w: publish %s: %w", ErrAway, p.File, err)
		}
		pause := time.NewTimer(patience) // a store without a leader refuses at once
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("trainers: publish %s: %w", p.File, err)
		}
	}
}
