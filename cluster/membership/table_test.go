package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// within returns the test's context, which ends after an hour: in a bubble at once, when
// nothing else happens any more.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// enter is Join of a member that stops with the test, however that ends: a bubble in which
// it went on would have no end.
func enter(t *testing.T, ctx context.Context, s Store, cfg Config) (*Member, error) {
	m, err := Join(ctx, s, cfg)
	if err == nil {
		t.Cleanup(m.stop)
	}
	return m, err
}

// joined returns a member of a store that leaves it with the test. Call it in a bubble.
func joined(t *testing.T, s Store, name string) *Member {
	t.Helper()
	m, err := enter(t, within(t), s, Config{Cluster: "test", Info: Info{Node: name, Home: name}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func left(t *testing.T, all ...*Member) {
	t.Helper()
	for _, m := range all {
		if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// lost waits until a member is fenced: an hour, of a bubble's time or of its own.
func lost(t *testing.T, m *Member) {
	t.Helper()
	select {
	case <-m.Lost():
	case <-within(t).Done():
		t.Fatalf("node %s is not fenced", m.cfg.Info.Node)
	}
}

// values are the keys and values of a store under a prefix.
func values(t *testing.T, s Store, prefix string) map[string]string {
	t.Helper()
	list, _, err := s.List(within(t), prefix)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		all[strings.TrimPrefix(e.Key, prefix)] = string(e.Value)
	}
	return all
}

// The table of places takes a write whole or not at all: by the leader of its epoch, each
// entry over the one that was read. Time is the bubble's.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		a, b := joined(t, store, "a"), joined(t, store, "b")
		v, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 2 })
		if err != nil {
			t.Fatal(err)
		}
		set := func(m *Member, leader int64, places ...Place) error {
			err := m.SetPlaces(within(t), leader, places)
			synctest.Wait()
			return err
		}
		places := []Place{{Kind: "rows", ID: "1", Node: "b"}, {Kind: "rows", ID: "0", Node: "a"}, {Kind: "cache", ID: "9", Node: "b"}}
		if err := set(a, v.Epoch, places...); err != nil {
			t.Fatal(err)
		}
		got := b.Places()
		if len(got) != 3 || got[0].Kind != "cache" || got[1].ID != "0" || got[2].ID != "1" || got[2].Node != "b" || got[2].Epoch == 0 {
			t.Fatalf("the table is %+v", got)
		}
		rows1, ok := b.Place("rows", "1")
		if !ok || rows1 != got[2] {
			t.Errorf("rows/1 is %+v, %t", rows1, ok)
		}
		if _, ok := b.Place("rows", "2"); ok {
			t.Error("rows/2 is somewhere")
		}
		moved := rows1
		moved.Node = "a"
		for what, err := range map[string]error{
			"another leader's epoch":        set(a, v.Epoch+1, moved),
			"an entry that is there":        set(a, v.Epoch, Place{Kind: "rows", ID: "2", Node: "a"}, Place{Kind: "rows", ID: "0", Node: "b"}),
			"an entry that is not there":    set(a, v.Epoch, Place{Kind: "rows", ID: "7", Node: "a", Epoch: rows1.Epoch}),
			"an entry of another revision":  set(a, v.Epoch, Place{Kind: "rows", ID: "1", Node: "a", Epoch: rows1.Epoch - 1}),
			"an entry that one cannot read": set(a, v.Epoch, moved, Place{Kind: "rows", ID: "9", Epoch: 1}),
		} {
			if !errors.Is(err, ErrStale) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, bad := range []Place{{Kind: "rows", Node: "a"}, {ID: "1", Node: "a"}, {Kind: "ro/ws", ID: "1", Node: "a"}, {Kind: "rows", ID: "/", Node: "a"}} {
			if err := set(a, v.Epoch, bad); err == nil || errors.Is(err, ErrStale) || !strings.Contains(err.Error(), fmt.Sprintf("kind %q", bad.Kind)) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if now := b.Places(); !slices.Equal(now, got) {
			t.Errorf("refused writes made %+v of %+v", now, got)
		}
		if err := set(a, v.Epoch, moved); err != nil {
			t.Fatal(err)
		}
		now, _ := b.Place("rows", "1")
		if now.Node != "a" || now.Epoch <= rows1.Epoch {
			t.Errorf("moved, it is %+v", now)
		}
		if err := set(a, v.Epoch, rows1); !errors.Is(err, ErrStale) {
			t.Errorf("over a newer entry: %v", err)
		}
		now.Node = ""
		if err := set(a, v.Epoch, now); err != nil {
			t.Fatal(err)
		}
		if _, ok := b.Place("rows", "1"); ok || len(b.Places()) != 2 {
			t.Errorf("deleted, the table is %+v", b.Places())
		}
		var many []Place
		for i := range MaxPlaces + 1 {
			many = append(many, Place{Kind: "sampler", ID: fmt.Sprint(i), Node: "a"})
		}
		if err := set(a, v.Epoch, many...); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("%d at once: %v", len(many), err)
		}
		if err := set(a, v.Epoch, many[1:]...); err != nil || len(a.Places()) != 2+MaxPlaces {
			t.Errorf("%d at once: %v", MaxPlaces, err)
		}
		left(t, a)
		if err := set(a, v.Epoch, Place{Kind: "rows", ID: "1", Node: "a"}); !errors.Is(err, ErrStale) {
			t.Errorf("by one that has left: %v", err)
		}
		left(t, b)
	})
}

