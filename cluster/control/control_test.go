package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/cluster/transport/transporttest"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func planes(t testing.TB, change func(*Options), names ...string) []*Plane {
	t.Helper()
	var all []*Plane
	for i, n := range names {
		o := Options{Cluster: "test", Node: n, Epoch: int64(i + 1), Listen: "127.0.0.1:0", Resend: 20 * time.Millisecond}
		if change != nil {
			change(&o)
		}
		p, err := Listen(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		all = append(all, p)
		p.Handle("echo", func(_ context.Context, _, from string, body []byte) ([]byte, error) {
			return append([]byte(from+": "), body...), nil
		})
		p.Handle("fail", func(context.Context, string, string, []byte) ([]byte, error) { return nil, errors.New("no such shard") })
		p.Handle("panic", func(context.Context, string, string, []byte) ([]byte, error) { panic("bug") })
	}
	meet(all...)
	return all
}

func meet(all ...*Plane) {
	peers := map[string]Peer{}
	for _, p := range all {
		peers[p.o.Node] = Peer{p.Address(), p.o.Epoch}
	}
	for _, p := range all {
		p.SetPeers(peers)
	}
}

func TestAsk(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := within(t)
	for i, to := range []string{"b", "a"} {
		got, err := p[i].Ask(ctx, "echo", to, []byte("hello"))
		if err != nil || string(got) != p[i].o.Node+": hello" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	var remote *RemoteError
	for _, kind := range []string{"fail", "panic", "unknown"} {
		if _, err := p[0].Ask(ctx, kind, "b", nil); !errors.As(err, &remote) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := p[0].Ask(ctx, "echo", "b", make([]byte, MaxBody+1)); !errors.Is(err, ErrLimit) {
		t.Errorf("too large: %v", err)
	}
	if _, err := p[0].Ask(ctx, "echo", "b", make([]byte, MaxBody)); !errors.As(err, &remote) {
		t.Errorf("an answer too large: %v", err)
	}
	if _, err := p[0].Ask(ctx, "echo", "c", nil); !errors.Is(err, ErrElsewhere) {
		t.Errorf("a stranger: %v", err)
	}
	for i, want := range []map[string]int64{
		{"echo": 2, "fail": 1, "panic": 1, "unknown": 1, "echo answered": 1, "taken": 6},
		{"echo": 1, "echo answered": 2, "fail answered": 1, "panic answered": 1, "unknown answered": 1, "taken": 6},
	} {
		for _, m := range p[i].Traffic() { // some may have to be sent again, or to be sent still
			n, known := want[m.Type]
			known = known || m.Type == "control plane's own"
			if !known || m.Type != "taken" && m.Count < n || m.Envelope > m.Header || m.Envelope > 64<<10 || m.Bulk != 0 {
				t.Errorf("%s sent %+v", p[i].o.Node, m)
			}
			delete(want, m.Type)
			if m.Type == "echo" && i == 0 && m.Envelope < MaxBody {
				t.Errorf("the largest envelope of %d bytes has %d", MaxBody, m.Envelope)
			}
		}
		delete(want, "taken")
		if len(want) > 0 {
			t.Errorf("%s did not count %v", p[i].o.Node, want)
		}
	}
}

// A node that is a member anew for another, at the epoch that it had, is heard by that one and
// hears it, however much they said before; what was under way has ended.
func TestBackAtItsEpoch(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hello := func() {
		t.Helper()
		for i, to := range []string{"b", "a"} {
			got, err := p[i].Ask(ctx, "echo", to, []byte("hello"))
			if err != nil || string(got) != p[i].o.Node+": hello" {
				t.Fatalf("%s asked %s: %q, %v", p[i].o.Node, to, got, err)
			}
		}
	}
	all := map[string]Peer{"a": {p[0].Address(), 1}, "b": {p[1].Address(), 2}}
	for away := range 3 { // for a, for b, and for both
		for range 4*outstanding + 1 {
			hello()
		}
		for i, alone := range []map[string]Peer{{"a": all["a"]}, {"b": all["b"]}} {
			if away == i || away == 2 {
				p[i].SetPeers(alone)
			}
		}
		for i := range p {
			p[i].SetPeers(all)
		}
		hello()
	}
}

// An ask that was taken when its asker was lost for the other node, and that one is a member there anew at the
// epoch that it had without having been away for itself, ends, whether the answer was made or sent meanwhile.
func TestAskedAndBack(t *testing.T) {
	p := planes(t, nil, "a", "b")
	a, b, ctx := p[0], p[1], within(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	b.Handle("slow", func(context.Context, string, string, []byte) ([]byte, error) {
		begun <- struct{}{}
		<-goOn
		return nil, nil
	})
	all, alone := map[string]Peer{"a": {a.Address(), 1}, "b": {b.Address(), 2}}, map[string]Peer{"b": {b.Address(), 2}}
	for _, late := range []bool{false, true} {
		ended := make(chan error)
		go func() {
			_, err := a.Ask(ctx, "slow", "b", nil)
			ended <- err
		}()
		<-begun
		b.mu.Lock()
		asker := b.peers["a"]
		b.mu.Unlock()
		b.SetPeers(alone)
		if late {
			b.SetPeers(all)
		}
		goOn <- struct{}{}
		for busy := 1; busy > 0; runtime.Gosched() { // until it was answered, to nobody
			b.mu.Lock()
			busy = asker.busy
			b.mu.Unlock()
		}
		b.SetPeers(all)
		if err := <-ended; !errors.Is(err, ErrElsewhere) {
			t.Errorf("late %t: %v", late, err)
		}
	}
}

// On a network that loses, doubles and delays, every message is handled once
// and every ask answered.
func TestLossyNetwork(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := within(t)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range p {
		good := x.deliver
		var kept *message
		x.deliver = func(ctx context.Context, pr *peer, m *message) error {
			mu.Lock()
			what, old := r.IntN(4), kept
			kept = m
			mu.Unlock()
			lost := errors.New("lost")
			switch what {
			case 0:
				return lost
			case 1: // delivered, and nobody hears of it
				return errors.Join(good(ctx, pr, m), lost)
			case 2: // an old one again
				if old != nil {
					select {
					case pr.out <- old:
					default:
					}
				}
			}
			return good(ctx, pr, m)
		}
	}
	handled := map[string]int{}
	p[1].Handle("count", func(_ context.Context, _, _ string, body []byte) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		handled[string(body)]++
		return body, nil
	})
	var wg sync.WaitGroup
	const asks = 600 // more than may be outstanding
	for i := range asks {
		wg.Go(func() {
			want := fmt.Append(nil, "ask ", i)
			if got, err := p[0].Ask(ctx, "count", "b", want); err != nil || !bytes.Equal(got, want) {
				t.Errorf("ask %d: %q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i := range asks {
		if n := handled[fmt.Sprint("ask ", i)]; n != 1 {
			t.Errorf("ask %d was handled %d times", i, n)
		}
	}
}

// Asks fail at once when the peer is no member any more or is one anew, and
// messages of its older self are not heard.
func TestPeerGoes(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := within(t)
	began := make(chan struct{}, 1)
	over := make(chan struct{}, 1)
	p[1].Handle("wait", func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		over <- struct{}{}
		return nil, ctx.Err()
	})
	failed := make(chan error, 1)
	go func() {
		_, err := p[0].Ask(ctx, "wait", "b", nil)
		failed <- err
	}()
	<-began
	p[0].SetPeers(map[string]Peer{"b": {p[1].Address(), 99}})
	if err := <-failed; !errors.Is(err, ErrPeerGone) {
		t.Errorf("%v", err)
	}
	p[1].SetPeers(nil)
	<-over
	// b is at epoch 2, a believes 99: what it asks is not for this b.
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := p[0].Ask(short, "echo", "b", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another epoch was served: %v", err)
	}
	meet(p...)
	if _, err := p[0].Ask(ctx, "echo", "b", nil); err != nil {
		t.Errorf("after they met again: %v", err)
	}
	// A real restart, at another address.
	p[1].Close()
	again := planes(t, func(o *Options) { o.Epoch = 3 }, "b")
	meet(p[0], again[0])
	if _, err := p[0].Ask(ctx, "echo", "b", nil); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// keep makes certificates of one authority.
func keep(t *testing.T, nodes ...string) map[string]*transport.Reloader {
	t.Helper()
	issue := transporttest.Reloaders(t)
	all := map[string]*transport.Reloader{}
	for _, n := range nodes {
		all[n] = issue(n)
	}
	return all
}

func TestSecurity(t *testing.T) {
	ours, theirs := keep(t, "a", "b", "x"), keep(t, "x")
	p := planes(t, func(o *Options) { o.Certs = ours[o.Node] }, "a", "b")
	ctx := within(t)
	if _, err := p[0].Ask(ctx, "echo", "b", nil); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*transport.Reloader{"plaintext": nil, "another authority": theirs["x"], "no member": ours["x"]} {
		x := planes(t, func(o *Options) { o.Certs, o.Epoch = k, 1 }, "x")[0]
		x.SetPeers(map[string]Peer{"a": {p[0].Address(), 1}, "b": {p[1].Address(), 2}})
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		for _, to := range []string{"a", "b"} {
			if _, err := x.Ask(short, "echo", to, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s was served: %v", name, err)
			}
		}
		cancel()
	}
	if _, err := Listen(Options{Cluster: "test", Node: "a", Listen: "0.0.0.0:0"}); !errors.Is(err, transport.ErrPlaintext) {
		t.Errorf("plaintext off loopback: %v", err)
	}
	if _, err := Listen(Options{Cluster: "test", Node: "a", Listen: p[0].Address()}); err == nil {
		t.Error("a port was taken twice")
	}
}

// Messages that are malformed, replayed, or of another self are refused.
func TestReceive(t *testing.T) {
	p := planes(t, nil, "a")[0]
	p.SetPeers(map[string]Peer{"b": {"127.0.0.1:1", 2}})
	handled := 0
	var mu sync.Mutex
	done := make(chan struct{}, 10)
	p.Handle("count", func(context.Context, string, string, []byte) ([]byte, error) {
		mu.Lock()
		handled++
		mu.Unlock()
		done <- struct{}{}
		return nil, nil
	})
	good := envelope{From: 2, To: 1, Type: kindRequest, Seq: 1}
	pack := func(change func(*envelope)) []byte {
		m := good
		change(&m)
		b, err := msgpack.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fine := pack(func(*envelope) {})
	for range 3 { // replayed
		if err := p.receive("b", &message{target: "count/a", sender: "asks", raw: fine}); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for name, c := range map[string]struct {
		from string
		raw  []byte
		want error
	}{
		"truncated":           {"b", fine[:len(fine)-3], errMessage},
		"empty":               {"b", nil, errMessage},
		"oversized":           {"b", make([]byte, maxMessage+1), errMessage},
		"a body too large":    {"b", pack(func(m *envelope) { m.Body = make([]byte, MaxBody+1) }), errMessage},
		"number 0":            {"b", pack(func(m *envelope) { m.Seq = 0 }), errMessage},
		"an unknown type":     {"b", pack(func(m *envelope) { m.Type = 9 }), errMessage},
		"word of a word":      {"b", pack(func(m *envelope) { m.Type, m.Of = kindTaken, kindTaken }), errMessage},
		"a stranger":          {"c", pack(func(m *envelope) { m.Seq = 2 }), errStranger},
		"an older sender":     {"b", pack(func(m *envelope) { m.Seq, m.From = 2, 1 }), errStranger},
		"for an older self":   {"b", pack(func(m *envelope) { m.Seq, m.To = 2, 0 }), errOther},
		"far ahead of others": {"b", pack(func(m *envelope) { m.Seq = 1 << 40 }), errBusy},
	} {
		if err := p.receive(c.from, &message{target: "count/a", sender: "asks", raw: c.raw}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if handled != 1 {
		t.Errorf("handled %d times", handled)
	}
	// An answer counts only from whom was asked.
	answers := make(chan *reply, 2)
	p.mu.Lock()
	p.asks[7], p.asks[8] = &ask{node: "c", reply: answers}, &ask{node: "b", reply: answers}
	p.mu.Unlock()
	for seq, of := range []uint64{7, 8} {
		raw := pack(func(m *envelope) { m.Type, m.Seq, m.Ask, m.Body = kindReply, uint64(seq+1), of, []byte{byte(of)} })
		if err := p.receive("b", &message{target: "asks", sender: "count/b", raw: raw}); err != nil {
			t.Error(err)
		}
	}
	if r := <-answers; r.err != nil || r.body[0] != 8 {
		t.Errorf("%v, %v", r.body, r.err)
	}
}

// A message is taken once, none of an older link, and a newer link counts anew. Word of what was taken counts only from
// the link that it went over.
func TestTakeByLink(t *testing.T) {
	p := planes(t, nil, "a")[0]
	p.SetPeers(map[string]Peer{"b": {"127.0.0.1:1", 2}})
	acked := make(chan error, 1)
	p.mu.Lock()
	b := p.peers["b"]
	b.waiting[number{kindRequest, 9}] = acked
	p.mu.Unlock()
	for _, link := range []uint64{b.number + 1, b.number} { // before anything is sent, which could fail, too
		if len(acked) > 0 {
			t.Error("word from another link counts")
		}
		if _, _, err := p.take("b", nil, &envelope{From: 2, To: 1, Type: kindTaken, Of: kindRequest, Seq: 9, Link: link}); err != nil {
			t.Error(err)
		}
	}
	if len(acked) != 1 {
		t.Error("word from its link does not count")
	}
	for _, c := range []struct {
		link, seq uint64
		taken     bool
	}{{2, 1, true}, {2, 1, false}, {1, 2, false}, {2, 2, true}, {3, 1, true}, {2, 3, false}} {
		pr, _, err := p.take("b", &message{target: "count/a", sender: "asks"}, &envelope{From: 2, To: 1, Type: kindRequest, Link: c.link, Seq: c.seq})
		if err != nil || (pr != nil) != c.taken {
			t.Errorf("message %d of link %d: %t, %v", c.seq, c.link, pr != nil, err)
		}
	}
}

// Who asks an actor of its own node hears that the plane is closed, and not what that did to the actor's answer.
func TestCloseEndsOwnAsks(t *testing.T) {
	p := planes(t, nil, "a")[0]
	entered, asked := make(chan struct{}), make(chan error, 1)
	p.Handle("wait", func(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	go func() {
		_, err := p.Ask(within(t), "wait", "a", nil)
		asked <- err
	}()
	<-entered
	p.Close()
	if err := <-asked; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// Whatever comes from the network, nothing panics, and what is decoded keeps to
// the limits.
func FuzzReceive(f *testing.F) {
	p := planes(f, nil, "a")[0]
	p.deliver = func(context.Context, *peer, *message) error { return nil }
	p.SetPeers(map[string]Peer{"b": {"127.0.0.1:1", 2}})
	for _, m := range []*envelope{{From: 2, To: 1, Type: kindRequest, Seq: 1, Body: []byte("x")}, {From: 2, To: 1, Type: kindReply, Seq: 2, Err: "x"}} {
		b, err := msgpack.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := unmarshal(b); err == nil && len(m.Body) > len(b) {
			t.Fatal("more than was there")
		}
		_ = p.receive("b", &message{target: "echo/a", sender: "asks", raw: b}) // any error will do
	})
}

// A peer that asks and does not take the answers is not taken any further
// requests from; when it takes them, it is.
func TestAnswersNotTaken(t *testing.T) {
	p := planes(t, nil, "a", "b")[1]
	open := make(chan struct{})
	good := p.deliver
	p.deliver = func(ctx context.Context, pr *peer, m *message) error {
		select {
		case <-open:
			return good(ctx, pr, m)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	seq := uint64(0)
	ask := func() error {
		raw, err := msgpack.Marshal(&envelope{From: 1, To: 2, Type: kindRequest, Seq: seq + 1, Ask: 1 << 63})
		if err != nil {
			t.Fatal(err)
		}
		if err = p.receive("a", &message{target: "echo/b", sender: "asks", raw: raw}); err == nil {
			seq++
		}
		return err
	}
	for range 5 * outstanding {
		if errors.Is(ask(), errBusy) && seq >= 2*outstanding {
			break
		}
		runtime.Gosched() // handlers give their place back
	}
	if seq > 2*outstanding {
		t.Fatalf("%d requests were taken of a peer that takes no answer", seq)
	}
	close(open)
	for ctx := within(t); errors.Is(ask(), errBusy); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("still busy when all answers were taken")
		}
	}
}

// Handlers that ask their asker back are answered, however many wait.
func TestAskBack(t *testing.T) {
	p := planes(t, nil, "a", "b")
	ctx := within(t)
	const asks, back = 2*outstanding + 100, 5
	var all sync.WaitGroup // as many as b handles at a time are there before the first asks back
	all.Add(outstanding)
	var came atomic.Int64
	p[1].Handle("back", func(_ context.Context, _, from string, body []byte) ([]byte, error) {
		if came.Add(1) <= outstanding {
			all.Done()
		}
		all.Wait()
		for range back {
			if _, err := p[1].Ask(ctx, "echo", from, body); err != nil {
				return nil, err
			}
		}
		return body, nil
	})
	var wg sync.WaitGroup
	for range asks {
		wg.Go(func() {
			if _, err := p[0].Ask(ctx, "back", "b", []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
