package cluster

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
)

// storeOf writes a store of the built-in graph with other features.
func storeOf(t *testing.T, features *graph.Features) string {
	t.Helper()
	ds, dir := *generate.Builtin(), filepath.Join(t.TempDir(), "data")
	if features != nil {
		ds.NodeFeatures = features
	}
	if err := store.Create(t.Context(), dir, &ds); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A run that fails where it is trained is over for those who wait for it, and another one may begin, unless somebody
// else trains for it.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	take := func(n *Node, propose *Run) {
		t.Helper()
		if _, err := n.AgreeOnRun(within(t), propose, propose == nil, nothing); err != nil {
			t.Fatal(err)
		}
	}
	take(a, &Run{Settings: settings(64)})
	take(b, nil)
	other := Options{NodeOptions: options(s, "c", t.TempDir())}
	if r, err := Begun(within(t), other.NodeOptions); err != nil || !slices.Equal(r.Parties, []string{"a", "b"}) {
		t.Fatalf("%+v, %v", r, err)
	} else if err := r.Differences(settings(32)); err == nil || !strings.Contains(err.Error(), "(a, b), say with 'gnnactor cluster drain'") {
		t.Error(err)
	}
	train := func(n *Node, trains bool) {
		t.Helper()
		if err := n.Member.Announce(within(t), func(i *membership.Info) {
			if i.Kinds = nil; trains {
				i.Kinds = []string{trainers.Kind}
			}
		}); err != nil {
			t.Fatal(err)
		}
		await(t, a, "a trainer", func(v *membership.View) bool {
			m, _ := v.Member(n.Plane.Node())
			return slices.Contains(m.Kinds, trainers.Kind) == trains && m.Run != 0
		})
	}
	why := errors.New("the loss is NaN")
	train(b, true)
	if done, err := a.Withdraw(within(t), why); done || err != nil {
		t.Fatalf("withdrawn while b trains: %t, %v", done, err)
	}
	train(b, false)
	if done, err := a.Withdraw(within(t), why); !done || err != nil {
		t.Fatalf("not withdrawn: %t, %v", done, err)
	}
	await(t, b, "b hears of it", func(*membership.View) bool { return b.over() != nil })
	if err := b.over(); !errors.Is(err, ErrWithdrawn) || !strings.Contains(err.Error(), "node a began: the loss is NaN") {
		t.Error(err)
	}
	if r, err := Begun(within(t), other.NodeOptions); r != nil || err != nil {
		t.Errorf("it is there still: %+v, %v", r, err)
	}
	c := enter(t, other.NodeOptions)
	if r, err := c.AgreeOnRun(within(t), &Run{Settings: settings(32)}, false, func(r *Run) error { return r.Differences(settings(32)) }); err != nil || r.Node != "c" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A node that joined a run and waits for its data, which nobody has any more, is told that the run ended, or that it was withdrawn.
func TestRunOverWhileEntering(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		end  func(ctx context.Context, a *Node) error
		want error
	}{
		"ended": {func(ctx context.Context, a *Node) error { return a.Finish(ctx) }, ErrEnded},
		"withdrawn": {func(ctx context.Context, a *Node) error {
			_, err := a.Withdraw(ctx, errors.New("no luck"))
			return err
		}, ErrWithdrawn},
		"unreadable": {func(ctx context.Context, a *Node) error {
			_, at := a.Member.Value(runKey)
			_, err := a.Member.Propose(ctx, runKey, at, []byte("{"))
			return err
		}, ErrWithdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			begins := Options{Config: runtime.DefaultConfig()}
			begins.Config.Data.Path = storeOf(t, nil)
			propose, err := begins.proposal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a := enter(t, options(s, "a", t.TempDir()))
			if _, err := a.AgreeOnRun(within(t), propose, false, nothing); err != nil {
				t.Fatal(err)
			}
			joined := make(chan error, 1)
			go func() {
				b, err := Join(within(t), Options{NodeOptions: options(s, "b", t.TempDir()), Config: runtime.DefaultConfig(), Joins: true})
				if err == nil {
					err = errors.Join(errors.New("b joined"), b.Leave(nil))
				}
				joined <- err
			}()
			await(t, a, "b takes part", func(v *membership.View) bool { m, _ := v.Member("b"); return m.Run != 0 })
			if err := x.end(within(t), a); err != nil {
				t.Fatal(err)
			}
			if err := <-joined; !errors.Is(err, x.want) || name == "unreadable" && !strings.Contains(err.Error(), "cannot be read: cluster: the run at revision") {
				t.Errorf("b: %v", err)
			}
		})
	}
}

// late is a store of which a member sees nothing new while a test has what is in open.
type late struct {
	membership.Store
	open chan struct{}
}

func (l *late) Watch(ctx context.Context, prefix string, after int64, f func([]membership.Entry, int64)) error {
	return l.Store.Watch(ctx, prefix, after, func(changed []membership.Entry, revision int64) {
		l.open <- <-l.open
		f(changed, revision)
	})
}

