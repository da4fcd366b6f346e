package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
)

// What of the table is written: nothing that holds still, a new place for what moved
// or drains, none for what is gone.
func TestPlaces(t *testing.T) {
	v := &membership.View{Leader: "a", Members: []membership.Info{
		{Node: "a", Epoch: 1, Shards: []int{0, 1, 2}},
		{Node: "b", Epoch: 2, Shards: []int{1, 2, 10}, Yield: true},
		{Node: "c", Epoch: 3, Shards: []int{0, 10, 12}},
		{Node: "s", Epoch: 4, Kinds: []string{samplers.Kind}}, {Node: "t", Epoch: 5, Samplers: 1},
		{Node: "u", Epoch: 6, Kinds: []string{shard.PartKind}, Shards: []int{0, 3}},
	}}
	at := func(kind, id, node string, epoch int64) membership.Place {
		return membership.Place{Kind: kind, ID: id, Node: node, Epoch: epoch}
	}
	table := []membership.Place{
		at(kindParameters, theRun, "b", 4),
		at(shard.PartKind, "0", "u", 12), // a piece is no shard of its number
		at(shard.PartKind, "1", "a", 13),
		at(shard.Kind, "0", "c", 5),       // holds still, though a comes first
		at(shard.Kind, "1", "b", 6),       // drains, and a has it too
		at(shard.Kind, "7", "a", 7),       // nobody's
		at(shard.Kind, "12", "d", 8),      // d is gone
		at("old", "x", "a", 9),            // of another version
		at(samplers.Kind, "t:0", "s", 10), // was put there
		at(samplers.Kind, "t:1", "s", 11), // of a trainer that has one
	}
	want := []membership.Place{
		at("old", "x", "", 9), at(kindParameters, theRun, "a", 4), at(shard.PartKind, "1", "", 13), at(shard.PartKind, "3", "u", 0), at(samplers.Kind, "t:1", "", 11),
		at(shard.Kind, "1", "a", 6), at(shard.Kind, "10", "c", 0), at(shard.Kind, "12", "c", 8), at(shard.Kind, "2", "a", 0), at(shard.Kind, "7", "", 7),
	}
	if got := changes(v, table, "a", 1); !slices.Equal(got, want) {
		t.Errorf("it writes\n%+v, not\n%+v", got, want)
	}
	if got := changes(v, table[:1], "a", 9); !slices.Contains(got, at(kindParameters, theRun, "", 4)) {
		t.Errorf("the parameters are with a node's older self: %+v", got)
	}
	v.Members = v.Members[1:2] // it drains, and there is nobody else
	if got := changes(v, []membership.Place{at(shard.Kind, "1", "b", 6), at(shard.Kind, "2", "b", 6), at(shard.Kind, "10", "b", 6)}, "", 0); got != nil {
		t.Errorf("the last one gives %+v away", got)
	}
}

