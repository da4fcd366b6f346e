package membership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// frozen is a store whose watches say nothing and whose writes are lost, as
// those of a server that stands still, until it is thawed.
type frozen struct {
	Store
	deaf, lossy atomic.Bool
}

func (f *frozen) Watch(ctx context.Context, prefix string, after int64, g func([]Entry, int64)) error {
	if f.deaf.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.Store.Watch(ctx, prefix, after, g)
}

func (f *frozen) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	if f.lossy.Load() {
		<-ctx.Done()
		return false, 0, errors.Join(errCut, ctx.Err())
	}
	return f.Store.Commit(ctx, ifs, do)
}

// A member whose watch hangs hears of others within half a lease, and one whose
// bid for the lead was lost bids again. Time is the bubble's.
func TestWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		const ttl = 4 * time.Second
		join := func(name string, s Store) *Member {
			m, err := enter(t, within(t), s, Config{Cluster: "test", Info: Info{Node: name, Home: name}, TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		leave := func(m *Member) {
			if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
		a := join("a", store)
		link := &frozen{Store: store}
		link.deaf.Store(true)
		b := join("b", link)
		began := time.Now()
		c := join("c", store)
		if _, err := b.Until(within(t), func(v *View) bool { return len(v.Members) == 3 }); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > ttl/2 {
			t.Errorf("b heard of c after %v", d)
		}
		leave(c)
		link.lossy.Store(true)
		leave(a) // which led
		synctest.Wait()
		time.AfterFunc(ttl, func() { link.lossy.Store(false) })
		if _, err := b.Until(within(t), b.Leads); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 3*ttl {
			t.Errorf("b leads after %v", d)
		}
		if err := b.Err(); err != nil {
			t.Error(err)
		}
		leave(b)
	})
}
