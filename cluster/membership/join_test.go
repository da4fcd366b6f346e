package membership

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What Join refuses leaves nothing in the store. Time is the bubble's.
func TestJoinRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		for _, c := range []struct {
			cfg  Config
			want string
		}{
			{Config{Cluster: "c", Info: Info{Node: "no/name"}}, "no/name"},
			{Config{Cluster: "no/name", Info: Info{Node: "a"}}, "no/name"},
			{Config{Cluster: "c", Info: Info{Node: "a"}, TTL: time.Second - 1}, "the least is 1s"},
		} {
			if _, err := Join(within(t), store, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c.cfg, err)
			}
		}
		if _, _, err := store.Commit(within(t), nil, []Change{{Key: "/gnnactor/test/members/m", Value: []byte("{")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := Join(within(t), store, Config{Cluster: "test", Info: Info{Node: "m"}}); err == nil || !strings.Contains(err.Error(), "members/m") {
			t.Errorf("over a malformed place: %v", err)
		}
		for _, lists := range []bool{true, false} {
			broken := &failing{Store: store}
			broken.list.Store(lists)
			broken.commit.Store(!lists)
			if _, err := Join(within(t), broken, Config{Cluster: "test", Info: Info{Node: "a"}}); !errors.Is(err, errCut) {
				t.Errorf("a store that fails: %v", err)
			}
		}
		// One that waits for a leader whom nobody lets lead ends with its context.
		ctx, cancel := context.WithTimeout(within(t), time.Second)
		defer cancel()
		if _, err := Join(ctx, store, Config{Cluster: "test", Info: Info{Node: "a", Drain: true}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a leader: %v", err)
		}
		time.Sleep(4 * time.Second) // leases of calls that failed end
		all := values(t, store, "/gnnactor/")
		for key := range all {
			if key != "test/members/m" && key != "test/departed/a" {
				t.Errorf("the store has %q", key)
			}
		}
		if n := len(store.leases); n != 0 {
			t.Errorf("%d leases live", n)
		}
	})
}

// A name is its directory's: another one is refused while its node lives, or may; the
// same one takes its place. Time is the bubble's.
func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		join := func(home string) (*Member, error) {
			return enter(t, within(t), store, Config{Cluster: "test", Info: Info{Node: "a", Home: home, Data: "nowhere:port"}})
		}
		first, err := join("h")
		if err != nil {
			t.Fatal(err)
		}
		for _, home := range []string{"other", ""} {
			if _, err := join(home); !errors.Is(err, ErrNameTaken) || !strings.Contains(err.Error(), "nowhere:port") {
				t.Errorf("by %q: %v", home, err)
			}
		}
		second, err := join("h")
		if err != nil {
			t.Fatal(err)
		}
		lost(t, first)
		if err := first.Err(); !errors.Is(err, ErrExpelled) || !strings.Contains(err.Error(), "another process of its directory") {
			t.Errorf("the first: %v", err)
		}
		left(t, first)
		if v, _ := second.View(); len(v.Members) != 1 || v.Members[0].Epoch != second.Epoch() || second.Epoch() <= first.Epoch() {
			t.Errorf("members %+v, of epochs %d and %d", v.Members, first.Epoch(), second.Epoch())
		}
		left(t, second)
	})
}

// A node without a directory's identity takes the name of one that has died: whose lease
// has ended, and whose host refuses.
func TestNameOfTheDead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	store := NewMemStore()
	defer store.Close()
	value, err := json.Marshal(&Info{Node: "a", Home: "h", Data: address})
	if err != nil {
		t.Fatal(err)
	}
	alive := Change{Key: "/gnnactor/test/alive/a", Value: []byte("h")}
	if _, _, err := store.Commit(ctx, nil, []Change{{Key: "/gnnactor/test/members/a", Value: value}, alive}); err != nil {
		t.Fatal(err)
	}
	join := func() (*Member, error) {
		return enter(t, ctx, store, Config{Cluster: "test", Info: Info{Node: "a", Home: "other"}, TTL: time.Minute})
	}
	if _, err := join(); !errors.Is(err, ErrNameTaken) {
		t.Errorf("it lives, and listens: %v", err)
	}
	alive.Value = nil
	if _, _, err := store.Commit(ctx, nil, []Change{alive}); err != nil {
		t.Fatal(err)
	}
	if _, err := join(); !errors.Is(err, ErrNameTaken) {
		t.Errorf("it listens: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := join()
	if err != nil {
		t.Fatal(err)
	}
	v, _ := m.View()
	if len(v.Departed) != 1 || !v.Departed[0].Dead || !strings.Contains(v.Departed[0].Reason, address) {
		t.Errorf("departures %+v", v.Departed)
	}
	left(t, m)
}

// What Config leaves open has the documented values, which the others see, and no
// announcement changes who a node is. Time is the bubble's.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			cfg                  Config
			ttl, outage, leaving time.Duration
		}{
			{Config{}, 3 * time.Second, 2 * time.Minute, 3 * time.Second},
			{Config{TTL: time.Second, Outage: -1, Leaving: time.Minute}, time.Second, 0, time.Minute},
			{Config{TTL: time.Minute, Outage: time.Hour}, time.Minute, time.Hour, 3 * time.Second},
		} {
			store := NewMemStore()
			c.cfg.Cluster, c.cfg.Info = "test", Info{Node: "a", Home: "h", TTL: 7, Outage: 7}
			m, err := enter(t, within(t), store, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if m.Patience() != c.ttl/4 || m.cfg.Leaving != c.leaving {
				t.Errorf("%+v: patience %v, leaving %v", c.cfg, m.Patience(), m.cfg.Leaving)
			}
			if err := m.Announce(within(t), func(i *Info) { *i = Info{Node: "z", Home: "z", TTL: 9, Outage: 9, Source: true} }); err != nil {
				t.Fatal(err)
			}
			v, err := m.Until(within(t), func(v *View) bool { return len(v.Members) == 1 && v.Members[0].Source })
			if err != nil {
				t.Fatal(err)
			}
			if me := v.Members[0]; me.Node != "a" || me.Home != "h" || me.TTL != c.ttl || me.Outage != c.outage {
				t.Errorf("the others see %+v", me)
			}
			if !m.Leads(v) || v.Epoch == 0 {
				t.Errorf("leader %q of epoch %d", v.Leader, v.Epoch)
			}
			left(t, m)
			store.Close()
		}
	})
}

