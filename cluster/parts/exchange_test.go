package parts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// planes opens planes that know each other.
func planes(t *testing.T, names ...string) (all []*dataplane.Plane) {
	t.Helper()
	for _, name := range names {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		all = append(all, p)
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

// opened opens an exchange at each plane.
func opened(t *testing.T, all []*dataplane.Plane, o ExchangeOptions) (ex []*Exchange) {
	t.Helper()
	var servers []*Exchanges
	for _, p := range all {
		servers = append(servers, ServeExchanges(p))
	}
	for _, s := range servers {
		e, err := s.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close(nil) })
		ex = append(ex, e)
	}
	return ex
}

// rowsOf are what a piece sends to another in a round: between none and 3,000 values that no other message has.
func rowsOf(round, from, to int) []float32 {
	r := rand.New(rand.NewPCG(uint64(round), uint64(from<<16|to)))
	rows := make([]float32, 1+r.IntN(3000))
	for i := range rows {
		rows[i] = r.Float32()
	}
	return rows
}

// All pieces send to all others in all rounds, or offer, before anybody receives, in orders of their own, with much room and with
// less than most messages need: every message arrives, once, and nothing is left over. What is sent is 4 bytes for each value that another
// node needs and 2 % beside it.
func TestExchange(t *testing.T) {
	const rounds = 4
	for _, nodes := range []string{"aaa", "ab", "abcab", "abcdabcd"} {
		for _, room := range []int{0, 4096} {
			t.Run(fmt.Sprintf("%s in %d", nodes, room), func(t *testing.T) {
				placed := strings.Split(nodes, "")
				names := slices.Compact(slices.Sorted(slices.Values(placed)))
				all := planes(t, names...)
				ex := opened(t, all, ExchangeOptions{Name: "test", Nodes: placed, Room: room})
				var want int64
				var sent, received sync.WaitGroup
				sent.Add(len(placed))
				for p, node := range placed {
					e := ex[slices.Index(names, node)]
					for q, other := range placed {
						for r := range rounds {
							if other != node {
								want += 4 * int64(len(rowsOf(r, p, q)))
							}
						}
					}
					received.Go(func() {
						each := func(do func(r, q int) error) {
							for _, i := range rand.New(rand.NewPCG(uint64(p), 7)).Perm(rounds * len(placed)) {
								if err := do(i/len(placed), i%len(placed)); err != nil {
									t.Error(err)
								}
							}
						}
						each(func(r, q int) error {
							rows, taken := rowsOf(r, p, q), false
							if r%2 == 0 || placed[q] == node {
								return e.Send(t.Context(), fmt.Sprint("round-", r), p, q, rows)
							}
							return e.Offer(t.Context(), fmt.Sprint("round-", r), p, q, len(rows), func(into []float32) error {
								if copy(into, rows) < len(rows) || taken {
									t.Errorf("%d values are taken of %d, or again", len(into), len(rows))
								}
								taken = true
								return nil
							})
						})
						sent.Done()
						sent.Wait()
						each(func(r, q int) error {
							want := rowsOf(r, q, p)
							got := make([]float32, len(want))
							err := e.Receive(t.Context(), fmt.Sprint("round-", r), q, p, got)
							if !slices.Equal(got, want) {
								t.Errorf("piece %d got other rows from piece %d in round %d", p, q, r)
							}
							return err
						})
					})
				}
				received.Wait()
				var bulk, framed int64
				for i, e := range ex {
					e.mu.Lock()
					if len(e.slots) > 0 || slices.ContainsFunc(names, func(n string) bool { return e.held[n] != 0 }) {
						t.Errorf("node %s has %d messages left, and holds %v", names[i], len(e.slots), e.held)
					}
					for node, q := range e.queues {
						if len(q.untold) > 0 || len(q.left) > 0 {
							t.Errorf("node %s has %d messages that node %s did not take", names[i], len(q.untold)+len(q.left), node)
						}
					}
					e.mu.Unlock()
					for _, s := range all[i].Traffic() {
						framed += s.Header + s.Bulk
						bulk += s.Bulk
					}
				}
				if bulk < want || room == 0 && float64(framed) > 1.02*float64(want) {
					t.Errorf("%d bytes were sent, %d of them in frames, for %d bytes of rows", framed, bulk, want)
				}
			})
		}
	}
}

