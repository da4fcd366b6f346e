package membership

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// While a server of the store stands still, no announcement, and nobody behind
// it, waits for longer than it is asked to; when it goes on, the store has all
// that was said. Time is the bubble's.
func TestAnnounceToFrozenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		link := &frozen{Store: store}
		const ttl = 8 * time.Second
		m, err := enter(t, within(t), link, Config{Cluster: "test", Info: Info{Node: "a", Home: "a"}, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		link.lossy.Store(true)
		began := time.Now()
		said := make(chan error, 2)
		var revision int64
		go func() { // without a limit of its own
			var err error
			revision, err = m.AnnounceAt(context.WithoutCancel(t.Context()), func(i *Info) { i.Kinds = append(i.Kinds, "x") })
			said <- err
		}()
		synctest.Wait()
		brief, cancel := context.WithTimeout(within(t), time.Second)
		defer cancel()
		if err := m.Announce(brief, func(i *Info) { i.Source = true }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an announcement behind one that hangs: %v", err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("it was kept for %v, of a second that it had", d)
		}
		if _, err := m.Propose(context.WithoutCancel(t.Context()), "k", 0, []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a proposal: %v", err)
		}
		if d := time.Since(began); d > time.Second+m.Patience() {
			t.Errorf("a proposal was kept for %v", d-time.Second)
		}
		link.lossy.Store(false)
		if err := <-said; err != nil {
			t.Fatal(err)
		}
		v, err := m.Until(within(t), func(v *View) bool { return v.Revision >= revision })
		if err != nil {
			t.Fatal(err)
		}
		if me, in := v.Member("a"); !in || !slices.Contains(me.Kinds, "x") || !me.Source {
			t.Errorf("the store has %+v", me)
		}
		if d := time.Since(began); d > time.Second+2*m.Patience()+ttl/16 {
			t.Errorf("it was written %v after the store stood still", d)
		}
		if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// Announcements that end together are in the store together, the newest of each
// kind, and each returns a revision that shows its change.
func TestAnnounceTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := NewMemStore()
	defer store.Close()
	m, err := enter(t, ctx, store, Config{Cluster: "test", Info: Info{Node: "a", Home: "a"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	const each, callers = 50, 8
	done := make(chan error, callers)
	for c := range callers {
		go func() {
			for k := range each {
				shard := c*each + k
				at, err := m.AnnounceAt(ctx, func(i *Info) { i.Shards = append(slices.Clone(i.Shards), shard) })
				if err == nil {
					_, err = m.Until(ctx, func(v *View) bool {
						me, _ := v.Member("a")
						if v.Revision >= at && !slices.Contains(me.Shards, shard) {
							t.Errorf("revision %d, from %d on, lacks shard %d", v.Revision, at, shard)
						}
						return v.Revision >= at
					})
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	v, _ := m.View()
	if me, _ := v.Member("a"); len(me.Shards) != each*callers {
		t.Errorf("%d of %d changes", len(me.Shards), each*callers)
	}
	if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
