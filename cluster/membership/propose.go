package membership

import (
	"context"
	"slices"
)

// Propose writes a value of the run's state that no leader is needed for, if
// it is still at epoch (0: there is none), and returns its new epoch; nil deletes
// it. Values under the keys of forget are deleted with the same stroke. When
// somebody else was first, it is ErrStale: Value has theirs soon.
func (m *Member) Propose(ctx context.Context, key string, epoch int64, value []byte, forget ...string) (int64, error) {
	if err := m.Err(); err != nil {
		return 0, err
	}
	full := m.prefix + "state/" + key
	entries, _, err := m.store.List(ctx, full)
	if err != nil {
		return 0, err
	}
	is := If{Key: full}
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == full }); i >= 0 {
		is.Created, is.Modified = entries[i].Created, entries[i].Modified
	}
	if is.Modified != epoch {
		return 0, ErrStale
	}
	do := []Change{{Key: full, Value: value}}
	for _, key := range forget {
		do = append(do, Change{Key: m.prefix + "state/" + key})
	}
	ok, revision, err := m.store.Commit(ctx, []If{is, {Key: m.key(), Created: m.epoch}}, do)
	if err == nil && !ok {
		err = ErrStale
	}
	return revision, err
}
