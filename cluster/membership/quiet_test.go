package membership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// watched counts watches.
type watched struct {
	Store
	watches atomic.Int64
}

func (w *watched) Watch(ctx context.Context, prefix string, after int64, f func([]Entry, int64)) error {
	w.watches.Add(1)
	return w.Store.Watch(ctx, prefix, after, f)
}

// Where nothing changes a member follows the store by one watch, and shows one view.
// Time is the bubble's.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: NewMemStore()}
		defer store.Store.(*MemStore).Close()
		m := joined(t, store, "a")
		synctest.Wait()
		before, changed := m.View()
		time.Sleep(10 * time.Minute)
		select {
		case <-changed:
			t.Error("it shows another view")
		default:
		}
		if after, _ := m.View(); after != before || store.watches.Load() != 1 {
			t.Errorf("%d watches, another view %t", store.watches.Load(), after != before)
		}
		left(t, m)
	})
}

// A process that was frozen knows at once that its time is over, before anything has
// told it; and one that is fenced does nothing, whatever its lease.
func TestThawed(t *testing.T) {
	terms := Terms{TTL: time.Minute, Outage: time.Hour}
	for _, c := range []struct {
		frozen       time.Duration
		err          error
		step, decide bool
	}{
		{0, nil, true, true},
		{0, ErrFenced, false, false},
		{2 * time.Minute, nil, true, false},
		{2 * time.Hour, nil, false, false},
	} {
		m := &Member{born: time.Now().Add(-c.frozen), standing: NewStanding(terms, 0, 0), err: c.err}
		if m.MayStep() != c.step || m.MayDecide() != c.decide {
			t.Errorf("frozen for %v, error %v: may step %t, may decide %t", c.frozen, c.err, m.MayStep(), m.MayDecide())
		}
	}
}

// Decides waits for a lease, for no longer than its context, and not for one that never
// comes. Time is the bubble's.
func TestDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		link := &reluctant{Store: store}
		m := joined(t, link, "a")
		if err := m.Decides(within(t)); err != nil {
			t.Fatal(err)
		}
		link.renews.Store(true)
		time.Sleep(10 * time.Second)
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := m.Decides(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a lease: %v", err)
		}
		time.AfterFunc(5*time.Second, func() { link.renews.Store(false) })
		began := time.Now()
		if err := m.Decides(within(t)); err != nil || !m.MayDecide() || time.Since(began) < 5*time.Second {
			t.Errorf("after %v: %v, and it may decide: %t", time.Since(began), err, m.MayDecide())
		}
		link.renews.Store(true)
		link.writes.Store(true)
		if err := m.Decides(within(t)); err != nil {
			t.Fatal(err) // it has its lease yet
		}
		time.Sleep(10 * time.Second)
		if err := m.Decides(within(t)); !errors.Is(err, ErrFenced) {
			t.Errorf("when it is fenced: %v", err)
		}
		if at, err := m.SetValue(within(t), 1, "x", 0, []byte("late")); at != 0 || !errors.Is(err, ErrFenced) {
			t.Errorf("a fenced node writes at %d: %v", at, err)
		}
		left(t, m)
	})
}
