package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// An actor is where it is placed, when somebody asks for it, and nowhere else: who asks
// where it is not hears so, who asks on finds it, and what it was asked before it
// moved is answered.
func TestPlace(t *testing.T) {
	var place atomic.Value
	place.Store("b")
	p := planes(t, func(o *Options) {
		o.Place = func(kind, identity string) string {
			if kind == "grain" && identity == "x" {
				return place.Load().(string)
			}
			return ""
		}
	}, "a", "b")
	ctx := within(t)
	began, let := make(chan struct{}, 1), make(chan struct{})
	for _, x := range p {
		x.Handle("grain", func(_ context.Context, identity, from string, body []byte) ([]byte, error) {
			if string(body) == "wait" {
				began <- struct{}{}
				<-let
			}
			return []byte(identity + " on " + x.o.Node + " for " + from), nil
		})
	}
	running := func(a, b int) {
		t.Helper()
		if x, y := p[0].Actors(), p[1].Actors(); x != a || y != b {
			t.Errorf("%d actors run on a and %d on b, not %d and %d", x, y, a, b)
		}
	}
	for i, want := range []string{"x on b for a", "x on b for b"} {
		if got, err := p[i].Ask(ctx, "grain", "x", nil); err != nil || string(got) != want {
			t.Errorf("%q, %v, not %q", got, err, want)
		}
	}
	running(0, 1)
	if _, err := p[0].Ask(ctx, "grain", "y", nil); !errors.Is(err, ErrElsewhere) {
		t.Errorf("an actor that is nowhere: %v", err)
	}
	before := make(chan error, 1)
	go func() {
		got, err := p[0].Ask(ctx, "grain", "x", []byte("wait"))
		if err == nil && string(got) != "x on b for a" {
			err = fmt.Errorf("%q", got)
		}
		before <- err
	}()
	<-began
	place.Store("")
	p[1].Settle()
	running(0, 0)
	persisting := make(chan error, 1)
	go func() {
		got, err := p[1].Request(ctx, "grain", "x", nil)
		if err == nil && string(got) != "x on a for b" {
			err = fmt.Errorf("%q", got)
		}
		persisting <- err
	}()
	// One who believes that it is there still.
	stale := actor.NewPID("test/b", "grain/x")
	heard := make(chan *reply, 1)
	p[0].mu.Lock()
	p[0].asks[1] = &ask{node: "b", kind: "grain", reply: heard}
	pr := p[0].peers["b"]
	p[0].mu.Unlock()
	p[0].system.Root.RequestWithCustomSender(stale, &request{ask: 1, ctx: ctx, peer: pr}, p[0].asker)
	if r := <-heard; !errors.Is(r.err, ErrElsewhere) {
		t.Errorf("asked where it is not: %q, %v", r.body, r.err)
	}
	place.Store("a")
	if err := <-persisting; err != nil {
		t.Error(err)
	}
	running(1, 0)
	close(let)
	if err := <-before; err != nil {
		t.Errorf("asked before it moved: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	place.Store("")
	if _, err := p[0].Request(gone, "grain", "x", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrElsewhere) {
		t.Errorf("who gives up hears %v", err)
	}
}

// Asks that come while their actor comes and goes are answered, or hear that it is not
// there.
func TestAsksWhileSettling(t *testing.T) {
	var there atomic.Bool
	p := planes(t, func(o *Options) {
		o.Resend = time.Millisecond
		o.Place = func(_, identity string) string {
			if identity == "b" && !there.Load() {
				return ""
			}
			return identity
		}
	}, "a", "b")
	ctx := within(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := p[i%2].Request(ctx, "echo", "b", []byte("x")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	for {
		select {
		case <-over:
			return
		default:
			there.Store(!there.Load())
			p[1].Settle()
		}
	}
}
