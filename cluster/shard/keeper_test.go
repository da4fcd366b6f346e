package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

func TestAssign(t *testing.T) {
	for nodes := range 6 {
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprint("n", i))
		}
		for replicas := 1; replicas <= 3; replicas++ {
			all := Assign(12, replicas, names)
			load := map[string]int{}
			for s, a := range all {
				if len(a) != min(replicas, nodes) {
					t.Errorf("shard %d of %d nodes, %d replicas: %v", s, nodes, replicas, a)
				}
				slices.Sort(a)
				if len(slices.Compact(a)) != min(replicas, nodes) {
					t.Errorf("shard %d is twice on a node: %v", s, a)
				}
				for _, n := range a {
					load[n]++
				}
			}
			if nodes == 0 {
				continue
			}
			for n, l := range load {
				if most := (12*min(replicas, nodes) + nodes - 1) / nodes; l > most+replicas-1 {
					t.Errorf("node %s of %d has %d shards of %d", n, nodes, l, most)
				}
			}
		}
	}
}

// Who has shards at hand gets those, as far as the share goes, and what one node alone has is that one's.
func TestAssignAtHand(t *testing.T) {
	names := []string{"n0", "n1", "n2"}
	has := map[string][]int{"n0": {0, 1, 2, 3, 4, 5}, "n1": {4, 5}, "n2": {0}}
	all := assign(6, 1, names, func(node string, shard int) bool { return slices.Contains(has[node], shard) })
	load, copied := map[string]int{}, 0
	for s, a := range all {
		load[a[0]]++
		if !slices.Contains(has[a[0]], s) {
			copied++
		}
	}
	if load["n0"] != 2 || load["n1"] != 2 || load["n2"] != 2 || copied != 1 { // two of 1, 2 and 3 are with n0; n2 has one
		t.Errorf("%v: %d shards are with nodes that have to copy them", all, copied)
	}
}

// sharedOut is a table, a store of it, and its rows dealt to shards by turns.
func sharedOut(t *testing.T, dtype graph.DType, cols int) (f *graph.Features, whole features.Store, m *Map, l features.Layout) {
	t.Helper()
	f = table(dtype, cols)
	whole = features.InMemory(f)
	t.Cleanup(func() { whole.Close() })
	part := make([]uint32, rows)
	for v := range part {
		part[v] = uint32(v % shards)
	}
	m, err := NewMap(part, shards)
	if err != nil {
		t.Fatal(err)
	}
	return f, whole, m, features.LayoutOf(f)
}