// Who comes to the end of a run that its own view does not show yet writes the end down all the same, when it does. Time is the bubble's.
func TestEndBeforeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := membership.NewMemStore()
		defer memory.Close()
		store := &late{memory, make(chan struct{}, 1)}
		store.open <- struct{}{}
		m, err := membership.Join(t.Context(), store, membership.Config{Cluster: "test", Info: membership.Info{Node: "a", Home: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		n := &Node{Member: m, dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
		<-store.open
		revision, err := m.Propose(t.Context(), runKey, 0, []byte("{}"))
		if err == nil {
			err = n.takePart(t.Context(), &Run{}, revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- n.end(t.Context(), func(r *Run, _ int64, _ *membership.View) bool { r.Done = true; return true })
		}()
		synctest.Wait()
		store.open <- struct{}{}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		all, _, err := memory.List(t.Context(), "")
		if !slices.ContainsFunc(all, func(e membership.Entry) bool {
			return strings.HasSuffix(e.Key, "state/"+runKey) && strings.Contains(string(e.Value), `"done":true`)
		}) {
			t.Errorf("the end is not written down: %v, %v", all, err)
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who made a run's last step with others is not ended by that one of them says so first; who was late for it is.
func TestLastStep(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	for _, n := range []*Node{a, b} {
		if _, err := n.AgreeOnRun(within(t), &Run{Settings: settings(64)}, false, nothing); err != nil {
			t.Fatal(err)
		}
	}
	for _, made := range []bool{true, false} {
		if err := a.end(within(t), func(r *Run, _ int64, _ *membership.View) bool {
			if r.Done, r.Last = true, nil; made {
				r.Last = map[string]int64{"b": b.Member.Epoch()}
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*Node{a, b} {
			await(t, n, "it sees the end", func(*membership.View) bool {
				r, _, err := n.record()
				return err == nil && r.Done && (r.Last != nil) == made
			})
		}
		if err := b.over(); errors.Is(err, ErrEnded) == made || made && err != nil {
			t.Errorf("the last step made: %t, %v", made, err)
		}
		r, at, err := a.record()
		if err == nil {
			err = a.takePart(within(t), r, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What no node with the features can compute with the others is refused before it is the cluster's run.
func TestSharedRowsRefusedBefore(t *testing.T) {
	t.Parallel()
	ds := generate.Builtin()
	rows, cols := ds.NodeFeatures.Rows, 64
	sparse := make([]float32, rows*cols)
	for i := range rows {
		sparse[i*cols+i%cols] = 1
	}
	s := serve(t)
	o := Options{NodeOptions: options(s, "a", t.TempDir()), Config: runtime.DefaultConfig(), Shards: "hash:4"}
	o.Config.Data.Path = storeOf(t, graph.NewFeatures(rows, cols, sparse))
	x, err := Join(within(t), o)
	if err == nil {
		x.Leave(nil)
	}
	if !errors.Is(err, runtime.ErrConfig) || !strings.Contains(err.Error(), "leave out --shards") {
		t.Fatal(err)
	}
	b := enter(t, options(s, "b", t.TempDir()))
	if r, _, err := b.record(); r != nil || err != nil {
		t.Errorf("the run was written down: %+v, %v", r, err)
	}
}

// Who waits for what a run lacks does not keep another run out when its beginner is gone, unless the run has been trained; it hears of the other one.
func TestUntrainedRunReplaced(t *testing.T) {
	t.Parallel()
	for _, trained := range []bool{false, true} {
		s := serve(t)
		a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
		if _, err := a.AgreeOnRun(within(t), &Run{Settings: settings(64)}, false, nothing); err != nil {
			t.Fatal(err)
		}
		if _, err := b.AgreeOnRun(within(t), nil, true, nothing); err != nil {
			t.Fatal(err)
		}
		if trained {
			if _, err := a.Member.Propose(within(t), groupKey, 0, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		other := options(s, "c", t.TempDir())
		if r, err := Begun(within(t), other); err != nil || r == nil {
			t.Errorf("while the beginner is there: %+v, %v", r, err)
		}
		leave(t, a)
		c := enter(t, other)
		await(t, c, "a is gone", func(v *membership.View) bool { _, in := v.Member("a"); return !in })
		if r, err := Begun(within(t), other); err != nil || (r != nil) != trained {
			t.Errorf("trained: %t, the run that others hear of: %+v, %v", trained, r, err)
		}
		r, err := c.AgreeOnRun(within(t), &Run{Settings: settings(32)}, false, func(r *Run) error { return r.Differences(settings(32)) })
		if trained {
			if !errors.Is(err, ErrOtherRun) {
				t.Errorf("the trained run: %+v, %v", r, err)
			}
			continue
		}
		if err != nil || r.Node != "c" {
			t.Fatalf("%+v, %v", r, err)
		}
		await(t, b, "b hears of it", func(*membership.View) bool { return b.over() != nil })
		if err := b.over(); !errors.Is(err, ErrWithdrawn) || !strings.Contains(err.Error(), "node a began; there is another by node c") {
			t.Error(err)
		}
	}
}
