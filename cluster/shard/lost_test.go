package shard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

// A node that is left by the only one that had a piece's files names the piece and the node, though fewer are there than were waited for at the
// beginning. Before all had come it says nothing: who has not come yet may have the files.
func TestTellLost(t *testing.T) {
	f := table(graph.Float32, 4)
	m, l := MapOf([]uint32{0, 512, rows}), features.LayoutOf(f)
	store := &witness{MemStore: membership.NewMemStore()}
	defer store.Close()
	var said bytes.Buffer
	come := func(name string, piece int) *keeperNode {
		p, member := join(t, store, name)
		k, err := Keep(within(t), Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1, MinNodes: 2, Pieces: []int{piece},
			Bring: func(_ context.Context, i int, _ []string) (*graph.Features, error) {
				if i != piece {
					return nil, nil
				}
				return l.NewTable(m.Rows(i)), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		return &keeperNode{p, member, k}
	}
	a := come("a", 0)
	defer a.exit(t)
	a.keeper.store.log = slog.New(slog.NewTextHandler(&said, nil))
	v, _ := a.member.View()
	if a.keeper.TellLost(v); said.Len() > 0 {
		t.Errorf("one of two nodes is there, and says %q", said.String())
	}
	b := come("b", 1)
	if store.early.Load() {
		t.Error("others hear of a node's files before it takes shards, and copy what it is to hold")
	}
	for {
		a.keeper.store.mu.Lock()
		had, changed := a.keeper.store.had[1], a.keeper.store.changed
		a.keeper.store.mu.Unlock()
		if had == "b" {
			break
		}
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatal("a does not hear that b holds piece 1")
		}
	}
	b.exit(t)
	v, err := a.member.Until(within(t), func(v *membership.View) bool { return len(v.Members) == 1 })
	if err != nil {
		t.Fatal(err)
	}
	if a.keeper.TellLost(v); !strings.Contains(said.String(), "pieces=[1] were-at=[b]") {
		t.Errorf("piece 1 was at b, and a says %q", said.String())
	}
}

// A node that waits for others before anything is dealt says for how many, once however they come, and nothing when all are there.
func TestReadyTellsShort(t *testing.T) {
	m, l := MapOf([]uint32{0, 512, rows}), features.LayoutOf(table(graph.Float32, 4))
	store := membership.NewMemStore()
	defer store.Close()
	come := func(name string, said io.Writer) *keeperNode {
		p, member := join(t, store, name)
		k, err := Keep(within(t), Options{
			Member: member, Plane: p, Map: m, Layout: l, Replicas: 1, MinNodes: 3, Pieces: []int{0, 1}, Logger: slog.New(slog.NewTextHandler(said, nil)),
			Bring: func(_ context.Context, i int, _ []string) (*graph.Features, error) { return l.NewTable(m.Rows(i)), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return &keeperNode{p, member, k}
	}
	lines, ready := make(writes, 8), make(chan error)
	a := come("a", lines)
	defer a.exit(t)
	go func() { ready <- a.keeper.Ready(within(t)) }()
	select {
	case line := <-lines:
		if !strings.Contains(line, "waiting for nodes") || !strings.Contains(line, "wait-for=3 here=1") {
			t.Errorf("it says %q", line)
		}
	case err := <-ready:
		t.Fatalf("alone of three it says nothing, and is ready: %v", err)
	}
	b := come("b", io.Discard)
	defer b.exit(t)
	c := come("c", lines)
	defer c.exit(t)
	if err := errors.Join(<-ready, c.keeper.Ready(within(t))); err != nil {
		t.Fatal(err)
	}
	select {
	case line := <-lines:
		t.Errorf("it says more: %q", line)
	default:
	}
}

// writes are what was written.
type writes chan string

func (w writes) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// What a node has heard of holders its reads know, though the task that passes it on to them has not run yet: they ask the holders, and warn of nothing.
func TestReachKnowsWhatIsHeard(t *testing.T) {
	_, whole, m, l := sharedOut(t, graph.Float32, 4)
	store := membership.NewMemStore()
	defer store.Close()
	p, member := join(t, store, "a")
	k, err := Keep(within(t), Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	a := &keeperNode{p, member, k}
	defer a.exit(t)
	k.cancel()
	k.tasks.Wait()
	ctx, cancel := context.WithCancelCause(within(t))
	defer cancel(nil)
	k.store.log = slog.New(slog.NewTextHandler(ends(cancel), nil))
	b := enter(t, store, "b", m, l, 1, whole)
	defer b.exit(t)
	if err := k.Ready(within(t)); err != nil {
		t.Fatal(err)
	}
	asked := ""
	err = k.store.Reach(ctx, []int{0, 1}, func(int) func() error { return nil }, func(_ context.Context, node string, _ []int) error {
		asked += node
		return nil
	})
	if err != nil || asked != "b" {
		t.Errorf("%q was asked: %v", asked, err)
	}
}

// ends ends a context with what is written.
type ends context.CancelCauseFunc

func (e ends) Write(b []byte) (int, error) {
	e(errors.New(string(b)))
	return len(b), nil
}

// witness sees whether a node ever says that it has files and is none that holds shards.
type witness struct {
	*membership.MemStore
	early atomic.Bool
}

func (w *witness) Commit(ctx context.Context, ifs []membership.If, do []membership.Change) (bool, int64, error) {
	for _, c := range do {
		if s := string(c.Value); strings.Contains(s, `"pieces":`) && !strings.Contains(s, `"`+PartKind+`"`) {
			w.early.Store(true)
		}
	}
	return w.MemStore.Commit(ctx, ifs, do)
}
