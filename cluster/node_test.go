package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
)

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// serve runs a store.
func serve(t testing.TB) *etcd.Server {
	t.Helper()
	s, err := etcd.Serve(within(t), etcd.Options{Node: "store", Dir: filepath.Join(t.TempDir(), "store"), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// options are those of a node whose lease, and patience with the store, outlast a busy machine.
func options(s *etcd.Server, name, dir string) NodeOptions {
	return NodeOptions{Cluster: "test", Node: name, Dir: dir, Store: []string{s.Endpoint()}, Listen: "127.0.0.1:0", TTL: 30 * time.Second, Leaving: time.Minute}
}

func enter(t testing.TB, o NodeOptions) *Node {
	t.Helper()
	n, err := Enter(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.store != nil {
			leave(t, n)
		}
	})
	return n
}

func leave(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Leave(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	n.store = nil // it has left
}

func await(t testing.TB, n *Node, what string, f func(*membership.View) bool) {
	t.Helper()
	if _, err := n.Member.Until(within(t), f); err != nil {
		v, _ := n.Member.View()
		t.Fatalf("%s: %v; the members are %+v", what, err, v.Members)
	}
}

// A directory keeps its identity, and a damaged one is not replaced by another.
func TestHome(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	one, err := Home(dir)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := Home(dir); err != nil || two != one {
		t.Errorf("%q, then %q, %v", one, two, err)
	}
	if other, err := Home(t.TempDir()); err != nil || other == one {
		t.Errorf("another directory is %q, too; %v", other, err)
	}
	for _, damaged := range []string{"half", strings.Repeat("x", 32) + "\n", one[:31] + "\x00\n"} {
		if err := os.WriteFile(filepath.Join(dir, "home"), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := Home(dir); err == nil {
			t.Errorf("a damaged directory is %q", id)
		}
	}
	file := filepath.Join(dir, "home")
	if _, err := Home(file); err == nil {
		t.Error("a file is a directory")
	}
}

// Nodes see one another on both planes; one that comes back with its directory
// takes its own place, one with another directory does not.
func TestEnter(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := t.TempDir()
	a := enter(t, options(s, "a", t.TempDir()))
	b := enter(t, options(s, "b", dir))
	await(t, a, "both are in", func(v *membership.View) bool { return len(v.Members) == 2 })
	v, _ := a.Member.View()
	if m, _ := v.Member("b"); m.Data != b.Plane.Address() || m.Control != b.Control.Address() {
		t.Errorf("b is known as %+v", m)
	}
	if _, err := Enter(within(t), options(s, "b", t.TempDir())); !errors.Is(err, membership.ErrNameTaken) {
		t.Errorf("another node of the name: %v", err)
	}
	if _, err := Enter(within(t), options(s, "b", dir)); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("node b, process ", os.Getpid())) {
		t.Errorf("a directory that another node has: %v", err)
	}
	if err := b.Member.Err(); err != nil {
		t.Fatalf("who was first is out: %v", err)
	}
	if err := b.release(); err != nil { // as the end of its process would
		t.Fatal(err)
	}
	b.release = func() error { return nil }
	again := enter(t, options(s, "b", dir))
	select {
	case <-b.Member.Lost():
	case <-within(t).Done():
		t.Fatal("the old self was not fenced")
	}
	await(t, a, "the later one is in", func(v *membership.View) bool {
		m, in := v.Member("b")
		return in && m.Epoch == again.Member.Epoch() && m.Data == again.Plane.Address()
	})
}

// Who cannot enter leaves nothing open.
func TestEnterFails(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, change := range map[string]func(*NodeOptions){
		"a port that is taken": func(o *NodeOptions) { o.Listen = s.Endpoint() },
		"no host":              func(o *NodeOptions) { o.Listen = "7402" },
		"plaintext":            func(o *NodeOptions) { o.Listen = "0.0.0.0:0" },
		"a name":               func(o *NodeOptions) { o.Node = "a/b" },
		"a directory":          func(o *NodeOptions) { o.Dir = "/dev/null/x" },
	} {
		o := options(s, "a", t.TempDir())
		change(&o)
		if n, err := Enter(within(t), o); err == nil {
			t.Errorf("%s: entered", name)
			leave(t, n)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	o := options(s, "a", t.TempDir())
	o.Store = []string{"127.0.0.1:1"}
	if _, err := Enter(gone, o); err == nil {
		t.Error("entered without a store")
	}
	// The name is free.
	enter(t, options(s, "a", t.TempDir()))
}

func settings(batch int) map[string]string {
	return map[string]string{"batch-size": fmt.Sprint(batch), "seed": "3"}
}

func nothing(*Run) error { return nil }

// The first node says what the run is, the others take it; who requires
// something else hears what. When the run is done another one may begin.
func TestTake(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	took := make(chan *Run, 1)
	go func() { // who has nothing to propose waits
		r, err := b.AgreeOnRun(within(t), nil, false, nothing)
		if err != nil {
			t.Error(err)
		}
		took <- r
	}()
	first, err := a.AgreeOnRun(within(t), &Run{Settings: settings(64), Data: "d"}, false, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if r := <-took; r == nil || !r.same(first) || r.Node != "a" || r.Epoch != a.Member.Epoch() {
		t.Fatalf("b took %+v, not %+v", r, first)
	}
	c := enter(t, options(s, "c", t.TempDir()))
	differences := func(r *Run) error { return r.Differences(settings(32)) }
	if _, err := c.AgreeOnRun(within(t), &Run{Settings: settings(32), Data: "d"}, false, differences); !errors.Is(err, ErrOtherRun) {
		t.Errorf("c, which wants another batch size: %v", err)
	}
	if r, err := c.AgreeOnRun(within(t), &Run{Settings: settings(32), Data: "d"}, false, nothing); err != nil || !r.same(first) {
		t.Errorf("c, which requires nothing, took %+v, %v", r, err)
	}
	if err := c.Finish(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{a, b, c} {
		leave(t, n)
	}
	d := enter(t, options(s, "d", t.TempDir()))
	await(t, d, "the others are gone", func(v *membership.View) bool { return len(v.Members) == 1 })
	if r, err := d.AgreeOnRun(within(t), &Run{Settings: settings(32)}, false, differences); err != nil || r.Node != "d" || r.Settings["batch-size"] != "32" {
		t.Errorf("d began %+v, %v", r, err)
	}
}

// What differs is named, with both values; what one of the two does not set does not.
func TestDifferences(t *testing.T) {
	r := &Run{Settings: map[string]string{"a": "1", "b": "2"}, Node: "x"}
	if err := r.Differences(map[string]string{"a": "1", "c": "9"}); err != nil {
		t.Error(err)
	}
	err := r.Differences(map[string]string{"b": "3"})
	if !errors.Is(err, ErrOtherRun) {
		t.Fatal(err)
	}
	for _, part := range []string{`b is "2", and "3" here`, "node x"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// Whoever looks gets the status of all; a node drains when it is asked to by way
// of any other, unless nobody would be left to train.
func TestStatusAndDrain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir()))
	a.Report(func() Progress { return Progress{Epoch: 3, Epochs: 9, Step: 77} })
	for _, n := range []*Node{a, b} {
		// As one that has met the others.
		if err := n.Member.Announce(within(t), func(i *membership.Info) { i.Kinds = []string{trainers.Kind} }); err != nil {
			t.Fatal(err)
		}
	}
	a.Member.Stand()
	for _, n := range []*Node{a, b} {
		await(t, n, "both train", func(v *membership.View) bool {
			return v.Leader == "a" && len(v.Members) == 2 && slices.Contains(v.Members[0].Kinds, trainers.Kind) && slices.Contains(v.Members[1].Kinds, trainers.Kind)
		})
	}
	view := func() *membership.View { v, _ := b.Member.View(); return v }
	look := func() *Overview {
		all, err := Look(within(t), "test", view(), nil)
		if err != nil || len(all.Nodes) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all
	}
	all := look()
	late := func(x Status) bool { return x.Problem == context.DeadlineExceeded.Error() }
	for ctx := within(t); slices.ContainsFunc(all.Nodes, late) && ctx.Err() == nil; { // on a busy machine; nothing else is tried again
		all = look()
	}
	for i, n := range []*Node{a, b} {
		if x := all.Nodes[i]; x.Node != n.Plane.Node() || !x.Answered || x.Epoch != n.Member.Epoch() || x.Leader != (x.Node == view().Leader) {
			t.Errorf("the status of node %d is %+v", i, x)
		}
	}
	if p := all.Nodes[0].Training.Progress; p.Step != 77 || p.Epochs != 9 {
		t.Errorf("a is at %+v", p)
	}
	if known := Known(view()).Nodes; len(known) != 2 || known[1].Answered || known[1].Node != "b" {
		t.Errorf("known: %+v", known)
	}
	if err := AskToDrain(within(t), "test", view(), nil, "nobody"); err == nil {
		t.Error("a node drains that is not there")
	}
	if err := AskToDrain(within(t), "test", view(), nil, "b"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Draining():
	case <-within(t).Done():
		t.Fatal("b does not drain")
	}
	await(t, a, "b drains", func(v *membership.View) bool { m, _ := v.Member("b"); return m.Drain })
	if err := AskToDrain(within(t), "test", view(), nil, "a"); err == nil {
		t.Error("the last trainer drains")
	}
	if v, _ := a.Member.View(); slices.ContainsFunc(v.Members, func(m membership.Info) bool { return m.Node == "a" && m.Drain }) {
		t.Error("a drains")
	}
}

// A rate is of the last seconds, and of none without two samples.
func TestRate(t *testing.T) {
	var r rate
	now := time.Unix(1000, 0)
	if x := r.PerSecond(now, 5); x != 0 {
		t.Errorf("%v per second of nothing", x)
	}
	for i := range 100 { // 10 a second, then 20
		r.At(now.Add(time.Duration(i)*time.Second), int64(i*10+max(0, i-50)*10))
	}
	if x := r.PerSecond(now.Add(99*time.Second), 99*10+49*10); x < 19.9 || x > 20.1 {
		t.Errorf("%v per second, not 20", x)
	}
	if n := len(r.samples); n > 10 {
		t.Errorf("%d samples are kept", n)
	}
	if x := r.PerSecond(now.Add(time.Hour), 1480); x != 0 {
		t.Errorf("%v per second after an hour of silence", x)
	}
}

// Whatever a peer answers is a status or refused.
func FuzzDecodeStatus(f *testing.F) {
	f.Add([]byte{0x80})
	f.Add([]byte{0x81, 0xa4, 'n', 'o', 'd', 'e', 0xa1, 'a'})
	f.Add([]byte{0x81, 0xa6, 's', 'h', 'a', 'r', 'd', 's', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decode[Overview](b); err == nil && len(s.Nodes)+len(s.Shards) > len(b) {
			t.Fatalf("%d nodes and %d shards out of %d bytes", len(s.Nodes), len(s.Shards), len(b))
		}
		if s, err := decode[Status](b); err == nil && len(s.Shards) > len(b) {
			t.Fatalf("%d shards out of %d bytes", len(s.Shards), len(b))
		}
	})
}
