package membership

import (
	"context"
	"fmt"
)

// Values of the run's state are written by compare-and-swap: while this node is a member, as far as the store
// and it itself know, and if what they depend on is as it was.

func (m *Member) stateKey(key string) string { return m.prefix + "state/" + key }

// SetValue writes a value, such as the newest checkpoint, as leader of epoch leader, if it is still at
// epoch (0: there is none), and returns its new one. Nil deletes.
func (m *Member) SetValue(ctx context.Context, leader int64, key string, epoch int64, value []byte) (int64, error) {
	return m.swap(ctx, key, epoch, []If{{Key: m.leaderKey(), Created: leader}}, Change{Key: m.stateKey(key), Value: value})
}

// Propose is SetValue that no leader is needed for. Values under the keys of forget are deleted with
// the same stroke. When somebody else was first, it is ErrStale: Value has theirs soon.
func (m *Member) Propose(ctx context.Context, key string, epoch int64, value []byte, forget ...string) (int64, error) {
	do := []Change{{Key: m.stateKey(key), Value: value}}
	for _, key := range forget {
		do = append(do, Change{Key: m.stateKey(key)})
	}
	return m.swap(ctx, key, epoch, nil, do...)
}

// SetUnder writes a value as long as another one, guard, is still at revision epoch: what belongs to a guard
// that was replaced is ErrStale. It may be called again when it failed.
func (m *Member) SetUnder(ctx context.Context, guard string, epoch int64, key string, value []byte) (int64, error) {
	if epoch == 0 {
		return 0, fmt.Errorf("%w: there is no %s", ErrStale, guard)
	}
	return m.swap(ctx, guard, epoch, nil, Change{Key: m.stateKey(key), Value: value})
}

// swap makes changes if a value is at a revision, and ifs hold.
func (m *Member) swap(ctx context.Context, key string, epoch int64, ifs []If, do ...Change) (int64, error) {
	if err := m.Err(); err != nil {
		return 0, err
	}
	is := If{Key: m.stateKey(key)}
	if epoch != 0 {
		all, _, err := m.store.List(ctx, is.Key)
		if err != nil {
			return 0, err
		}
		is.Created, is.Modified = byKey(all)[is.Key].Created, epoch
	}
	ok, revision, err := m.store.Commit(ctx, append(ifs, is, If{Key: m.key(), Created: m.epoch}), do)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("%w: %s is not at revision %d, or this node is not what it was", ErrStale, key, epoch)
	}
	return revision, nil
}