// A node that waits leads only when it stands; who drains does not stand, and who resigns
// may be followed by any; who does not lead resigns nothing. Time is the bubble's.
func TestStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		waits, err := enter(t, within(t), store, Config{Cluster: "test", Info: Info{Node: "a", Home: "a"}, Waits: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v, _ := waits.View(); v.Leader != "" || waits.Leads(v) {
			t.Errorf("%q leads, and nobody stands", v.Leader)
		}
		b := joined(t, store, "b")
		waits.Stand()
		synctest.Wait()
		v, _ := b.View()
		if v.Leader != "b" || !b.Leads(v) || waits.Leads(v) {
			t.Errorf("%q leads", v.Leader)
		}
		if err := waits.Resign(within(t)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if now, _ := b.View(); now.Epoch != v.Epoch {
			t.Error("another resigned in its name")
		}
		if err := b.Announce(within(t), func(i *Info) { i.Yield = true }); err != nil {
			t.Fatal(err)
		}
		if err := b.Resign(within(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		now, _ := b.View()
		if now.Leader != "a" || now.Epoch <= v.Epoch {
			t.Errorf("%q leads, of epoch %d after %d", now.Leader, now.Epoch, v.Epoch)
		}
		if all, ok := now.Member("b"); !ok || !all.Drains() {
			t.Errorf("b is %+v", all)
		}
		left(t, waits)
		time.Sleep(time.Minute)
		if v, _ := b.View(); v.Leader != "" {
			t.Errorf("%q drains, and leads", v.Leader)
		}
		left(t, b)
		// The first membership of a store is of epoch 1.
		if all := values(t, store, "/gnnactor/test/"); all["departed/a"] == "" || all["departed/b"] == "" || len(all) != 2 || waits.Epoch() != 1 {
			t.Errorf("when all have left, the first of epoch %d, the store has %q", waits.Epoch(), all)
		}
	})
}

// A member whose lease ends is absent: at once for who was with the store, and not for who
// comes meanwhile, or was away itself; its place goes when it is over, and it departs.
// Time is the bubble's.
func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, outage = 2 * time.Second, 20 * time.Second
		store := NewMemStore()
		defer store.Close()
		join := func(name string, s Store) *Member {
			m, err := enter(t, within(t), s, Config{Cluster: "test", Info: Info{Node: name, Home: name}, TTL: ttl, Outage: outage})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a := join("a", store)
		dead := join("dead", store)
		if _, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 2 }); err != nil {
			t.Fatal(err)
		}
		dead.stop() // as a process that is killed
		ended := time.Now()
		names := func(all []Info) (s []string) {
			for _, i := range all {
				s = append(s, i.Node)
			}
			return s
		}
		v, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 1 })
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(ended); d > ttl || !slices.Equal(names(v.Absent), []string{"dead"}) || !v.Absent[0].Away {
			t.Errorf("after %v it sees %v absent", d, v.Absent)
		}
		if _, in := v.Member("dead"); in || v.Members[0].Away {
			t.Errorf("members %+v", v.Members)
		}
		late := join("late", store) // cannot tell why it does not live
		v, _ = late.View()
		if i, in := v.Member("dead"); !in || !i.Away || len(v.Absent) != 0 || i.Epoch != dead.Epoch() {
			t.Errorf("who comes sees the members %v", names(v.Members))
		}
		if v, err := Look(within(t), store, "test"); err != nil || len(v.Members) != 2 || !slices.Equal(names(v.Absent), []string{"dead"}) || v.Leader != "a" {
			t.Errorf("who looks sees the members %v, %v", v, err)
		}
		began := time.Now()
		if _, err := late.Until(within(t), func(v *View) bool { return len(v.Members) == 2 }); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < ttl || d > 3*ttl {
			t.Errorf("it was held for %v", d)
		}
		v, err = a.Until(within(t), func(v *View) bool { return len(v.Absent) == 0 })
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(ended); d < outage+ttl || d > outage+5*ttl {
			t.Errorf("it was over after %v", d)
		}
		if len(v.Departed) != 1 || !v.Departed[0].Dead || v.Departed[0].Epoch != dead.Epoch() || !strings.Contains(v.Departed[0].Reason, "not heard of for 23s") {
			t.Errorf("departures %+v", v.Departed)
		}
		left(t, a, late, dead)
	})
}