// Values of the run's state are compared and swapped: under a leader, under another value,
// or freely; keys that begin alike are not taken for each other. Time is the bubble's.
func TestValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		broken := &failing{Store: store}
		a, b := joined(t, broken, "a"), joined(t, store, "b")
		v, _ := a.View()
		const key = "checkpoint"
		state := a.prefix + "state/"
		must := func(revision int64, err error) int64 {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return revision
		}
		stale := func(what string, revision int64, err error) {
			t.Helper()
			if !errors.Is(err, ErrStale) {
				t.Errorf("%s: %v", what, err)
			}
		}
		ctx := within(t)
		set := func(leader, epoch int64, value string) (int64, error) {
			return a.SetValue(ctx, leader, key, epoch, []byte(value))
		}
		for _, other := range []string{"checkpoin", key + "2", "a"} {
			must(a.SetValue(ctx, v.Epoch, other, 0, []byte("other")))
		}
		if value, at := b.Value(key); value != nil || at != 0 {
			t.Errorf("before it is written it is %q at %d", value, at)
		}
		r, err := set(v.Epoch, 5, "x")
		stale("over one that is not there", r, err)
		r, err = set(v.Epoch-1, 0, "x")
		stale("under another leader's epoch", r, err)
		first := must(set(v.Epoch, 0, "one"))
		if value, at := b.Value(key); string(value) != "one" || at != first {
			t.Errorf("it is %q at %d, and was written at %d", value, at, first)
		}
		r, err = set(v.Epoch, 0, "x")
		stale("as if it were not there", r, err)
		second := must(set(v.Epoch, first, "two"))
		r, err = set(v.Epoch, first, "x")
		stale("over a newer one", r, err)

		// Proposals take no leader.
		r, err = b.Propose(ctx, key, first, []byte("x"))
		stale("proposed over a newer one", r, err)
		r, err = b.Propose(ctx, key, 0, []byte("x"))
		stale("proposed as if it were not there", r, err)
		r, err = b.Propose(ctx, "new", 3, []byte("x"))
		stale("proposed over one that is not there", r, err)
		third := must(b.Propose(ctx, key, second, []byte("three"), "a", "not there"))
		if all := values(t, store, state); all[key] != "three" || all["a"] != "" || all[key+"2"] != "other" || len(all) != 3 {
			t.Errorf("after a proposal that forgets a: %q", all)
		}
		made := must(b.Propose(ctx, "new", 0, []byte("made")))
		must(b.Propose(ctx, "new", made, nil))
		if value, at := a.Value("new"); value != nil || at != 0 {
			t.Errorf("deleted, it is %q at %d", value, at)
		}

		// Under a guard that stands.
		r, err = b.SetUnder(ctx, key, second, "part", []byte("x"))
		stale("under a guard that was replaced", r, err)
		r, err = b.SetUnder(ctx, "nothing", 0, "part", []byte("x"))
		stale("under no guard", r, err)
		at := must(b.SetUnder(ctx, key, third, "part", []byte("four")))
		if value, is := a.Value("part"); string(value) != "four" || is != at {
			t.Errorf("under its guard it is %q at %d, and was written at %d", value, is, at)
		}
		must(b.SetUnder(ctx, key, third, "part", []byte("again")))

		left(t, b)
		r, err = b.Propose(ctx, "late", 0, []byte("x"))
		stale("proposed by one that has left", r, err)
		r, err = b.SetUnder(ctx, key, third, "late", []byte("x"))
		stale("set by one that has left", r, err)
		r, err = b.SetValue(ctx, v.Epoch, "late", 0, []byte("x"))
		stale("written by one that has left", r, err)

		// A store that does not answer is no answer.
		for _, lists := range []bool{true, false} {
			broken.list.Store(lists)
			broken.commit.Store(!lists)
			for what, f := range map[string]func() (int64, error){
				"SetValue":  func() (int64, error) { return set(v.Epoch, third, "x") },
				"Propose":   func() (int64, error) { return a.Propose(ctx, key, third, []byte("x")) },
				"SetUnder":  func() (int64, error) { return a.SetUnder(ctx, key, third, "part", []byte("x")) },
				"SetPlaces": func() (int64, error) { return 0, a.SetPlaces(ctx, v.Epoch, nil) },
			} {
				if what == "SetPlaces" && lists {
					continue // it reads its own view
				}
				if r, err := f(); !errors.Is(err, errCut) || r != 0 {
					t.Errorf("%s, without lists %t: revision %d, %v", what, lists, r, err)
				}
			}
		}
		broken.commit.Store(false)
		left(t, a)
	})
}