// What a node may bring before it is received is bounded, however much is sent.
func TestRoom(t *testing.T) {
	all := planes(t, "a", "b")
	ex := opened(t, all, ExchangeOptions{Name: "test", Nodes: []string{"a", "b"}, Room: 10000})
	rows := make([]float32, 1000)
	for i := range 50 {
		if err := ex[0].Send(t.Context(), fmt.Sprint(i), 0, 1, rows); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		last := 49 - i // when it is there, all are told of
		if err := ex[1].Receive(t.Context(), fmt.Sprint(last), 0, 1, rows); err != nil {
			t.Fatal(err)
		}
		ex[1].mu.Lock()
		held := 0
		for _, s := range ex[1].slots {
			held += 4 * len(s.rows)
		}
		if held > 10000 || held != ex[1].held["a"] {
			t.Errorf("%d bytes are held, %d by the books", held, ex[1].held["a"])
		}
		ex[1].mu.Unlock()
	}
}

// Memory of rows that cross in each step is the next step's; that of rows which cross once is let go of.
func TestSpare(t *testing.T) {
	ex := opened(t, planes(t, "a", "b"), ExchangeOptions{Name: "test", Nodes: []string{"a", "b"}})
	for round, n := range []int{700, 10, 10, 10} {
		rows := make([]float32, n)
		if err := ex[0].Send(t.Context(), fmt.Sprint(round), 0, 1, rows); err != nil {
			t.Fatal(err)
		}
		if err := ex[1].Receive(t.Context(), fmt.Sprint(round), 0, 1, rows); err != nil {
			t.Fatal(err)
		}
	}
	for n := range maxAsked {
		ex[0].asked[n] = 1
	}
	if ex[0].memory(maxAsked); len(ex[0].asked) != 1 {
		t.Errorf("%d sizes are known", len(ex[0].asked))
	}
	ex[1].mu.Lock()
	defer ex[1].mu.Unlock()
	if once, again := len(ex[1].spare[700]), len(ex[1].spare[10]); once != 0 || again != 1 || ex[1].spared != 10 {
		t.Errorf("of rows that came once %d are kept, of three that came after each other %d, %d values", once, again, ex[1].spared)
	}
}

// waits has a piece wait for rows, and returns what becomes of that.
func waits(ctx context.Context, e *Exchange, from, to int) <-chan error {
	failed := make(chan error, 1)
	go func() { failed <- e.Receive(ctx, "round", from, to, make([]float32, 5)) }()
	return failed
}

// A node that goes, and one that fails, ends all others, by an error that names it and its pieces; a context
// that ends, its own wait alone.
func TestLost(t *testing.T) {
	placed := strings.Split("abcab", "")
	all := planes(t, "a", "b", "c")
	ex := opened(t, all, ExchangeOptions{Name: "test", Nodes: placed})
	gone := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := waits(ctx, ex[0], 1, 0)
	cancel(gone)
	if err := <-ends; !errors.Is(err, gone) {
		t.Errorf("a context that ended: %v", err)
	}
	waiting := []<-chan error{waits(t.Context(), ex[0], 1, 0), waits(t.Context(), ex[0], 2, 3), waits(t.Context(), ex[0], 0, 3), waits(t.Context(), ex[2], 0, 2)}
	all[1].Close()
	for i, failed := range waiting {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "node b, which computes the pieces [1 4]") {
			t.Errorf("wait %d: %v", i, err)
		}
	}
	if err := ex[0].Send(t.Context(), "round", 0, 2, nil); err == nil || !strings.Contains(err.Error(), "node b") {
		t.Errorf("sending afterwards: %v", err)
	}

	ex = opened(t, []*dataplane.Plane{all[0], all[2]}, ExchangeOptions{Name: "again", Nodes: []string{"a", "c"}})
	failed := waits(t.Context(), ex[0], 1, 0)
	ex[1].Close(errors.New("its disk is full"))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "node c") || !strings.Contains(err.Error(), "its disk is full") {
		t.Errorf("a node that failed: %v", err)
	}

	for _, room := range []int{0, 4} { // it is brought at once, or when it is received
		ex = opened(t, []*dataplane.Plane{all[0], all[2]}, ExchangeOptions{Name: fmt.Sprint("offered", room), Nodes: []string{"a", "c"}, Room: room})
		if err := ex[1].Offer(t.Context(), "round", 1, 0, 5, func([]float32) error { return errors.New("its file is gone") }); err != nil {
			t.Fatal(err)
		}
		if err := <-waits(t.Context(), ex[0], 1, 0); err == nil || !strings.Contains(err.Error(), "node c: rows of piece 1 for piece 0 in round round: its file is gone") {
			t.Errorf("an offer that is none: %v", err)
		}
	}
}

