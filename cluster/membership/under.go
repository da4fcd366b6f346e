package membership

import (
	"context"
	"fmt"
	"slices"
)

// SetUnder writes a value of the run's state as long as another one, guard, is
// still at revision epoch and this node is a member: what belongs to a guard
// that was replaced is ErrStale. It may be called again when it failed.
func (m *Member) SetUnder(ctx context.Context, guard string, epoch int64, key string, value []byte) (int64, error) {
	if err := m.Err(); err != nil {
		return 0, err
	}
	full := m.prefix + "state/" + guard
	entries, _, err := m.store.List(ctx, full)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == full })
	if i < 0 || entries[i].Modified != epoch {
		return 0, fmt.Errorf("%w: %s is not at revision %d", ErrStale, guard, epoch)
	}
	ok, revision, err := m.store.Commit(ctx, []If{{full, entries[i].Created, epoch}, {Key: m.key(), Created: m.epoch}},
		[]Change{{Key: m.prefix + "state/" + key, Value: value}})
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s under %s at revision %d", ErrStale, key, guard, epoch)
	}
	return revision, err
}