// raced is a store in which another one writes a key just before each commit that depends on it.
type raced struct {
	Store
	key   string
	value string
}

func (r *raced) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	if slices.ContainsFunc(ifs, func(i If) bool { return i.Key == r.key }) {
		if _, _, err := r.Store.Commit(ctx, nil, []Change{{Key: r.key, Value: []byte(r.value)}}); err != nil {
			return false, 0, err
		}
	}
	return r.Store.Commit(ctx, ifs, do)
}

// What another one wrote between the read and the write of a value stays. Time is the bubble's.
func TestValueRaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		link := &raced{Store: store}
		m := joined(t, link, "a")
		v, _ := m.View()
		const key = "checkpoint"
		full := m.prefix + "state/" + key
		for what, write := range map[string]func(at int64) (int64, error){
			"SetValue":           func(at int64) (int64, error) { return m.SetValue(within(t), v.Epoch, key, at, []byte("mine")) },
			"Propose":            func(at int64) (int64, error) { return m.Propose(within(t), key, at, []byte("mine")) },
			"SetUnder":           func(at int64) (int64, error) { return m.SetUnder(within(t), key, at, "part", []byte("mine")) },
			"Propose, the first": func(int64) (int64, error) { return m.Propose(within(t), key, 0, []byte("mine")) },
		} {
			if _, _, err := store.Commit(within(t), nil, []Change{{Key: full}}); err != nil {
				t.Fatal(err)
			}
			var at int64
			if !strings.HasSuffix(what, "first") {
				var err error
				if at, err = m.SetValue(within(t), v.Epoch, key, 0, []byte("before")); err != nil {
					t.Fatal(err)
				}
			}
			link.key, link.value = full, "theirs"
			if _, err := write(at); !errors.Is(err, ErrStale) {
				t.Errorf("%s, over what it did not read: %v", what, err)
			}
			link.key = ""
			if all := values(t, store, m.prefix+"state/"); all[key] != "theirs" || len(all) != 1 {
				t.Errorf("%s: the store has %q", what, all)
			}
		}
		left(t, m)
	})
}

// failing is a store whose calls of a kind fail.
type failing struct {
	Store
	list, commit atomic.Bool
	failed       func() // called at each call that fails; nil: nothing
}

func (f *failing) fails(kind *atomic.Bool) bool {
	fails := kind.Load()
	if fails && f.failed != nil {
		f.failed()
	}
	return fails
}

func (f *failing) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	if f.fails(&f.list) {
		return nil, 0, errCut
	}
	return f.Store.List(ctx, prefix)
}

func (f *failing) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	if f.fails(&f.commit) {
		return false, 0, errCut
	}
	return f.Store.Commit(ctx, ifs, do)
}

// Until ends with the context, and with the membership.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemStore()
		defer store.Close()
		a, b := joined(t, store, "a"), joined(t, store, "b")
		if _, err := a.Until(within(t), func(v *View) bool { return len(v.Members) == 2 }); err != nil {
			t.Fatal(err)
		}
		never := func(*View) bool { return false }
		ctx, cancel := context.WithCancel(within(t))
		cancel()
		if _, err := a.Until(ctx, never); !errors.Is(err, context.Canceled) {
			t.Errorf("its context ended: %v", err)
		}
		if err := a.Expel(within(t), "b", b.Epoch(), "a test"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Until(within(t), never); !errors.Is(err, ErrExpelled) {
			t.Errorf("it was put out: %v", err)
		}
		left(t, a, b)
	})
}
