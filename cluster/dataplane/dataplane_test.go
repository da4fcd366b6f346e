package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/cluster/transport/transporttest"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const (
	methodEcho Method = 16 + iota
	methodSize
	methodWait
	methodFail
	methodPanic
)

// planes opens planes that know each other.
func planes(t testing.TB, change func(*Options), names ...string) []*Plane {
	t.Helper()
	var all []*Plane
	for _, n := range names {
		o := Options{Cluster: "test", Node: n, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute}
		if change != nil {
			change(&o)
		}
		p, err := Listen(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		all = append(all, p)
		p.Handle(methodEcho, func(_ context.Context, r *Request) (Reply, error) {
			return Reply{Data: [][]byte{bytes.Clone(r.Body)}}, nil
		})
		p.Handle(methodSize, func(_ context.Context, r *Request) (Reply, error) {
			return Reply{Data: [][]byte{pattern(int(binary.LittleEndian.Uint32(r.Body)))}}, nil
		})
		p.Handle(methodWait, func(ctx context.Context, _ *Request) (Reply, error) {
			<-ctx.Done()
			return Reply{}, ctx.Err()
		})
		p.Handle(methodFail, func(context.Context, *Request) (Reply, error) { return Reply{}, errors.New("no such row") })
		p.Handle(methodPanic, func(context.Context, *Request) (Reply, error) { panic("bug") })
	}
	for _, p := range all {
		for _, q := range all {
			if p != q {
				p.SetPeer(q.Node(), q.Address())
			}
		}
	}
	return all
}

// pattern returns n bytes that no other length begins with by chance.
func pattern(n int) []byte {
	b := make([]byte, n, n+8)
	x := uint64(n)
	for i := 0; i < n; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:i+8:i+8], x>>32|x<<32)
	}
	return b
}

func size(n int) [][]byte { return [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(n))} }

func ctxFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Requests and replies of all sizes around the frame's arrive whole, in both
// directions at once, whoever opens the stream.
func TestAsk(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := ctxFor(t)
	var wg sync.WaitGroup
	for _, from := range []int{1, 0} { // b has to ask to be dialled back first
		me, other := p[from], p[1-from].Node()
		for _, n := range []int{0, 1, small, small + 1, chunk - 1, chunk, chunk + 1, 3*chunk + 5, 8 << 20} {
			wg.Go(func() {
				want := pattern(n)
				got, err := me.Ask(ctx, Call{Node: other, Method: methodEcho, Body: [][]byte{want[:n/3], nil, want[n/3:]}, Max: n})
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("echo of %d bytes: %d, %v", n, len(got), err)
				}
				into := make([]byte, 0, n+10)
				got, err = me.Ask(ctx, Call{Node: other, Method: methodSize, Body: size(n), Into: into})
				if err != nil || !bytes.Equal(got, want) || n > 0 && &got[0] != &into[:1][0] {
					t.Errorf("reply of %d bytes: %d, %v", n, len(got), err)
				}
			})
		}
	}
	wg.Wait()
	if n := len(p[0].Peers()); n != 1 {
		t.Errorf("%d connections between two nodes", n)
	}
}

