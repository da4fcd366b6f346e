package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// announcements orders what a member writes about itself.
type announcements struct {
	turn chan struct{} // has room for who writes

	// Guarded by the member's lock.
	newest int64 // number of the newest change

	// Guarded by turn.
	written  int64 // number of the newest change that is in the store
	revision int64 // at which that was written
}

// Announce changes what this node says about itself.
func (m *Member) Announce(ctx context.Context, change func(*Info)) error {
	_, err := m.AnnounceAt(ctx, change)
	return err
}

// AnnounceAt is Announce that says at which revision the change was made: views
// from there on show it. It tries until the store has the change, this node is
// fenced, or ctx ends; the change is written with the next one then. Nobody
// waits for another's announcement longer than a call to the store takes.
func (m *Member) AnnounceAt(ctx context.Context, change func(*Info)) (int64, error) {
	m.mu.Lock()
	info := m.info
	change(&info)
	info.Node, info.Home, info.TTL, info.Outage = m.info.Node, m.info.Home, m.info.TTL, m.info.Outage
	m.info = info
	m.announced.newest++
	mine := m.announced.newest
	m.mu.Unlock()
	for {
		revision, err := m.announce(ctx, mine)
		switch {
		case err == nil || errors.Is(err, ErrFenced) || ctx.Err() != nil:
			return revision, err
		case m.Err() != nil:
			return 0, m.Err()
		case !m.pause(m.cfg.TTL / 32):
			return 0, err
		}
	}
}

// announce writes the newest of what this node says, unless change mine is in
// the store already, and returns the revision from which on it is.
func (m *Member) announce(ctx context.Context, mine int64) (int64, error) {
	select {
	case m.announced.turn <- struct{}{}:
	case <-m.lost:
		return 0, m.Err()
	case <-ctx.Done():
		return 0, fmt.Errorf("membership: announce: %w", context.Cause(ctx))
	}
	defer func() { <-m.announced.turn }()
	if m.announced.written < mine { // else somebody else's write had it
		if err := m.writePlace(ctx); errors.Is(err, ErrLeaseGone) {
			return 0, fmt.Errorf("%w: %w", ErrFenced, err)
		} else if err != nil {
			return 0, err
		}
	}
	return m.announced.revision, nil
}

// writePlace writes the newest of what this node says to the place that it has, with other changes; ErrFenced: it has it no more.
// It is for who has the turn to write.
func (m *Member) writePlace(ctx context.Context, also ...Change) error {
	m.mu.Lock()
	info, number := m.info, m.announced.newest
	m.mu.Unlock()
	value, err := json.Marshal(&info)
	if err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	ok, revision, err := m.store.Commit(ctx, []If{{Key: m.key(), Created: m.epoch}}, append(also, Change{Key: m.key(), Value: value}))
	if err == nil && !ok {
		err = ErrFenced
	}
	if err == nil {
		m.announced.written, m.announced.revision = number, revision
	}
	return err
}