// join makes a member, and what it is reached by.
func join(t *testing.T, s membership.Store, name string) (*dataplane.Plane, *membership.Member) {
	t.Helper()
	p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	member, err := membership.Join(within(t), s, membership.Config{
		Cluster: "test", Info: membership.Info{Node: name, Home: name, Data: p.Address()}, TTL: 5 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, member
}

// keeperNode is a member that keeps shards.
type keeperNode struct {
	plane  *dataplane.Plane
	member *membership.Member
	keeper *Keeper
}

func enter(t *testing.T, s membership.Store, name string, m *Map, l features.Layout, replicas int, all features.Store) *keeperNode {
	t.Helper()
	p, member := join(t, s, name)
	k, err := Keep(within(t), Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: replicas, All: all})
	if err != nil {
		t.Fatal(err)
	}
	return &keeperNode{p, member, k}
}

func (n *keeperNode) exit(t *testing.T) {
	t.Helper()
	if err := n.keeper.Close(); err != nil {
		t.Error(err)
	}
	if err := n.member.Leave(context.Background()); err != nil {
		t.Error(err)
	}
	n.plane.Close()
}

// settled waits until the members' shards are those that they should hold.
func (n *keeperNode) settled(t *testing.T, members, replicas int) {
	t.Helper()
	_, err := n.member.Until(within(t), func(v *membership.View) bool {
		where := holders(v, shards)
		for s, want := range Assign(shards, replicas, keepers(v)) {
			slices.Sort(want)
			if !slices.Equal(where[s], want) {
				return false
			}
		}
		return len(v.Members) == members
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rows are read on while the node that had the data hands all over and goes,
// others come, and one dies whose shards have replicas.
func TestKeepersComeAndGo(t *testing.T) {
	f, whole, m, l := sharedOut(t, graph.Int8, 5)
	store := membership.NewMemStore()
	defer store.Close()
	a := enter(t, store, "a", m, l, 2, whole)
	b := enter(t, store, "b", m, l, 2, nil)
	c := enter(t, store, "c", m, l, 2, nil)
	if err := b.keeper.Ready(within(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	read := make(chan error, 1)
	go func() {
		ids := []uint32{999, 0, 5, 17, 500, 44, 301}
		for ctx.Err() == nil {
			dst := l.NewTable(len(ids))
			if err := features.Read(within(t), b.keeper.Store(), features.Request{IDs: ids, Dst: dst}); err != nil {
				read <- err
				return
			}
			for i, v := range ids {
				if !bytes.Equal(dst.Data[i*dst.Stride:i*dst.Stride+5], f.Data[int(v)*f.Stride:int(v)*f.Stride+5]) || dst.RowScale[i] != float32(v) {
					read <- fmt.Errorf("row %d is wrong", v)
					return
				}
			}
		}
		read <- nil
	}()
	b.settled(t, 3, 2)
	if err := a.keeper.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	if a.keeper.Held() != 0 {
		t.Errorf("%d shards are left on a drained node", a.keeper.Held())
	}
	a.exit(t)
	d := enter(t, store, "d", m, l, 2, nil)
	d.settled(t, 3, 2)
	c.plane.Close() // dies: nothing is handed over
	c.exit(t)
	d.settled(t, 2, 2)
	cancel()
	if err := <-read; err != nil {
		t.Error(err)
	}
	if b.keeper.Held() != shards || d.keeper.Held() != shards {
		t.Errorf("two nodes and two replicas: %d and %d shards of %d", b.keeper.Held(), d.keeper.Held(), shards)
	}
	if err := b.keeper.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := d.keeper.Drain(within(t)); err != nil { // nobody is left to take them
		t.Fatal(err)
	}
	b.exit(t)
	d.exit(t)
}

// A keeper that is there knows of itself and of who holds what: asked at once, it waits for no shard that has a holder.
func TestKeepHasHeardOfItself(t *testing.T) {
	_, whole, m, l := sharedOut(t, graph.Int8, 5)
	store := membership.NewMemStore()
	defer store.Close()
	a := enter(t, store, "a", m, l, 1, whole)
	defer a.exit(t)
	a.settled(t, 1, 1)
	gate := newLate(store)
	p, member := join(t, gate, "b")
	defer p.Close()
	defer member.Leave(context.Background())
	gate.shut()
	kept := make(chan *Keeper)
	go func() {
		k, err := Keep(within(t), Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1})
		if err != nil {
			t.Error(err)
		}
		kept <- k
	}()
	if _, err := a.member.Until(within(t), func(v *membership.View) bool { b, _ := v.Member("b"); return KindOf(&b) == Kind }); err != nil {
		t.Fatal(err)
	}
	var k *Keeper
	select {
	case k = <-kept: // it has not heard yet
	default:
		gate.tell()
		k = <-kept
	}
	if k == nil {
		return
	}
	defer k.Close()
	v, _ := member.View()
	b, _ := v.Member("b")
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	if KindOf(&b) != Kind || slices.ContainsFunc(k.store.holders, func(h []string) bool { return len(h) == 0 }) {
		t.Errorf("it is %+v, and knows the holders %v", b, k.store.holders)
	}
}

// Who could not become a keeper, as it did not hear of itself in time, says so: nobody deals shards to it, or takes it for a source.
func TestKeepFails(t *testing.T) {
	_, whole, m, l := sharedOut(t, graph.Int8, 5)
	store := membership.NewMemStore()
	defer store.Close()
	gate := newLate(store)
	p, member := join(t, gate, "b")
	defer p.Close()
	defer member.Leave(context.Background())
	q, other := join(t, store, "a")
	defer q.Close()
	defer other.Leave(context.Background())
	gate.shut()
	ctx, cancel := context.WithCancel(within(t))
	failed := make(chan error)
	go func() {
		_, err := Keep(ctx, Options{Member: member, Plane: p, Map: m, Layout: l, Replicas: 1, All: whole})
		failed <- err
	}()
	if _, err := other.Until(within(t), func(v *membership.View) bool {
		b, _ := v.Member("b")
		return KindOf(&b) == Kind && b.Source
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a keeper whose context ended: %v", err)
	}
	revision, err := other.AnnounceAt(within(t), func(*membership.Info) {})
	if err != nil {
		t.Fatal(err)
	}
	v, err := other.Until(within(t), func(v *membership.View) bool { return v.Revision >= revision })
	if err != nil {
		t.Fatal(err)
	}
	if b, in := v.Member("b"); !in || KindOf(&b) != "" || b.Source {
		t.Errorf("it is still said to be one: %+v", b)
	}
	gate.tell()
}
