package samplers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// known nodes, of which b, c and d sample for trainer a, whose one sampler the table has somewhere.
type table struct {
	view    *membership.View
	changed chan struct{}
	place   string
}

func (m *table) View() (*membership.View, <-chan struct{}) { return m.view, m.changed }
func (m *table) Place(string, string) (membership.Place, bool) {
	return membership.Place{Node: m.place}, m.place != ""
}
func (*table) Suspect(context.Context, []string) ([]string, error)    { return nil, nil }
func (*table) Announce(context.Context, func(*membership.Info)) error { return nil }

// put changes the table, as the leader does.
func (m *table) put(node string) {
	v, before := *m.view, m.changed
	m.view, m.place, m.changed = &v, node, make(chan struct{})
	close(before)
}

// asked is trainer a in a bubble of virtual time, and what the nodes take to draw for it.
type asked struct {
	*Remote
	t     *testing.T
	table *table
	mu    sync.Mutex
	takes map[string]time.Duration // never: it is silent
}

const never = 1 << 60

func inBubble(t *testing.T, f func(*asked)) {
	synctest.Test(t, func(t *testing.T) {
		m := &table{changed: make(chan struct{}), view: &membership.View{Members: []membership.Info{{Node: "a", Samplers: 1}}}}
		for _, node := range []string{"b", "c", "d"} {
			m.view.Members = append(m.view.Members, membership.Info{Node: node, Kinds: []string{Kind}})
		}
		k := &asked{Remote: newRemote(Options{Member: m}, "a", false), t: t, table: m, takes: map[string]time.Duration{}}
		if err := k.Ready(t.Context(), "run", 1, nil); err != nil {
			t.Fatal(err)
		}
		k.answer = func(ctx context.Context, _ int, node string) error {
			k.mu.Lock()
			takes := k.takes[node]
			k.mu.Unlock()
			if !k.rest(ctx, takes) {
				return context.Cause(ctx)
			}
			return nil
		}
		k.drawAt = func(ctx context.Context, d *drawing, node string) error {
			if err := k.answer(ctx, 0, node); err != nil {
				return err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.b != nil {
				d.b, d.by = nil, node
			}
			return nil
		}
		defer k.Close()
		f(k)
	})
}

// take sets what the nodes take from now on.
func (k *asked) take(d time.Duration, nodes ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, node := range nodes {
		k.takes[node] = d
	}
}

// drawn draws a batch, which is a node's, after so long.
func (k *asked) drawn(node string, after time.Duration) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Hour)
	defer cancel()
	began := time.Now()
	by, err := k.Draw(ctx, 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Of: 1}}, new(sampling.Batch))
	if took := time.Since(began); err != nil || by != node || took != after {
		k.t.Fatalf("the batch is of node %q after %v, %v; want it of %s after %v", by, took, err, node, after)
	}
}

