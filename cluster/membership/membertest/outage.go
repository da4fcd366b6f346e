// Package membertest has what tests do to a cluster's store.
package membertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// ErrAway is what a store's calls return while it is away.
var ErrAway = errors.New("membertest: the store is away")

// Outage is a membership.Store that a test takes away, and brings back. Leases end meanwhile.
type Outage struct {
	store membership.Store

	mu      sync.Mutex
	here    context.Context // ends when the store goes away
	goes    context.CancelFunc
	refused int           // calls
	changed chan struct{} // closed when refused grows
}

// NewOutage returns a store that is there.
func NewOutage(store membership.Store) *Outage {
	o := &Outage{store: store, changed: make(chan struct{})}
	o.Back()
	return o
}

// Away takes the store away from all that use it by way of o.
func (o *Outage) Away() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goes()
}

// Back brings it back.
func (o *Outage) Back() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.here, o.goes = context.WithCancel(context.Background())
}

// Refused waits until n more calls have been refused: what a test has instead of a
// clock, as members try again all the time.
func (o *Outage) Refused(t testing.TB, ctx context.Context, n int) {
	t.Helper()
	for first := true; ; first = false {
		o.mu.Lock()
		now, changed := o.refused, o.changed
		o.mu.Unlock()
		if first {
			n += now
		}
		if now >= n {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Errorf("nobody asks for the store: %v", ctx.Err())
			return
		}
	}
}

// Undecided waits until none of members may decide.
func (o *Outage) Undecided(t testing.TB, ctx context.Context, members ...*membership.Member) {
	t.Helper()
	for _, m := range members {
		for m.MayDecide() && ctx.Err() == nil {
			o.Refused(t, ctx, 1)
		}
	}
}

// use returns the context of a call, or that the store is away.
func (o *Outage) use() (here context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.here.Err() != nil {
		o.refused++
		close(o.changed)
		o.changed = make(chan struct{})
		return nil, ErrAway
	}
	return o.here, nil
}

func (o *Outage) Grant(ctx context.Context, ttl time.Duration) (membership.Lease, error) {
	if _, err := o.use(); err != nil {
		return 0, err
	}
	return o.store.Grant(ctx, ttl)
}

func (o *Outage) Renew(ctx context.Context, l membership.Lease) error {
	if _, err := o.use(); err != nil {
		return err
	}
	return o.store.Renew(ctx, l)
}

func (o *Outage) Revoke(ctx context.Context, l membership.Lease) error {
	if _, err := o.use(); err != nil {
		return err
	}
	return o.store.Revoke(ctx, l)
}

func (o *Outage) Commit(ctx context.Context, ifs []membership.If, do []membership.Change) (bool, int64, error) {
	if _, err := o.use(); err != nil {
		return false, 0, err
	}
	return o.store.Commit(ctx, ifs, do)
}

func (o *Outage) List(ctx context.Context, prefix string) ([]membership.Entry, int64, error) {
	if _, err := o.use(); err != nil {
		return nil, 0, err
	}
	return o.store.List(ctx, prefix)
}

func (o *Outage) Watch(ctx context.Context, prefix string, after int64, f func([]membership.Entry, int64)) error {
	here, err := o.use()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(here, cancel)()
	return o.store.Watch(ctx, prefix, after, f)
}
