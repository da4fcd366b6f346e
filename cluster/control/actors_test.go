package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
)

// Proto.Actor's cluster has the plane's members, those that came anew among them, and
// finds the actors of each, and of nobody else.
func TestClusterFindsActors(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ids := func() (all []string) {
		for _, m := range p[0].cluster.MemberList.Members().Members() {
			all = append(all, m.Id)
		}
		slices.Sort(all)
		return all
	}
	expect := func(members []string, there bool) {
		t.Helper()
		if got := ids(); !slices.Equal(got, members) {
			t.Errorf("the members are %v, want %v", got, members)
		}
		pid := p[0].cluster.Get("b", "echo")
		if (pid != nil) != there || there && !pid.Equal(actor.NewPID("test/b", "echo/b")) {
			t.Errorf("b's echo is %v", pid)
		}
	}
	expect([]string{"a", "b#1"}, true)
	if pid := p[0].cluster.Get("a", "echo"); !pid.Equal(actor.NewPID("test/a", "echo/a")) {
		t.Errorf("a's own echo is %v", pid)
	}
	self := Peer{p[0].Address(), 1}
	p[0].SetPeers(map[string]Peer{"a": self})
	expect([]string{"a"}, false)
	for i, anew := range []Peer{{p[1].Address(), 2}, {"127.0.0.1:9", 3}} { // the same self again, and another
		p[0].SetPeers(map[string]Peer{"a": self, "b": anew})
		expect([]string{"a", fmt.Sprintf("b#%d", i+2)}, true)
		if n := p[0].cluster.Remote.BlockList().Len(); n > 1 {
			t.Errorf("%d members that left are remembered", n)
		}
	}
}

// A node that has taken the address of another is not mistaken for it.
func TestAnotherAtTheAddress(t *testing.T) {
	p := planes(t, nil, "a", "b")
	p[0].SetPeers(map[string]Peer{"a": {p[0].Address(), 1}, "b": {p[0].Address(), 2}})
	ctx, cancel := context.WithTimeout(within(t), 200*time.Millisecond)
	defer cancel()
	if b, err := p[0].Ask(ctx, "echo", "b", []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("b's echo, said to be at a's own address, answered %q, %v", b, err)
	}
}

// What comes to an actor but requests, and what leaves for another node but requests
// and answers, does nothing.
func TestActorsHearRequestsAlone(t *testing.T) {
	p := planes(t, nil, "a", "b")
	for _, node := range []string{"a", "b"} {
		p[0].system.Root.Send(p[0].cluster.Get(node, "echo"), "hello")
		p[0].system.Root.Stop(p[0].cluster.Get("b", "echo"))
	}
	p[0].system.Root.Send(p[0].asker, &cluster.ClusterInit{})
	if b, err := p[0].Ask(within(t), "echo", "b", []byte("x")); err != nil || string(b) != "a: x" {
		t.Errorf("%q, %v", b, err)
	}
}
