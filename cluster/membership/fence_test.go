package membership

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// unreachable is a store whose renewals fail from some time on.
type unreachable struct {
	Store
	cut atomic.Bool
}

var errCut = errors.New("no route")

func (u *unreachable) Renew(ctx context.Context, l Lease) error {
	if u.cut.Load() {
		return errCut
	}
	return u.Store.Renew(ctx, l)
}

// A node that cannot renew its lease is fenced while the others still count it
// as a member, whenever it was cut off; one that can stays. Time is the bubble's.
func TestFencedBeforeGone(t *testing.T) {
	const ttl = 2 * time.Second
	for cut := time.Duration(0); cut < ttl; cut += 77 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := NewMemStore()
			defer store.Close()
			join := func(name string, s Store) *Member {
				m, err := enter(t, within(t), s, Config{Cluster: "test", Info: Info{Node: name, Home: name}, TTL: ttl, Outage: -1})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			link := &unreachable{Store: store}
			stays := join("a", store)
			goes := join("b", link)
			time.AfterFunc(cut, func() { link.cut.Store(true) })
			began := time.Now()
			<-goes.Lost()
			if d := time.Since(began); d > cut+ttl {
				t.Errorf("cut off after %v: fenced only after %v", cut, d)
			}
			if err := goes.Err(); !strings.Contains(err.Error(), errCut.Error()) {
				t.Errorf("it does not say what was wrong with the store: %v", err)
			}
			synctest.Wait()
			if v, _ := stays.View(); len(v.Members) != 2 {
				t.Errorf("cut off after %v: it was a member no longer when it stopped", cut)
			}
			if _, err := goes.SetValue(within(t), 1, "x", 0, []byte("late")); !errors.Is(err, ErrFenced) {
				t.Errorf("a fenced node writes: %v", err)
			}
			if _, err := stays.Until(within(t), func(v *View) bool { return len(v.Members) == 1 }); err != nil {
				t.Error(err)
			}
			if err := stays.Err(); err != nil {
				t.Errorf("who renews its lease is fenced: %v", err)
			}
			for _, m := range []*Member{goes, stays} {
				if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
