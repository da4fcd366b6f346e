package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A lease lives for its time from the newest renewal, and its keys with it. Time is the bubble's.
func TestMemStoreLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewMemStore()
		defer s.Close()
		ctx := within(t)
		grant := func() Lease {
			l, err := s.Grant(ctx, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		put := func(key string, l Lease) {
			t.Helper()
			if ok, _, err := s.Commit(ctx, nil, []Change{{Key: key, Value: []byte{1}, Lease: l}}); !ok || err != nil {
				t.Fatal(err)
			}
		}
		one, two := grant(), grant()
		if one == two || one == 0 || two == 0 {
			t.Fatalf("leases %d and %d", one, two)
		}
		put("own", one)
		put("handed over", one)
		put("handed over", two)
		put("freed", one)
		put("freed", 0)
		put("second", two)
		time.Sleep(900 * time.Millisecond)
		if err := s.Renew(ctx, two); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if all := values(t, s, ""); len(all) != 3 || all["own"] != "" {
			t.Errorf("after the first lease: %q", all)
		}
		if err := s.Renew(ctx, one); !errors.Is(err, ErrLeaseGone) {
			t.Errorf("renewed after its end: %v", err)
		}
		if err := s.Revoke(ctx, one); !errors.Is(err, ErrLeaseGone) {
			t.Errorf("revoked after its end: %v", err)
		}
		if ok, _, err := s.Commit(ctx, nil, []Change{{Key: "late", Value: []byte{1}, Lease: one}}); ok || !errors.Is(err, ErrLeaseGone) {
			t.Errorf("a key under a lease that has ended: %t, %v", ok, err)
		}
		time.Sleep(700 * time.Millisecond)
		if all := values(t, s, ""); len(all) != 3 {
			t.Errorf("before the end of the second, renewed lease: %q", all)
		}
		three := grant()
		put("third", three)
		if err := s.Revoke(ctx, three); err != nil {
			t.Error(err)
		}
		if all := values(t, s, ""); all["third"] != "" || len(all) != 3 {
			t.Errorf("after a lease was revoked: %q", all)
		}
		time.Sleep(200 * time.Millisecond)
		if all := values(t, s, ""); len(all) != 1 || all["freed"] == "" {
			t.Errorf("after all leases: %q", all)
		}
		last := grant()
		put("kept", last)
		s.Close()
		if err := s.Revoke(ctx, last); err != nil {
			t.Errorf("revoked in a store that is closed: %v", err)
		}
		if all := values(t, s, ""); all["kept"] == "" {
			t.Error("a closed store ends leases")
		}
	})
}

// Changes are made together or not at all, at one revision, if the keys are as they are
// said to be.
func TestMemStoreCommit(t *testing.T) {
	s := NewMemStore()
	defer s.Close()
	ctx := within(t)
	commit := func(ifs []If, do ...Change) (bool, int64) {
		t.Helper()
		ok, revision, err := s.Commit(ctx, ifs, do)
		if err != nil {
			t.Fatal(err)
		}
		return ok, revision
	}
	_, first := commit(nil, Change{Key: "a", Value: []byte("1")}, Change{Key: "b", Value: []byte("1")})
	_, second := commit(nil, Change{Key: "a", Value: []byte("2")}, Change{Key: "ab", Value: []byte("2")})
	if second != first+1 {
		t.Errorf("revisions %d and %d", first, second)
	}
	for _, c := range []struct {
		i    If
		want bool
	}{
		{If{Key: "a", Created: first}, true},
		{If{Key: "a", Created: first, Modified: second}, true},
		{If{Key: "b", Created: first, Modified: first}, true},
		{If{Key: "c"}, true},
		{If{Key: "a"}, false},
		{If{Key: "a", Created: second}, false},
		{If{Key: "a", Created: first, Modified: first}, false},
		{If{Key: "a", Created: second, Modified: second}, false},
		{If{Key: "c", Created: first}, false},
		{If{Key: "c", Modified: first}, false},
	} {
		for _, ifs := range [][]If{{c.i}, {{Key: "b", Created: first}, c.i}, {c.i, {Key: "b", Created: first}}} {
			_, before, _ := s.List(ctx, "")
			ok, revision := commit(ifs, Change{Key: "x", Value: []byte("x")})
			if ok != c.want || ok != (revision == before+1) || !ok && revision != before {
				t.Errorf("%+v: %t, revision %d after %d", ifs, ok, revision, before)
			}
			commit(nil, Change{Key: "x"})
		}
	}
	value := []byte("mine")
	commit(nil, Change{Key: "a", Value: value})
	value[0] = 'f'
	all, revision, err := s.List(ctx, "a")
	if err != nil || len(all) != 2 || all[0].Key != "a" || all[1].Key != "ab" || string(all[0].Value) != "mine" || all[0].Created != first || all[0].Modified != revision {
		t.Errorf("%+v at %d, %v", all, revision, err)
	}
	// Made anew, a key is another one.
	commit(nil, Change{Key: "a"}, Change{Key: "not there"})
	commit(nil, Change{Key: "a", Value: []byte("3")})
	if all, revision, _ := s.List(ctx, "a"); all[0].Created != revision || all[0].Modified != revision {
		t.Errorf("made anew at %d: %+v", revision, all[0])
	}
}

// A watch has every change of its prefix after a revision, once and in order. Time is the bubble's.
func TestMemStoreWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewMemStore()
		defer s.Close()
		put := func(key, value string) {
			c := Change{Key: key, Value: []byte(value)}
			if value == "" {
				c.Value = nil
			}
			if _, _, err := s.Commit(within(t), nil, []Change{c, {Key: "elsewhere", Value: []byte(value)}}); err != nil {
				t.Fatal(err)
			}
		}
		put("k/a", "before")  // 1
		put("k/a", "one")     // 2
		put("k/b", "two")     // 3
		put("other", "three") // 4
		var got []string
		ctx, cancel := context.WithCancel(within(t))
		ended := make(chan error)
		go func() {
			ended <- s.Watch(ctx, "k/", 1, func(changed []Entry, revision int64) {
				for _, e := range changed {
					got = append(got, fmt.Sprintf("%s %s %d %t", e.Key, e.Value, e.Modified, e.Deleted))
				}
				got = append(got, fmt.Sprint(revision))
			})
		}()
		synctest.Wait()
		put("k/b", "four") // 5
		synctest.Wait()
		put("other", "five") // 6
		synctest.Wait()
		put("k/a", "") // 7
		synctest.Wait()
		put("k/a", "") // 8: it is not there
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := []string{"k/a one 2 false", "k/b two 3 false", "4", "k/b four 5 false", "5", "k/a  7 true", "7"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
