package membership

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reluctant is a store that refuses to renew leases, or to be written, when a test says so.
type reluctant struct {
	Store
	renews, writes atomic.Bool // refused
	grants         atomic.Int64
}

func (r *reluctant) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	r.grants.Add(1)
	return r.Store.Grant(ctx, ttl)
}

func (r *reluctant) Renew(ctx context.Context, l Lease) error {
	if r.renews.Load() {
		return errCut
	}
	return r.Store.Renew(ctx, l)
}

func (r *reluctant) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	if r.writes.Load() {
		return false, 0, ErrLeaseGone // of the new one; an error like any other
	}
	return r.Store.Commit(ctx, ifs, do)
}

// A node that tries many times to come back does so by one new lease, which has its full time
// when it is back. Time is the bubble's.
func TestComeBackByOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		memory := NewMemStore()
		defer memory.Close()
		store := &reluctant{Store: memory}
		m, err := enter(t, within(t), store, Config{Cluster: "test", Info: Info{Node: "a", Home: "h"}, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		store.renews.Store(true)
		time.Sleep(2 * ttl) // its lease ends
		store.writes.Store(true)
		store.renews.Store(false)
		time.Sleep(5 * ttl)
		if m.MayDecide() || m.Err() != nil {
			t.Errorf("it may decide without a lease, or is no member: %v", m.Err())
		}
		store.writes.Store(false)
		if err := m.Decides(within(t)); err != nil {
			t.Fatal(err)
		}
		if n := store.grants.Load(); n != 2 {
			t.Errorf("%d leases in all, and not one to come and one to come back", n)
		}
		store.renews.Store(true)
		for m.MayDecide() { // for as long as it counts on the lease, that lives
			if all, _, err := memory.List(within(t), m.aliveKey("a")); len(all) == 0 {
				t.Fatal("the store ended its lease before it did", err)
			}
			time.Sleep(ttl / 64)
		}
		if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A node that does not count on its lease any more does not take the lead, although the store
// would still give it. Time is the bubble's.
func TestBidsWithLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 8 * time.Second
		memory := NewMemStore()
		defer memory.Close()
		link := &reluctant{Store: memory}
		join := func(name string, s Store) *Member {
			m, err := enter(t, within(t), s, Config{Cluster: "test", Info: Info{Node: name, Home: name}, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		leads, other := join("a", memory), join("b", link)
		if err := leads.Announce(within(t), func(i *Info) { i.Drain = true }); err != nil { // it does not stand again
			t.Fatal(err)
		}
		link.renews.Store(true)
		for other.MayDecide() {
			time.Sleep(ttl / 64)
		}
		if err := leads.Resign(within(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all, _, err := memory.List(within(t), other.prefix)
		if err != nil {
			t.Fatal(err)
		}
		keys := byKey(all)
		if _, lives := keys[other.aliveKey("b")]; !lives {
			t.Fatal("its lease has ended in the store, which the test is not about")
		}
		if e, led := keys[other.leaderKey()]; led {
			t.Errorf("%s leads", e.Value)
		}
		link.renews.Store(false)
		if _, err := other.Until(within(t), func(v *View) bool { return v.Leader == "b" }); err != nil {
			t.Error(err)
		}
		for _, m := range []*Member{leads, other} {
			if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
}