func TestRefusals(t *testing.T) {
	p := planes(t, func(o *Options) { o.MaxRequest = 1 << 20 }, "a", "b")
	ctx := ctxFor(t)
	ask := func(c Call) error {
		c.Node = "b"
		_, err := p[0].Ask(ctx, c)
		return err
	}
	var remote *RemoteError
	for name, c := range map[string]struct {
		call Call
		want func(error) bool
	}{
		"a handler's error":      {Call{Method: methodFail}, func(err error) bool { return errors.As(err, &remote) && remote.Text == "no such row" }},
		"a handler's panic":      {Call{Method: methodPanic}, func(err error) bool { return errors.As(err, &remote) }},
		"an unknown method":      {Call{Method: 999}, func(err error) bool { return errors.As(err, &remote) }},
		"a reply over its limit": {Call{Method: methodSize, Body: size(11), Max: 10}, func(err error) bool { return errors.Is(err, ErrLimit) }},
		"a request too large":    {Call{Method: methodEcho, Body: [][]byte{make([]byte, 1<<20+1)}}, func(err error) bool { return errors.Is(err, ErrLimit) }},
	} {
		if err := ask(c.call); !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p[0].Ask(ctx, Call{Node: "c", Method: methodEcho}); !errors.Is(err, ErrPeerGone) {
		t.Errorf("an unknown node: %v", err)
	}
	if err := ask(Call{Method: methodEcho, Body: [][]byte{{1}}, Max: 1}); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

// drop ends the connection to a node, if there is one.
func drop(p *Plane, node string) {
	p.mu.Lock()
	s := p.sessions[node]
	p.mu.Unlock()
	if s != nil {
		s.end(fmt.Errorf("%w: it broke", ErrPeerGone))
	}
}

// Asks fail at once when the peer closes, is dropped, or is given up.
func TestPeerGoes(t *testing.T) {
	for name, how := range map[string]func(p []*Plane, cancel func()){
		"closed":  func(p []*Plane, _ func()) { p[1].Close() },
		"closes":  func(p []*Plane, _ func()) { p[0].Close() },
		"dropped": func(p []*Plane, _ func()) { drop(p[0], "b") },
		"gave up": func(_ []*Plane, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			p := planes(t, func(o *Options) { o.Logger = logger }, "a", "b")
			ctx, cancel := context.WithCancel(ctxFor(t))
			defer cancel()
			began := make(chan struct{}, 10)
			over := make(chan struct{}, 10)
			p[1].Handle(methodWait, func(ctx context.Context, _ *Request) (Reply, error) {
				began <- struct{}{}
				<-ctx.Done()
				over <- struct{}{}
				return Reply{}, ctx.Err()
			})
			errs := make(chan error, 10)
			for range 10 {
				go func() {
					_, err := p[0].Ask(ctx, Call{Node: "b", Method: methodWait})
					errs <- err
				}()
			}
			for range 10 {
				<-began
			}
			how(p, cancel)
			for range 10 {
				if err := <-errs; !errors.Is(err, ErrPeerGone) && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
					t.Errorf("%v", err)
				}
				<-over // the handlers hear of it too
			}
			p[0].Close()
			p[1].Close()
			if said, worth := strings.Contains(log.String(), "connection ended"), name == "dropped"; said != worth && name != "closed" { // of a server that closes the last that is heard may be that it is gone
				t.Errorf("the log is of a loss: %v, and should be: %v:\n%s", said, worth, &log)
			}
		})
	}
}

// A node that comes back under its name is reached again.
func TestRestart(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := ctxFor(t)
	for round := range 3 {
		for i, other := range []string{"b", "a"} {
			if _, err := p[i].Ask(ctx, Call{Node: other, Method: methodEcho, Max: 1}); err != nil {
				t.Fatalf("round %d, to %s: %v", round, other, err)
			}
		}
		p[round%2].Close()
		drop(p[(round+1)%2], []string{"a", "b"}[round%2]) // the transport may not have noticed yet
		p[round%2] = planes(t, nil, []string{"a", "b"}[round%2])[0]
		p[0].SetPeer("b", p[1].Address())
		p[1].SetPeer("a", p[0].Address())
	}
}

