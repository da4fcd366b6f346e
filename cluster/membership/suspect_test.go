package membership

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// Of those that do not answer, those whose hosts refuse are put out, and are over; who
// listens stays, as who has no place, and the one that asks.
func TestSuspect(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := NewMemStore()
	defer store.Close()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	short, stop := context.WithCancel(ctx)
	defer stop()
	broken := &failing{Store: store, failed: stop}
	join := func(name, data string) *Member {
		var s Store = store
		if name == "b" {
			s = broken
		}
		m, err := enter(t, ctx, s, Config{Cluster: "test", Info: Info{Node: name, Home: name, Data: data}, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	lives, dies, gone := listen(), listen(), listen()
	defer lives.Close()
	a, b := join("a", gone.Addr().String()), join("b", lives.Addr().String())
	c, d := join("c", dies.Addr().String()), join("d", dies.Addr().String())
	for _, l := range []net.Listener{dies, gone} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// One of the two does not live any more, and is absent.
	d.stop()
	if err := store.Revoke(ctx, d.held()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Until(ctx, func(v *View) bool { return len(v.Members) == 3 && len(v.Absent) == 1 }); err != nil {
		t.Fatal(err)
	}
	died, err := a.Suspect(ctx, []string{"a", "b", "c", "d", "nobody"})
	slices.Sort(died)
	if err != nil || !slices.Equal(died, []string{"c", "d"}) {
		t.Fatalf("died: %v, %v", died, err)
	}
	v, _ := a.View()
	if len(v.Members) != 2 || len(v.Absent) != 0 || v.Members[0].Node != "a" || v.Members[1].Node != "b" {
		t.Errorf("members %+v, absent %+v", v.Members, v.Absent)
	}
	for _, departed := range v.Departed {
		if !departed.Dead || !strings.Contains(departed.Reason, dies.Addr().String()) {
			t.Errorf("departed: %+v", departed)
		}
	}
	lost(t, c)
	// A store that fails is told, and who asks does not count the node as dead.
	e := join("e", dies.Addr().String())
	if _, err := b.Until(ctx, func(v *View) bool { return len(v.Members) == 3 }); err != nil {
		t.Fatal(err)
	}
	broken.commit.Store(true)
	if died, err := b.Suspect(short, []string{"e"}); !errors.Is(err, context.Canceled) || len(died) != 0 {
		t.Errorf("with a store that fails: died %v, %v", died, err)
	}
	broken.commit.Store(false)
	left(t, a, b, c, d, e)
	if died, err := b.Suspect(ctx, []string{"e"}); len(died) != 0 || err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("by one that has left: %v, %v", died, err)
	}
}