// A sampler that is put elsewhere is asked where it was until it has drawn there, and from then on there.
func TestStaysUntilAnswered(t *testing.T) {
	inBubble(t, func(k *asked) {
		k.table.put("b")
		k.drawn("b", 0)
		k.take(10*time.Second, "c")
		k.table.put("c")
		for range 9 {
			k.drawn("b", 0)
			time.Sleep(time.Second)
		}
		if moves := k.Moves(); moves != 0 {
			t.Errorf("%d moves", moves)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		k.take(time.Millisecond, "c")
		k.drawn("c", time.Millisecond)
		if moves := k.Moves(); moves != 1 {
			t.Errorf("%d moves", moves)
		}
	})
}

// A node that is silent is not waited for, nor asked again until it answers.
func TestSilent(t *testing.T) {
	inBubble(t, func(k *asked) {
		k.table.put("b")
		k.drawn("b", 0)
		k.take(never, "b")
		to := at(k.table.view, Name("a", 0), "", func(node string) bool { return node == "b" })
		k.drawn(to, patience)
		k.drawn(to, 0)
		k.take(0, "b")
		time.Sleep(time.Hour)
		k.drawn(to, 0) // it is asked whether it is ready, which b is again
		synctest.Wait()
		k.drawn("b", 0)
	})
	inBubble(t, func(k *asked) { // each further one has twice as long
		k.table.put("b")
		k.take(never, "b", "c", "d")
		first := at(k.table.view, Name("a", 0), "", func(node string) bool { return node == "b" })
		second := map[string]string{"c": "d", "d": "c"}[first]
		k.take(0, second)
		k.drawn(second, 3*patience)
	})
}

// Where no node samples a batch is waited for, however long; the log names who is to sample and does not begin.
func TestNobodySamples(t *testing.T) {
	inBubble(t, func(k *asked) {
		var log bytes.Buffer
		k.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		all := k.table.view.Members
		said := ""
		says := func(want string, m ...membership.Info) {
			t.Helper()
			k.table.view = &membership.View{Members: append([]membership.Info{{Node: "a", Samplers: 1}}, m...)}
			k.table.put("")
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if said += want; strings.Count(log.String(), "waiting: ") != strings.Count(said, Nobody) || want != "" && !strings.Contains(log.String(), want) {
				t.Errorf("%q was to be said:\n%s", want, &log)
			}
		}
		var waits sync.WaitGroup
		k.table.view = &membership.View{Members: []membership.Info{{Node: "a", Samplers: 1}}}
		waits.Go(func() { k.drawn("b", 40*time.Minute) })
		synctest.Wait()
		says(Nobody + "\"")
		says(Nobody+", or see why those with that role do not begin to: b", membership.Info{Node: "b", Samples: true})
		says("", membership.Info{Node: "b", Samples: true}, membership.Info{Node: "z"})
		says(Nobody + "\"")
		k.table.view = &membership.View{Members: all}
		k.table.put("b")
		waits.Wait()
	})
}

// Where those that sample take no more a batch is waited for, and the log says what would help.
func TestWaitsForRoom(t *testing.T) {
	inBubble(t, func(k *asked) {
		var log bytes.Buffer
		k.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		first, b := membership.Info{Node: "A", Samplers: 1}, membership.Info{Node: "b", Kinds: []string{Kind}, Most: 1} // A's is dealt first
		k.table.view = &membership.View{Members: []membership.Info{first, {Node: "a", Samplers: 1}, b}}
		var waits sync.WaitGroup
		waits.Go(func() { k.drawn("b", 10*time.Minute) })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		b.Most = 2
		k.table.view = &membership.View{Members: []membership.Info{first, {Node: "a", Samplers: 1}, b}}
		k.table.put("")
		waits.Wait()
		k.tell(0) // it has a place by now, and there is no other
		k.tell(1)
		if said := log.String(); strings.Count(said, "waiting: ") != 1 || !strings.Contains(said, "waiting: "+Full+": b\"") {
			t.Errorf("it was said:\n%s", said)
		}
	})
}

// Who audits does not wait for a node that is silent any longer than who trains.
func TestDrawAtSilent(t *testing.T) {
	inBubble(t, func(k *asked) {
		k.table.put("b")
		k.take(never, "b")
		began := time.Now()
		later, err := k.DrawAt(k.t.Context(), "b", sampling.ID{Phase: "train", Of: 1}, new(sampling.Batch))
		if took := time.Since(began); !later || err == nil || took != patience {
			t.Errorf("later %v, %v after %v", later, err, took)
		}
		if later, err := k.DrawAt(k.t.Context(), "c", sampling.ID{Phase: "train", Of: 1}, new(sampling.Batch)); later || err != nil {
			t.Errorf("later %v, %v", later, err)
		}
	})
}

// How long a node may take follows what nearly all batches took lately.
func TestLimit(t *testing.T) {
	const slow = 100 * time.Millisecond
	silent := func(k *asked, after time.Duration) {
		k.t.Helper()
		k.take(never, "b")
		k.drawn(at(k.table.view, Name("a", 0), "", func(node string) bool { return node == "b" }), after)
	}
	batches := func(k *asked, n int, took time.Duration) {
		k.take(took, "b")
		for range n {
			k.drawn("b", took)
		}
	}
	for name, x := range map[string]struct {
		before func(k *asked)
		limit  time.Duration
	}{
		"fast ones":              {func(k *asked) { batches(k, 300, time.Millisecond) }, patience},
		"slow ones":              {func(k *asked) { batches(k, 300, slow) }, times * slow},
		"the first one slow":     {func(k *asked) { batches(k, 1, slow) }, times * slow},
		"two of 256 slow":        {func(k *asked) { batches(k, 254, time.Millisecond); batches(k, 2, slow) }, patience},
		"three of 256 slow":      {func(k *asked) { batches(k, 253, time.Millisecond); batches(k, 3, slow) }, times * slow},
		"slow ones of long ago":  {func(k *asked) { batches(k, 256, slow); batches(k, 256, time.Millisecond) }, patience},
		"slow ones of some time": {func(k *asked) { batches(k, 256, slow); batches(k, 240, time.Millisecond) }, times * slow},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(k *asked) {
				k.table.put("b")
				x.before(k)
				silent(k, x.limit)
			})
		})
	}
}

// Where no node samples the log says so once, whichever samplers wait, and again when that was over.
func TestSaysOnceThatNobodySamples(t *testing.T) {
	inBubble(t, func(k *asked) {
		var log bytes.Buffer
		k.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		all := k.table.view.Members
		all[0].Samplers = 3
		for n := 1; n <= 2; n++ {
			k.table.view = &membership.View{Members: all[:1]}
			k.table.put("")
			var waits sync.WaitGroup
			for i := range 3 {
				waits.Go(func() {
					m := &messages.Seeds{ID: sampling.ID{Phase: "train", Batch: i, Of: 1}}
					if _, err := k.Draw(k.t.Context(), i, m, new(sampling.Batch)); err != nil {
						k.t.Error(err)
					}
				})
			}
			synctest.Wait()
			k.table.view = &membership.View{Members: all}
			k.table.put("b")
			waits.Wait()
			if said := strings.Count(log.String(), Nobody); said != n {
				k.t.Errorf("three samplers waited %d times, and it was said %d times:\n%s", n, said, &log)
			}
		}
	})
}

// Who asks a node that goes meanwhile hears at once that it is gone, and not what that did to the question.
func TestWhileANodeAnswers(t *testing.T) {
	r := newRemote(Options{}, "c", false)
	defer r.Close()
	b, gone := context.WithCancelCause(t.Context())
	r.peers["b"] = b
	if err := r.while(t.Context(), "b", func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Error(err)
	}
	why := errors.New("it is gone")
	err := r.while(t.Context(), "b", func(ctx context.Context) error {
		gone(why)
		<-ctx.Done()
		return ctx.Err()
	})
	if err != why {
		t.Errorf("the question ended by %v", err)
	}
}
