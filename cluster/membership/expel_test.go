package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A node that is put out ends with the reason, and loses its lead; its name and
// directory may come back, as another membership, and the others know which of
// its memberships are over for good. Time is the bubble's.
func TestExpel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		join := func(name string) *Member {
			m, err := enter(t, within(t), store, Config{Cluster: "test", Info: Info{Node: name, Home: name}})
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
		bad, good := join("a"), join("b")
		const reason = "its memory lies"
		if err := good.Expel(within(t), "a", bad.Epoch()-1, reason); err != nil {
			t.Error(err)
		}
		if v, _ := good.View(); len(v.Members) != 2 {
			t.Fatal("put out under an epoch that is not its own")
		}
		if err := good.Expel(within(t), "c", 1, reason); err == nil || !strings.Contains(err.Error(), "no node c to put out; the members are a, b") {
			t.Errorf("a node that there never was is put out: %v", err)
		}
		if err := good.Expel(within(t), "a", bad.Epoch(), reason); err != nil {
			t.Fatal(err)
		}
		if err := good.Expel(within(t), "a", bad.Epoch(), reason); err != nil {
			t.Errorf("it is put out again: %v", err)
		}
		if v, _ := good.View(); len(v.Members) != 1 {
			t.Errorf("members after it was put out: %v", v.Members)
		}
		lost(t, bad)
		if err := bad.Err(); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrExpelled) || !strings.Contains(err.Error(), reason) {
			t.Errorf("it ended with: %v", err)
		}
		if _, err := good.Until(within(t), good.Leads); err != nil {
			t.Error(err)
		}
		d, ok := departure(good.prefix, good.entries, "a")
		if !ok || d.Dead || d.Epoch != bad.Epoch() || d.Reason != reason {
			t.Errorf("its departure: %+v", d)
		}
		// It may still run. Of those that took its name later, one after the other, it
		// is known that they do not.
		first := join("a")
		second := join("a") // in its place
		lost(t, first)
		leave(first)
		leave(second)
		if _, err := good.Until(within(t), func(v *View) bool { return len(v.Members) == 1 }); err != nil {
			t.Error(err)
		}
		d, _ = departure(good.prefix, good.entries, "a")
		if !d.Dead || d.Since != first.Epoch() || d.Epoch != second.Epoch() {
			t.Errorf("after memberships %d, %d and %d: %+v", bad.Epoch(), first.Epoch(), second.Epoch(), d)
		}
		leave(bad)
		leave(good)
	})
}

// A node is put out as soon as the store takes it; whoever asks tries again soon, until its
// context ends or it is no member itself. Time is the bubble's.
func TestExpelTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		broken := &failing{Store: store}
		a, b := joined(t, broken, "a"), joined(t, store, "b")
		if _, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 2 }); err != nil {
			t.Fatal(err)
		}
		failed := 0
		broken.failed = func() {
			failed++
			broken.commit.Store(failed < 3)
		}
		broken.commit.Store(true)
		began := time.Now()
		if err := a.Expel(within(t), "b", b.Epoch(), "a test"); err != nil || failed != 3 {
			t.Errorf("after %d calls that failed: %v", failed, err)
		}
		if d := time.Since(began); d != 3*a.cfg.TTL/32 {
			t.Errorf("a store that answers again was told after %v", d)
		}
		lost(t, b)
		if v, _ := a.View(); len(v.Members) != 1 {
			t.Errorf("it is put out, and the view shows %+v", v.Members)
		}
		left(t, b)

		c := joined(t, store, "c")
		if _, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 2 }); err != nil {
			t.Fatal(err)
		}
		broken.failed = nil
		broken.commit.Store(true)
		short, cancel := context.WithTimeout(within(t), 10*time.Second)
		defer cancel()
		began = time.Now()
		if err := a.Expel(short, "c", c.Epoch(), "a test"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "node c") || time.Since(began) < 10*time.Second {
			t.Errorf("with a store that fails, after %v: %v", time.Since(began), err)
		}
		time.AfterFunc(time.Second, func() {
			if err := c.Expel(within(t), "a", a.Epoch(), "it was first"); err != nil {
				t.Error(err)
			}
		})
		if err := a.Expel(within(t), "c", c.Epoch(), "a test"); !errors.Is(err, ErrExpelled) || !strings.Contains(err.Error(), "it was first") {
			t.Errorf("by one that was put out itself: %v", err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("nobody put it out: %v", err)
		}
		broken.commit.Store(false)
		left(t, a, c)
	})
}