func TestTickets(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := ctxFor(t)
	want := pattern(5 << 20)
	released := make(chan struct{})
	ticket, withdraw := p[1].Offer("numbers", [][]byte{want[:100], want[100:]}, func() { close(released) })
	for range 2 {
		got, err := p[0].Fetch(ctx, ticket, nil)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	longer := ticket
	longer.Size = -1
	if _, err := p[0].Fetch(ctx, longer, nil); !errors.Is(err, ErrLimit) {
		t.Errorf("a negative size: %v", err)
	}
	longer = ticket
	longer.Size++
	var remote *RemoteError
	if _, err := p[0].Fetch(ctx, longer, nil); !errors.As(err, &remote) {
		t.Errorf("a forged size: %v", err)
	}
	withdraw()
	<-released
	if _, err := p[0].Fetch(ctx, ticket, nil); !errors.As(err, &remote) || p[1].Offers() != 0 {
		t.Errorf("after its end: %v", err)
	}
	p[0].Close()
	p[1].Close()
	for i, p := range p {
		all, bytes := map[string]transport.Sent{}, int64(0)
		for _, m := range p.Traffic() {
			all[m.Type], bytes = m, bytes+m.Header+m.Bulk
		}
		if sent := p.Stats().Sent; bytes != sent {
			t.Errorf("%v come to %d bytes, and %d were sent", all, bytes, sent)
		}
		asked, numbers := transport.Sent{Type: "ticket", Count: 4, Header: 4 * headerSize, Bulk: 4 * 32}, transport.Sent{Type: "numbers", Count: 2, Header: (6 + 6) * headerSize, Bulk: 10 << 20}
		if want := []transport.Sent{asked, numbers}[i]; all[want.Type] != want {
			t.Errorf("sent %+v, not %+v", all, want)
		}
	}
}

// Release is called once for every reply, given up or not.
func TestRelease(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := ctxFor(t)
	data := pattern(9 << 20)
	var mu sync.Mutex
	released := map[int]int{}
	all := make(chan struct{}, 100)
	made := 0
	p[1].Handle(methodSize, func(context.Context, *Request) (Reply, error) {
		mu.Lock()
		i := made
		made++
		mu.Unlock()
		return Reply{Data: [][]byte{data[:i], data}, Release: func() {
			mu.Lock()
			released[i]++
			mu.Unlock()
			all <- struct{}{}
		}}, nil
	})
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			limit := 10 << 20
			if i%3 == 0 {
				limit = 100 // is cancelled when its first frame comes
			}
			_, err := p[0].Ask(ctx, Call{Node: "b", Method: methodSize, Max: limit})
			if (err != nil) != (i%3 == 0) {
				t.Errorf("ask %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for range n {
		<-all
	}
	for i := range n {
		if released[i] != 1 {
			t.Errorf("reply %d was released %d times", i, released[i])
		}
	}
}

func TestGreetings(t *testing.T) {
	ours, theirs := transporttest.Reloaders(t), transporttest.Reloaders(t)
	good := planes(t, func(o *Options) { o.Certs = ours(o.Node) }, "a", "b")
	ctx := ctxFor(t)
	want := pattern(3 << 20)
	for i, other := range []string{"b", "a"} {
		got, err := good[i].Ask(ctx, Call{Node: other, Method: methodEcho, Body: [][]byte{want}, Max: len(want)})
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("mutual TLS: %v", err)
		}
	}
	for name, o := range map[string]Options{
		"plaintext":           {Cluster: "test", Node: "aa"},
		"another authority":   {Cluster: "test", Node: "aa", Certs: theirs("aa")},
		"another cluster":     {Cluster: "other", Node: "aa", Certs: ours("aa")},
		"its name taken":      {Cluster: "test", Node: "b", Certs: ours("b")},
		"another node's name": {Cluster: "test", Node: "aa", Certs: ours("aa")},
	} {
		t.Run(name, func(t *testing.T) {
			o.Listen, o.DialTimeout = "127.0.0.1:0", time.Second
			p, err := Listen(o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if name == "another node's name" {
				p.o.Node = "ab" // behind its options' back
			}
			p.SetPeer("b", good[1].Address())
			p.SetPeer("a", good[0].Address())
			for _, to := range []string{"a", "b"} { // dialled back and by a stream
				if to == p.o.Node {
					continue
				}
				if _, err := p.Ask(ctx, Call{Node: to, Method: methodEcho, Max: 1}); !errors.Is(err, ErrPeerGone) {
					t.Errorf("to %s: %v", to, err)
				}
			}
		})
	}
	if _, err := Listen(Options{Cluster: "test", Node: "c", Listen: "127.0.0.1:0", Certs: ours("a")}); err == nil || !strings.Contains(err.Error(), "certificate of a") {
		t.Errorf("a certificate of another node: %v", err)
	}
	if _, err := Listen(Options{Cluster: "test", Node: "c", Listen: "0.0.0.0:0"}); !errors.Is(err, transport.ErrPlaintext) {
		t.Errorf("plaintext off loopback: %v", err)
	}
}

// A node takes no more peers than it is allowed to.
func TestMaxPeers(t *testing.T) {
	p := planes(t, func(o *Options) { o.MaxPeers = 2 }, "a", "b", "c", "z")
	ctx := ctxFor(t)
	var failed int
	for _, me := range p[:3] {
		if _, err := me.Ask(ctx, Call{Node: "z", Method: methodEcho, Max: 1}); err != nil {
			if !errors.Is(err, ErrPeerGone) {
				t.Error(err)
			}
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d of 3 peers were refused, not 1", failed)
	}
}

// Many asks at once, of all sizes, on windows that are small: nothing is lost,
// nothing is stuck.
func TestCrowd(t *testing.T) {
	p := planes(t, func(o *Options) { o.Window, o.MaxRequest, o.MaxAsks = 4<<20, 2<<20, 7 }, "a", "b", "c")
	ctx := ctxFor(t)
	var wg sync.WaitGroup
	for i, me := range p {
		for w := range 12 {
			r := rand.New(rand.NewPCG(uint64(i), uint64(w)))
			wg.Go(func() {
				for range 3 {
					to := p[(i+1+r.IntN(2))%3].Node()
					want := pattern(r.IntN(2 << 20))
					got, err := me.Ask(ctx, Call{Node: to, Method: methodEcho, Body: [][]byte{want}, Max: len(want)})
					if err != nil || !bytes.Equal(got, want) {
						t.Error(fmt.Errorf("%s to %s: %w", me.Node(), to, err))
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