// An exchange that is closed writes nothing any more, keeps no memory for it, and is offered nothing that it has itself.
func TestOfferEndsWithClose(t *testing.T) {
	all := planes(t, "a", "b")
	ex := opened(t, all, ExchangeOptions{Name: "test", Nodes: []string{"a", "b"}, Room: 64})
	begun, over := make(chan struct{}), false
	if err := ex[1].Offer(t.Context(), "round", 1, 0, 4, func([]float32) error {
		close(begun)
		<-ex[1].ctx.Done()
		for range 10_000 {
			runtime.Gosched()
		}
		over = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	failed := waits(t.Context(), ex[0], 1, 0)
	<-begun
	ex[1].Close(nil)
	if !over {
		t.Error("what was offered is written after the exchange was closed")
	}
	if err := <-failed; err == nil {
		t.Error("rows came from an exchange that is closed")
	}

	e := opened(t, all[:1], ExchangeOptions{Name: "alone", Nodes: []string{"a", "a"}})[0]
	none := func([]float32) error { return nil }
	if err := e.Offer(t.Context(), "round", 0, 1, 4, none); err == nil || !strings.Contains(err.Error(), "piece 1, which is computed here") {
		t.Errorf("an offer to a piece of this node: %v", err)
	}
	r, err := e.reply(nil, []parcel{{size: 4, take: none}})
	if err != nil {
		t.Fatal(err)
	}
	e.Close(nil)
	if r.Release(); len(e.loads) > 0 {
		t.Error("an exchange that is closed keeps memory")
	}
	if _, err := e.reply(nil, []parcel{{size: 4, take: none}}); !errors.Is(err, ErrClosed) {
		t.Errorf("a reply of an exchange that is closed: %v", err)
	}
}

// A node that opens later is waited for; one that has closed already is not. Messages that do not fit are errors.
func TestOpen(t *testing.T) {
	all := planes(t, "a", "b")
	a, b := ServeExchanges(all[0]), ServeExchanges(all[1])
	o := ExchangeOptions{Name: "test", Nodes: []string{"a", "b"}, Room: 8}
	first, err := a.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close(nil)
	failed := waits(t.Context(), first, 1, 0)
	second, err := b.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Send(t.Context(), "round", 1, 0, make([]float32, 4)); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "sent 4 values to piece 0 in round round, which expects 5") {
		t.Errorf("a message of another size: %v", err)
	}
	if err := second.Send(t.Context(), "round", 1, 2, nil); err == nil {
		t.Error("a piece that there is not")
	}
	if _, err := b.Open(o); err == nil {
		t.Error("it was opened twice")
	}
	o.Name = "other"
	other, err := b.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	other.Close(nil)
	late, err := a.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close(nil)
	if err := <-waits(t.Context(), late, 1, 0); !strings.Contains(fmt.Sprint(err), "node b ended: "+ErrClosed.Error()) {
		t.Errorf("what is closed elsewhere: %v", err)
	}
	second.Close(nil)
}

// What is parsed is what was written, and nothing else parses.
func FuzzAnswer(f *testing.F) {
	f.Add(append(appendHeads(nil, []head{{key{"layer-1", 3, 4}, 2, false}, {key{"", 0, 65535}, 7, true}}), make([]byte, 8)...))
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		heads, rows, err := parseAnswer(b)
		if err != nil {
			return
		}
		if again := append(appendHeads(nil, heads), rows...); string(again) != string(b) {
			t.Errorf("%q is read as %q", b, again)
		}
	})
}

// The same of requests.
func FuzzRequest(f *testing.F) {
	f.Add((&request{name: "run", room: 1 << 20}).append(nil))
	f.Add((&request{name: "run", take: true, key: key{"layer-1", 3, 4}}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err == nil && string(r.append(nil)) != string(b) {
			t.Errorf("%q is read as %+v", b, r)
		}
	})
}
