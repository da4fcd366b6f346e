package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
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
			lost(t, goes)
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

// late is a store whose grants and commits take a while.
type late struct {
	Store
	grants, commits time.Duration
}

func (l *late) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	defer time.Sleep(l.grants)
	return l.Store.Grant(ctx, ttl)
}

func (l *late) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	defer time.Sleep(l.commits)
	return l.Store.Commit(ctx, ifs, do)
}

// A node counts on its first lease from when it asked for it, to the nanosecond, however long
// it took to join. Time is the bubble's.
func TestFirstLease(t *testing.T) {
	const ttl = 8 * time.Second
	for _, took := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			memory := NewMemStore()
			defer memory.Close()
			link := &unreachable{Store: &late{memory, took, took}}
			link.cut.Store(true)
			began := time.Now()
			m, err := enter(t, within(t), link, Config{Cluster: "test", Info: Info{Node: "a", Home: "a"}, TTL: ttl, Outage: -1})
			if err != nil {
				t.Fatal(err)
			}
			lost(t, m)
			if d := time.Since(began); d != ttl*7/8 {
				t.Errorf("it was fenced %v after it began", d)
			}
			left(t, m)
		})
	}
}

// What becomes of a node's lease is in its log, once, and loud where somebody should look;
// that calls fail, as long as it has its lease. Time is the bubble's.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 8 * time.Second
		memory := NewMemStore()
		defer memory.Close()
		reads := &failing{Store: memory}
		link := &reluctant{Store: reads}
		var log records
		m, err := enter(t, within(t), link, Config{Cluster: "test", Info: Info{Node: "a", Home: "a"}, TTL: ttl, Logger: slog.New(&log)})
		if err != nil {
			t.Fatal(err)
		}
		log.want(t, "as long as all is well")
		link.renews.Store(true)
		reads.list.Store(true)
		time.Sleep(2 * ttl)
		log.want(t, "without the store", "DEBUG the lease could not be renewed yet", "DEBUG the store could not be read",
			"WARN the lease could not be renewed yet", "WARN the lease may have ended; what takes the store waits")
		link.renews.Store(false)
		reads.list.Store(false)
		time.Sleep(ttl)
		log.want(t, "with it again", "INFO this node has a lease again", "INFO this node is back, in the place that it had")
		if _, _, err := memory.Commit(within(t), nil, []Change{{Key: m.key()}}); err != nil {
			t.Fatal(err)
		}
		lost(t, m)
		log.want(t, "without its place", "ERROR this node is fenced")
		left(t, m)
	})
}

// records are what a log has, each once.
type records struct {
	mu  sync.Mutex
	all []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := record.Level.String() + " " + record.Message; !slices.Contains(r.all, line) {
		r.all = append(r.all, line)
	}
	return nil
}

// want fails unless the log has those lines when nothing more happens at this time of the bubble, and forgets them.
func (r *records) want(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.all)
	if !slices.Equal(r.all, want) {
		t.Errorf("%s the log has %q, want %q", when, r.all, want)
	}
	r.all = nil
}
