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
	refusing := func() string { // an address that is taken, but nobody listens there
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
		c, err := d.DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.LocalAddr().String()
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
	lives, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lives.Close()
	dies := refusing()
	a, b := join("a", refusing()), join("b", lives.Addr().String())
	c, d := join("c", dies), join("d", dies)
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
		if !departed.Dead || !strings.Contains(departed.Reason, dies) {
			t.Errorf("departed: %+v", departed)
		}
	}
	lost(t, c)
	// A store that fails is told, and who asks does not count the node as dead.
	e := join("e", dies)
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