// Actors are found wherever they are while nodes come and go: no ask fails, and each
// shard is answered for by a node that holds it.
func TestActorsMove(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := filepath.Join(t.TempDir(), "data")
	if err := store.Create(t.Context(), dir, generate.Builtin()); err != nil {
		t.Fatal(err)
	}
	shards := Shards{Method: "hash", Parts: 4, Replicas: 1}
	_, sum, err := shards.Deal(t.Context(), generate.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	share := func(n *Node) *Features {
		t.Helper()
		f, err := n.HoldShards(within(t), &Run{Map: sum}, dir, shards)
		if err == nil {
			err = f.Ready(within(t))
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	if _, err := b.Control.Ask(within(t), kindCoordinator, theRun, []byte(askStatus)); !errors.Is(err, control.ErrElsewhere) {
		t.Errorf("nobody leads, and the coordinator says %v", err)
	}
	a.Member.Stand()
	share(a)
	share(b)
	answered := make(chan string) // the nodes that answer, for whoever wants to know
	asking, stop := context.WithCancel(context.Background())
	defer stop()
	pace := time.NewTicker(time.Millisecond) // who asks without a pause keeps both processors from those who move
	defer pace.Stop()
	var wg sync.WaitGroup
	for _, n := range []*Node{a, b} {
		for i := range 4 {
			wg.Go(func() {
				for {
					select {
					case <-pace.C:
					case <-asking.Done():
						return
					}
					raw, err := n.Control.Request(within(t), shard.Kind, strconv.Itoa(i), []byte(askStatus))
					at, bad := decode[Shard](raw)
					if err != nil || bad != nil || at.ID != i || at.Rows == 0 {
						t.Errorf("%s asks shard %d: %+v, %v, %v", n.Plane.Node(), i, at, err, bad)
						return
					}
					select {
					case answered <- at.Node:
					default:
					}
				}
			})
		}
	}
	heard := func(node string) {
		t.Helper()
		for limit := within(t); ; {
			select {
			case by := <-answered:
				if by == node {
					return
				}
			case <-limit.Done():
				t.Fatalf("nothing was answered by %s", node)
			}
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		c := enter(t, options(s, name, t.TempDir()))
		f := share(c)
		heard(name)
		if err := f.keeper.Drain(within(t)); err != nil {
			t.Fatal(err)
		}
		for limit := within(t); c.Control.Actors() > 0; runtime.Gosched() {
			if limit.Err() != nil {
				t.Fatalf("%d actors are left on a node that gave all away", c.Control.Actors())
			}
		}
		leave(t, c)
	}
	stop()
	wg.Wait()
	all, err := Look(within(t), "test", func() *membership.View { v, _ := b.Member.View(); return v }(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for i, h := range all.Shards {
		rows += h.Rows
		if h.ID != i || h.Node == "" || !slices.Contains(h.Nodes, h.Node) {
			t.Errorf("shard %d: %+v", i, h)
		}
	}
	if all.By != "a" || rows != 4000 {
		t.Errorf("%s, which does not lead, says that there are %d rows", all.By, rows)
	}
	if _, err := b.Control.Ask(within(t), kindNode, "a", []byte("reboot")); err == nil || !strings.Contains(err.Error(), "not asked") {
		t.Errorf("a node was asked something unheard of, and said %v", err)
	}
}

// Of two nodes that are told to drain at the same time, one stays to train.
func TestDrainsTakeTurns(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var nodes []*Node
	for _, name := range []string{"a", "b"} {
		n := enter(t, options(s, name, t.TempDir()))
		if err := n.Member.Announce(within(t), func(i *membership.Info) { i.Kinds = []string{trainers.Kind} }); err != nil {
			t.Fatal(err)
		}
		n.Member.Stand()
		nodes = append(nodes, n)
	}
	var v *membership.View
	for _, n := range nodes {
		await(t, n, "both train, and one leads", func(now *membership.View) bool {
			v = now
			return now.Leader != "" && len(now.Members) == 2 && len(now.Members[0].Kinds) == 1 && len(now.Members[1].Kinds) == 1
		})
	}
	refused := make(chan error, 2)
	for _, n := range nodes {
		go func() { refused <- AskToDrain(within(t), "test", v, nil, n.Plane.Node()) }()
	}
	one, other := <-refused, <-refused
	if (one == nil) == (other == nil) {
		t.Errorf("both or none of two nodes drain: %v, %v", one, other)
	}
	for _, err := range []error{one, other} {
		if err != nil && !strings.Contains(err.Error(), "the last that trains") {
			t.Error(err)
		}
	}
}

// The last node that samples does not drain while somebody trains who needs one; as soon as another is to sample, or
// who trains samples for himself, it does.
func TestDrainLastSampler(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	announce := func(n *Node, change func(*membership.Info)) {
		t.Helper()
		if err := n.Member.Announce(within(t), change); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(why string, f func(a, b membership.Info) bool) {
		t.Helper()
		await(t, a, why, func(v *membership.View) bool {
			return v.Leader == "a" && len(v.Members) == 2 && f(v.Members[0], v.Members[1])
		})
	}
	announce(a, func(i *membership.Info) { i.Kinds = []string{trainers.Kind} })
	announce(b, func(i *membership.Info) { i.Samples = true })
	a.Member.Stand()
	sees("b samples for a", func(a, b membership.Info) bool { return trains(a) && b.Samples })
	if err := a.drainOne(within(t), "b", "a test"); err == nil || !strings.Contains(err.Error(), "the last that samples") || !strings.Contains(err.Error(), "--roles sampler") {
		t.Errorf("the last that samples: %v", err)
	}
	announce(a, func(i *membership.Info) { i.Samples = true })
	sees("a samples, too", func(a, _ membership.Info) bool { return a.Samples })
	if err := a.drainOne(within(t), "b", "a test"); err != nil {
		t.Error(err)
	}
	<-b.Draining()
}

// The last node that holds pieces does not drain; as soon as another is there to take them, it does.
func TestDrainLastPieces(t *testing.T) {
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	holds := func(n *Node) {
		t.Helper()
		if err := n.Member.Announce(within(t), func(i *membership.Info) { i.Kinds = []string{shard.PartKind} }); err != nil {
			t.Fatal(err)
		}
		await(t, a, "a node of pieces", func(v *membership.View) bool { m, _ := v.Member(n.Plane.Node()); return holdsRows(m) })
	}
	holds(b)
	if err := a.drainOne(within(t), "b", "a test"); err == nil || !strings.Contains(err.Error(), "b is the last that holds pieces") {
		t.Errorf("the last that holds pieces: %v", err)
	}
	holds(a)
	if err := a.drainOne(within(t), "b", "a test"); err != nil {
		t.Error(err)
	}
	<-b.Draining()
}

// The last node that holds rows does not drain while somebody trains; as soon as another is there to take them, it does.
func TestDrainLastHolder(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b, c := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir())), enter(t, options(s, "c", t.TempDir()))
	announce := func(n *Node, change func(*membership.Info)) {
		t.Helper()
		if err := n.Member.Announce(within(t), change); err != nil {
			t.Fatal(err)
		}
	}
	announce(a, func(i *membership.Info) { i.Kinds = []string{trainers.Kind} })
	announce(b, func(i *membership.Info) { i.Kinds, i.Shards = []string{shard.Kind}, []int{0, 1} })
	a.Member.Stand()
	await(t, a, "b holds rows for a", func(v *membership.View) bool {
		return v.Leader == "a" && len(v.Members) == 3 && trains(v.Members[0]) && len(v.Members[1].Shards) == 2
	})
	if err := a.drainOne(within(t), "b", "a test"); err == nil || !strings.Contains(err.Error(), "the last that holds rows") || !strings.Contains(err.Error(), "--roles rows") {
		t.Errorf("the last that holds rows: %v", err)
	}
	announce(c, func(i *membership.Info) { i.Kinds = []string{shard.Kind} })
	await(t, a, "c holds rows, too", func(v *membership.View) bool { return holdsRows(v.Members[2]) })
	if err := a.drainOne(within(t), "b", "a test"); err != nil {
		t.Error(err)
	}
	<-b.Draining()
}

// Between two leaders drains wait for the next one, wherever they were asked for: one
// of two trainers stays.
func TestDrainWithoutLeader(t *testing.T) {
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	for _, n := range []*Node{a, b} {
		if err := n.Member.Announce(within(t), func(i *membership.Info) { i.Kinds = []string{trainers.Kind} }); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []*Node{a, b} {
		await(t, n, "both train", func(v *membership.View) bool {
			return len(v.Members) == 2 && trains(v.Members[0]) && trains(v.Members[1])
		})
	}
	v, _ := a.Member.View()
	drained := make(chan error, 2)
	for i, other := range []string{"b", "a"} {
		go func() {
			drained <- AskToDrain(within(t), "test", &membership.View{Members: v.Members[i : i+1]}, nil, other)
		}()
	}
	a.Member.Stand()
	one, other := <-drained, <-drained
	if (one == nil) == (other == nil) {
		t.Errorf("both or none of two nodes drain: %v, %v", one, other)
	}
}

// A leader that is dead is passed by, and a node that leaves before it could answer has
// drained.
func TestDrainAndGone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := enter(t, options(s, "a", t.TempDir()))
	a.Member.Stand()
	for i := range 5 {
		name := fmt.Sprintf("b%d", i)
		b := enter(t, options(s, name, t.TempDir()))
		await(t, a, "a leads", func(v *membership.View) bool { _, ok := v.Member(name); return ok && v.Leader == "a" })
		left := make(chan struct{})
		go func() {
			<-b.Draining()
			leave(t, b)
			close(left)
		}()
		v, _ := a.Member.View()
		dead := *v
		dead.Leader, dead.Members = "0", append([]membership.Info{{Node: "0", Control: "127.0.0.1:1"}}, v.Members...)
		if all, err := Look(within(t), "test", &dead, nil); err != nil || all.By != "a" {
			t.Errorf("%+v, %v", all, err)
		}
		if err := AskToDrain(within(t), "test", &dead, nil, name); err != nil {
			t.Fatal(err)
		}
		<-left
	}
}

// A drain of a node that does not answer ends, and others go on.
func TestDrainThatHangs(t *testing.T) {
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	c := enter(t, options(s, "c", t.TempDir()))
	a.Member.Stand()
	await(t, a, "a leads three", func(v *membership.View) bool { return v.Leader == "a" && len(v.Members) == 3 })
	asked := make(chan struct{}, 1)
	b.Control.Handle(kindNode, func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failed, drained := make(chan error, 1), make(chan error, 1)
	ctx, giveUp := context.WithCancel(within(t))
	go func() { failed <- a.drainOne(ctx, "b", "a test") }()
	<-asked
	go func() { drained <- a.drainOne(within(t), "c", "a test") }()
	giveUp()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "b does not drain") {
		t.Errorf("b, which hangs, drains: %v", err)
	}
	<-c.Draining()
}
