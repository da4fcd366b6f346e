package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gnnactor/gnnactor/cluster/etcd"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/cluster/transport/transporttest"
	"github.com/gnnactor/gnnactor/internal/leak"
)

// etcd's servers leave idle HTTP connections to one another behind; each has
// its other end in this process, so that neither is closed. Single servers,
// which cover everything of this module, leave nothing.
func TestMain(m *testing.M) {
	leak.Beside(5)
	if was := etcd.Turns(2 * time.Second); was != 5*time.Second { // the least that etcd grants
		panic(fmt.Sprint("a server's turn is ", was, ", not the 5 s that Turn documents"))
	}
	leak.Main(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"), goleak.IgnoreAnyFunction("net/http.(*connReader).abortPendingRead"))
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func serve(t testing.TB, o etcd.Options) *etcd.Server {
	t.Helper()
	o.ClientListen, o.PeerListen = "127.0.0.1:0", "127.0.0.1:0"
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "store")
	}
	s, err := etcd.Serve(within(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func dial(t testing.TB, f *transport.CertFiles, endpoints ...string) *etcd.Client {
	t.Helper()
	c, err := etcd.Dial(within(t), endpoints, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func join(t testing.TB, s membership.Store, node, home string) *membership.Member {
	t.Helper()
	return joinFor(t, s, node, home, 10*time.Second)
}

func joinFor(t testing.TB, s membership.Store, node, home string, lease time.Duration) *membership.Member {
	t.Helper()
	m, err := membership.Join(within(t), s, membership.Config{Cluster: "test", Info: membership.Info{Node: node, Home: home}, TTL: lease, Outage: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

// cutOff is a store that can be made unreachable.
type cutOff struct {
	membership.Store
	mu  sync.Mutex
	cut bool
}

var errCut = errors.New("no route")

func (c *cutOff) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return errCut
	}
	return nil
}

func (c *cutOff) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *cutOff) Renew(ctx context.Context, l membership.Lease) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Store.Renew(ctx, l)
}

func TestMembership(t *testing.T) {
	t.Parallel() // it waits for a lease to end
	s := serve(t, etcd.Options{Node: "a"})
	ctx := within(t)
	a := join(t, dial(t, nil, s.Endpoint()), "a", "1")
	link := &cutOff{Store: dial(t, nil, s.Endpoint())}
	b := joinFor(t, link, "b", "2", 3*time.Second)
	c := join(t, dial(t, nil, s.Endpoint()), "c", "3")
	if _, err := membership.Join(ctx, dial(t, nil, s.Endpoint()), membership.Config{Cluster: "test", Info: membership.Info{Node: "c", Home: "4"}}); !errors.Is(err, membership.ErrNameTaken) {
		t.Errorf("a second node of one name: %v", err)
	}
	v, err := a.Until(ctx, func(v *membership.View) bool { return len(v.Members) == 3 })
	if err != nil {
		t.Fatal(err)
	}
	if v.Leader != "a" || !a.Leads(v) {
		t.Errorf("leader %q", v.Leader)
	}
	// A write goes through once, under the leader's epoch and the entry's.
	places := []membership.Place{{Kind: "shard", ID: "0", Node: "b"}, {Kind: "parameters", ID: "run", Node: "a"}}
	if err := a.SetPlaces(ctx, v.Epoch, places); err != nil {
		t.Fatal(err)
	}
	if err := a.SetPlaces(ctx, v.Epoch, []membership.Place{{Kind: "shard", ID: "1", Node: "c"}, {Kind: "shard", ID: "0", Node: "c"}}); !errors.Is(err, membership.ErrStale) {
		t.Errorf("an entry that exists was made: %v", err)
	}
	for _, m := range []*membership.Member{a, b} { // a's entries have to be known with their epochs
		if _, err := m.Until(ctx, func(*membership.View) bool { return len(m.Places()) == 2 }); err != nil {
			t.Fatal(err)
		}
	}
	p, ok := a.Place("shard", "0")
	if _, other := a.Place("shard", "1"); !ok || p.Node != "b" || p.Epoch == 0 || other {
		t.Errorf("shard 0 is at %+v, and shard 1 somewhere: %v", p, other)
	}
	if err := b.SetPlaces(ctx, v.Epoch+1, []membership.Place{p}); !errors.Is(err, membership.ErrStale) {
		t.Errorf("a write under another epoch: %v", err)
	}
	moved := p
	moved.Node = "c"
	if err := a.SetPlaces(ctx, v.Epoch, []membership.Place{moved}); err != nil {
		t.Fatal(err)
	}
	if err := a.SetPlaces(ctx, v.Epoch, []membership.Place{p}); !errors.Is(err, membership.ErrStale) {
		t.Errorf("a write over a newer one: %v", err)
	}
	if _, err := c.Until(ctx, func(*membership.View) bool {
		got, ok := c.Place("shard", "0")
		return ok && got.Node == "c" && got.Epoch > p.Epoch
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Until(ctx, func(*membership.View) bool { moved, _ = a.Place("shard", "0"); return moved.Epoch > p.Epoch }); err != nil {
		t.Fatal(err)
	}
	moved.Node = ""
	if err := a.SetPlaces(ctx, v.Epoch, []membership.Place{moved}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Until(ctx, func(*membership.View) bool { return len(c.Places()) == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := a.SetPlaces(ctx, v.Epoch, make([]membership.Place, membership.MaxPlaces+1)); err == nil {
		t.Error("more places than may be were written at once")
	}
	at, err := a.SetValue(ctx, v.Epoch, "checkpoint", 0, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.SetValue(ctx, v.Epoch, "checkpoint", at-1, []byte("two")); !errors.Is(err, membership.ErrStale) {
		t.Errorf("a checkpoint over a newer one: %v", err)
	}

	// A node that cannot renew its lease fences itself (package membership tests
	// that it does before the others can think it gone), and then is gone.
	link.set(true)
	select {
	case <-b.Lost():
	case <-ctx.Done():
		t.Fatal("not fenced")
	}
	if _, err := b.SetValue(ctx, v.Epoch, "checkpoint", at, []byte("zombie")); !errors.Is(err, membership.ErrFenced) {
		t.Errorf("a fenced node writes: %v", err)
	}
	if _, err := a.Until(ctx, func(v *membership.View) bool { return len(v.Members) == 2 }); err != nil {
		t.Fatal(err)
	}

	// The leader goes: another one leads, under a later epoch, and the old
	// epoch's writes are refused.
	if err := a.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Announce(ctx, func(i *membership.Info) { i.Drain = true }); err != nil {
		t.Fatal(err)
	}
	next, err := c.Until(ctx, func(w *membership.View) bool { return w.Leader != "" && w.Epoch > v.Epoch })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.SetValue(ctx, v.Epoch, "checkpoint", at, []byte("late")); !errors.Is(err, membership.ErrStale) {
		t.Errorf("the old leader writes: %v", err)
	}
	if next.Epoch <= v.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, v.Epoch)
	}
	// A node that was killed and comes back has a later epoch, and its old self
	// learns that it is void.
	again := join(t, dial(t, nil, s.Endpoint()), "c", "3")
	select {
	case <-c.Lost():
	case <-ctx.Done():
		t.Fatal("the old self was not fenced")
	}
	if again.Epoch() <= c.Epoch() {
		t.Errorf("epoch %d after %d", again.Epoch(), c.Epoch())
	}
}

// Three servers carry the store; it goes on when one stops, and one that comes
// back with its directory catches up. All of it under mutual TLS.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	issue := transporttest.Authority(t)
	var files []transport.CertFiles
	for i := range 3 {
		files = append(files, issue(fmt.Sprintf("n%d", i)))
	}
	var servers []*etcd.Server
	var endpoints []string
	home := t.TempDir()
	for i := range 3 {
		servers = append(servers, serve(t, etcd.Options{Node: fmt.Sprintf("n%d", i), Dir: filepath.Join(home, fmt.Sprint(i)), Certs: &files[i], Join: endpoints}))
		endpoints = append(endpoints, servers[i].Endpoint())
	}
	ctx := within(t)
	c := dial(t, &files[0], endpoints...)
	if ok, _, err := c.Commit(ctx, nil, []membership.Change{{Key: "x", Value: []byte("1")}}); err != nil || !ok {
		t.Fatal(err)
	}
	// One that is given the name of another by mistake does not put that out.
	namesake := etcd.Options{Node: "n1", Dir: t.TempDir(), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", Certs: &files[1], Join: endpoints}
	if s, err := etcd.Serve(ctx, namesake); !errors.Is(err, etcd.ErrServes) || !strings.Contains(err.Error(), servers[1].Endpoint()) {
		t.Errorf("a second server named n1: %v", err)
		if err == nil {
			s.Close()
		}
	}
	servers[0].Close()
	if err := put(ctx, c, "y"); err != nil {
		t.Fatal(err)
	}
	got, _, err := c.List(ctx, "x")
	if err != nil || len(got) != 1 || string(got[0].Value) != "1" {
		t.Fatalf("%v, %v", got, err)
	}
	// Nobody without a certificate gets in.
	bare := dial(t, nil, endpoints[1])
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := bare.Ready(short); err == nil {
		t.Error("a plaintext client was served")
	}
	// When the authorities change, servers that are told to start anew do so one
	// after another.
	var both []byte
	for _, f := range []transport.CertFiles{files[1], transporttest.Authority(t)("n1")} {
		b, err := os.ReadFile(f.CA)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	for _, s := range servers[1:] {
		select {
		case <-s.Outdated():
			t.Error("the authorities have not changed")
		default:
		}
	}
	if err := os.WriteFile(files[1].CA, both, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[1:] {
		select {
		case <-s.Outdated():
		case <-ctx.Done():
			t.Fatal("the change of the authorities is not seen")
		}
	}
	_, after, err := c.List(ctx, etcd.TurnKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers[1:] {
		if err := s.Turn(ctx); err != nil {
			t.Fatal(err)
		}
		// A turn that is over by now, as the machine is busy, is among the events below.
		if seconds, err := c.Granted(ctx, etcd.TurnKey); err != nil || seconds != 0 && seconds != 2 {
			t.Errorf("a turn is granted for %d s, %v", seconds, err)
		}
	}
	var turns []string
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err = c.Watch(watching, etcd.TurnKey, after, func(changes []membership.Entry, _ int64) {
		for _, e := range changes {
			turns = append(turns, string(e.Value)) // none: the store ended it
		}
		if len(turns) >= 3 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || !slices.Equal(turns[:min(3, len(turns))], []string{"n1", "", "n2"}) {
		t.Errorf("servers had their turns so: %q, %v", turns, err)
	}
}

// put writes until it succeeds: an election may be under way.
func put(ctx context.Context, c *etcd.Client, key string) error {
	for limit := time.Second; ; limit *= 2 {
		short, cancel := context.WithTimeout(ctx, limit)
		_, _, err := c.Commit(short, nil, []membership.Change{{Key: key, Value: []byte("1")}})
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestPlaintextRefused(t *testing.T) {
	if _, err := etcd.Serve(within(t), etcd.Options{Node: "a", Dir: t.TempDir(), ClientListen: "0.0.0.0:0", PeerListen: "127.0.0.1:0"}); !errors.Is(err, transport.ErrPlaintext) {
		t.Errorf("%v", err)
	}
}

// A port that another process has is told as that: it is what makes Serve choose
// another, where it may.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, o := range []etcd.Options{{ClientListen: taken, PeerListen: "127.0.0.1:0"}, {ClientListen: "127.0.0.1:0", PeerListen: taken}} {
		o.Node, o.Dir = "a", filepath.Join(t.TempDir(), "store")
		if s, err := etcd.Serve(within(t), o); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%v", err)
			if err == nil {
				s.Close()
			}
		}
	}
}
