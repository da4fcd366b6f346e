package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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
		if err := good.Expel(within(t), "a", bad.Epoch(), reason); err != nil {
			t.Fatal(err)
		}
		if v, _ := good.View(); len(v.Members) != 1 {
			t.Errorf("members after it was put out: %v", v.Members)
		}
		<-bad.Lost()
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
		<-first.Lost()
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
