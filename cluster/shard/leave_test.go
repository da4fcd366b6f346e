package shard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
)

// late is a store that tells of changes only while it is open.
type late struct {
	membership.Store
	mu   sync.Mutex
	open chan struct{} // closed: it tells
}

func newLate(s membership.Store) *late {
	l := &late{Store: s, open: make(chan struct{})}
	close(l.open)
	return l
}

func (l *late) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *late) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
}

func (l *late) Watch(ctx context.Context, prefix string, after int64, f func([]membership.Entry, int64)) error {
	return l.Store.Watch(ctx, prefix, after, func(e []membership.Entry, revision int64) {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		select {
		case <-open:
			f(e, revision)
		case <-ctx.Done():
		}
	})
}

// Two holders of a shard, neither of which has heard of the other's withdrawal,
// let go of it at once: both serve its rows until they have heard, and in
// whatever order they hear, one of them holds it in the end, and says so.
func TestLeaveByDifferentViews(t *testing.T) {
	f, whole, m, l := sharedOut(t, graph.Float32, 4)
	const s = 1
	var ids []uint32
	for v := s; v < rows; v += shards {
		ids = append(ids, uint32(v))
	}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			store := membership.NewMemStore()
			defer store.Close()
			gates := []*late{newLate(store), newLate(store)}
			// Keepers that do nothing of themselves.
			var keepers []*Keeper
			for i, g := range gates {
				name := fmt.Sprintf("n%d", i)
				p, member := join(t, g, name)
				defer p.Close()
				defer member.Leave(context.Background())
				k := &Keeper{o: Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1}, server: NewServer(p, m, l, nil)}
				own, err := m.Cut(within(t), whole, s)
				if err != nil {
					t.Fatal(err)
				}
				if err := k.server.Hold(s, own); err != nil {
					t.Fatal(err)
				}
				if err := k.tell(within(t)); err != nil {
					t.Fatal(err)
				}
				keepers = append(keepers, k)
			}
			reader, member := join(t, store, "reader")
			defer reader.Close()
			defer member.Leave(context.Background())
			held := func(v *membership.View) int { return len(holders(v, shards)[s]) }
			for _, who := range []*membership.Member{keepers[0].o.Member, keepers[1].o.Member} {
				if _, err := who.Until(within(t), func(v *membership.View) bool { return held(v) == 2 && len(v.Members) == 3 }); err != nil {
					t.Fatal(err)
				}
			}
			for i := range gates {
				gates[i].shut()
			}
			done := make(chan error, len(keepers))
			for _, k := range keepers {
				go func() { done <- k.leave(within(t), []int{s}) }()
			}
			if _, err := member.Until(within(t), func(v *membership.View) bool { return held(v) == 0 }); err != nil {
				t.Fatal(err)
			}
			// Both have withdrawn, and neither has heard of it.
			for _, k := range keepers {
				reader.SetPeer(k.o.Plane.Node(), k.o.Plane.Address())
				got, err := Copy(within(t), reader, m, l, s, []string{k.o.Plane.Node()})
				if err != nil {
					t.Fatalf("%s does not serve the rows any more: %v", k.o.Plane.Node(), err)
				}
				for i, v := range ids {
					if !bytes.Equal(got.Data[i*got.Stride:i*got.Stride+16], f.Data[int(v)*f.Stride:int(v)*f.Stride+16]) {
						t.Fatalf("row %d is wrong", v)
					}
				}
			}
			gates[order[0]].tell()
			if err := <-done; err != nil {
				t.Error(err)
			}
			gates[order[1]].tell()
			if err := <-done; err != nil {
				t.Error(err)
			}
			v, err := member.Until(within(t), func(v *membership.View) bool { return held(v) > 0 })
			if err != nil {
				t.Fatalf("nobody holds the shard: %v", err)
			}
			for _, node := range holders(v, shards)[s] {
				i := 0
				if node == "n1" {
					i = 1
				}
				if keepers[i].server.shard(s) == nil {
					t.Errorf("%s says that it holds the shard, and does not", node)
				}
			}
		})
	}
}

// Of two that are on their way out, and both hold a shard, one is left with it.
func TestLeaveWhenAllYield(t *testing.T) {
	_, whole, m, l := sharedOut(t, graph.Float32, 4)
	store := membership.NewMemStore()
	defer store.Close()
	var keepers []*Keeper
	for i, held := range [][]int{{0, 1}, {1}} {
		p, member := join(t, store, fmt.Sprintf("n%d", i))
		defer p.Close()
		defer member.Leave(context.Background())
		k := &Keeper{o: Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1}, server: NewServer(p, m, l, nil)}
		for _, s := range held {
			own, err := m.Cut(within(t), whole, s)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.server.Hold(s, own); err != nil {
				t.Fatal(err)
			}
		}
		if err := member.Announce(within(t), func(i *membership.Info) { i.Kinds, i.Shards, i.Yield = []string{Kind}, held, true }); err != nil {
			t.Fatal(err)
		}
		keepers = append(keepers, k)
	}
	for _, turn := range []struct{ node, holders int }{{1, 2}, {0, 1}} {
		k := keepers[turn.node]
		v, err := k.o.Member.Until(within(t), func(v *membership.View) bool {
			where := holders(v, shards)
			return len(where[0]) == 1 && len(where[1]) == turn.holders
		})
		if err != nil {
			t.Fatal(err)
		}
		if did, err := k.step(within(t), v); err != nil || did != (turn.holders == 2) {
			t.Fatalf("n%d, of %d that hold the shard: %v, %v", turn.node, turn.holders, did, err)
		}
	}
	for i, want := range [][]int{{0, 1}, {}} {
		if got := keepers[i].List(); !slices.Equal(got, want) {
			t.Errorf("n%d holds %v; want %v", i, got, want)
		}
	}
}

// Who yields and has given all away is not the last, whoever else is on its way out, nor who holds only what others hold, too.
func TestLast(t *testing.T) {
	p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: "b", Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	k := &Keeper{o: Options{Plane: p, Map: &Map{sizes: []int{1, 1}}}}
	a, b := membership.Info{Node: "a", Kinds: []string{PartKind}, Shards: []int{1}}, membership.Info{Node: "b", Kinds: []string{PartKind}, Yield: true, Shards: []int{0}}
	is := func(want bool) {
		t.Helper()
		if got := k.Last(&membership.View{Members: []membership.Info{a, b}}); got != want {
			t.Errorf("%v of %+v and %+v", got, a, b)
		}
	}
	is(false)
	a.Yield = true
	is(true)
	a.Shards = []int{0, 1}
	is(false)
	b.Shards, a.Shards = nil, []int{0, 1}
	is(false)
}
