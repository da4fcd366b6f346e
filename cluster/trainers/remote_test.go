package trainers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

// Trainers of three nodes, one of which has the parameters: two epochs.
func TestRemote(t *testing.T) {
	const steps, bound, epochs, group = 120, 3, 2, 7
	ctx := within(t)
	names := []string{"n0", "n1", "n2"}
	planes := cluster(t, names...)
	service := newService(planes[0])
	defer service.Close()
	m := newLine(steps * epochs)
	size := len(m.params)
	var computed [3]atomic.Int64
	var wg, began sync.WaitGroup
	began.Add(2) // neither of the other nodes goes on before both have begun
	for n := 1; n < 3; n++ {
		var first sync.Once
		meet := func() {
			first.Do(began.Done)
			began.Wait()
		}
		wg.Go(func() {
			for epoch := range epochs {
				var mine sync.WaitGroup
				for i := range 2 {
					mine.Go(func() {
						r := newRemote(planes[n], "n0", group, int64(epoch), i, size)
						if err := computeAll(ctx, r, "", &worker{computed: &computed[n], wait: meet}, size); err != nil {
							t.Errorf("node %d: %v", n, err)
						}
					})
				}
				mine.Wait()
				state, err := newRemote(planes[n], "n0", group, int64(epoch), 0, size).State(ctx, 100)
				if err != nil || string(state) != fmt.Sprint("epoch ", epoch) {
					t.Errorf("node %d: the state %q, %v", n, state, err)
				}
			}
		})
	}
	sys := system(t)
	for epoch := range int64(epochs) {
		o := async.NewOwner(async.Options{System: sys, Model: m, Bound: bound, First: steps * epoch, End: steps * (epoch + 1)})
		service.open(group, epoch, names, o, size)
		wg.Go(func() {
			began.Wait()
			if err := computeAll(ctx, o, async.Name("n0", 0), &worker{computed: &computed[0], wait: func() {}}, size); err != nil {
				t.Error(err)
			}
		})
		for n := range int64(steps + 1) {
			e, err := o.Next(ctx)
			if over := n == steps; over != errors.Is(err, async.ErrOver) || !over && (err != nil || e.Version != steps*epoch+n+1 || e.Stale > bound) {
				t.Fatalf("step %d of the epoch is %+v, %v", n, e, err)
			}
		}
		service.finish([]byte(fmt.Sprint("epoch ", epoch)))
		if err := service.taken(ctx, names); err != nil {
			t.Fatal(err)
		}
		o.Close()
	}
	wg.Wait()
	for n := 1; n < 3; n++ {
		if computed[n].Load() == 0 {
			t.Errorf("node %d computed nothing", n)
		}
	}
	if n := planes[0].Offers() + planes[1].Offers(); n > 1 {
		t.Errorf("%d tickets are open", n)
	}
	// Afterwards: another group, a stranger, an epoch that is over.
	if _, err := newRemote(planes[1], "n0", group-1, 0, 0, size).Deal(ctx, ""); err == nil {
		t.Error("an older group is answered")
	}
	if _, err := newRemote(planes[1], "n0", group, 0, 0, size).Deal(ctx, ""); !errors.Is(err, async.ErrOver) {
		t.Errorf("an epoch that is over: %v", err)
	}
	service.open(group+1, 0, []string{"n0", "n1"}, nil, size)
	if _, err := newRemote(planes[2], "n0", group+1, 0, 0, size).Deal(ctx, ""); err == nil {
		t.Error("a node of no part in the group is answered")
	}
	// A group that is over makes no epoch more: who waits for one hears of it.
	service.open(group+2, 0, names, nil, size)
	waits := make(chan error, 1)
	go func() {
		_, err := newRemote(planes[1], "n0", group+2, 1, 0, size).State(ctx, 100)
		waits <- err
	}()
	service.end(group + 2)
	if err := <-waits; !errors.Is(err, training.ErrGroup) {
		t.Errorf("an epoch that never begins: %v", err)
	}
	// In the next group one node asks before it is over.
	o := async.NewOwner(async.Options{System: sys, Model: m, Bound: bound, First: 0, End: steps})
	defer o.Close()
	service.open(group+3, 0, names, o, size)
	if _, err := newRemote(planes[2], "n0", group+3, 0, 0, size).Deal(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if begun := service.begun(names); !slices.Equal(begun, names[2:]) {
		t.Errorf("%v have begun; only %v has", begun, names[2:])
	}
}

// computeAll is a trainer, until every batch is applied.
func computeAll(ctx context.Context, p async.Parameters, trainer string, w *worker, size int) error {
	grad := make([]float32, size)
	for {
		step, err := p.Deal(ctx, trainer)
		var v *async.Version
		if err == nil {
			v, err = p.Read(ctx, trainer, step)
		}
		if errors.Is(err, async.ErrOver) {
			return nil
		}
		if err != nil {
			return err
		}
		stats, err := w.Gradient(grad, v.Params, step)
		number := v.Number
		v.Release()
		if err == nil {
			err = p.Push(ctx, trainer, async.Push{Step: step, Version: number, Stats: stats, Data: grad})
		}
		if err != nil {
			return err
		}
	}
}

// line is a model: parameter s is how often step s was applied, the last one how
// many steps were.
type line struct{ params []float32 }

func newLine(steps int) *line { return &line{make([]float32, steps+1)} }

func (l *line) Params() []float32 { return l.params }

func (l *line) Apply(g *async.Push) error {
	for i, x := range g.Data {
		l.params[i] += x
	}
	return nil
}

// worker computes line's gradients.
type worker struct {
	computed *atomic.Int64
	wait     func()
}

func (w *worker) Gradient(grad, params []float32, step int64) (messages.Stats, error) {
	w.wait()
	sum := float32(0)
	for _, x := range params[:len(params)-1] {
		sum += x
	}
	if sum != params[len(params)-1] { // what was read must be one version
		return messages.Stats{}, fmt.Errorf("step %d read %v steps of version %v", step, sum, params[len(params)-1])
	}
	clear(grad)
	grad[step], grad[len(grad)-1] = 1, 1
	w.computed.Add(1)
	return messages.Stats{Weight: 1, Count: 1, Loss: float64(step)}, nil
}

func system(t testing.TB) *actor.ActorSystem {
	s := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	t.Cleanup(func() { s.Shutdown() })
	return s
}

func cluster(t testing.TB, names ...string) []*dataplane.Plane {
	var all []*dataplane.Plane
	for _, n := range names {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: n, Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		for _, q := range all {
			p.SetPeer(q.Node(), q.Address())
			q.SetPeer(n, p.Address())
		}
		all = append(all, p)
	}
	return all
}

// A gradient that lies elsewhere, or has another size, or is replayed, is refused.
func TestForgedPush(t *testing.T) {
	const steps = 3
	ctx := within(t)
	planes := cluster(t, "a", "b")
	service := newService(planes[0])
	defer service.Close()
	m := newLine(steps)
	o := async.NewOwner(async.Options{System: system(t), Model: m, Bound: 1, End: steps})
	defer o.Close()
	service.open(1, 0, []string{"a", "b"}, o, steps+1)
	r := newRemote(planes[1], "a", 1, 0, 0, steps+1)
	step, err := r.Deal(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Read(ctx, "", step)
	if err != nil {
		t.Fatal(err)
	}
	good := async.Push{Step: step, Version: v.Number, Data: []float32{1, 0, 0, 1}}
	for name, g := range map[string]async.Push{
		"too small":       {Step: step, Version: v.Number, Data: make([]float32, steps)},
		"too large":       {Step: step, Version: v.Number, Data: make([]float32, steps+2)},
		"another version": {Step: step, Version: v.Number + 1, Data: good.Data},
		"another step":    {Step: step + 1, Version: v.Number, Data: good.Data},
		"a weight of NaN": {Step: step, Version: v.Number, Data: good.Data, Stats: messages.Stats{Weight: math.NaN()}},
	} {
		if err := r.Push(ctx, "", g); err == nil {
			t.Errorf("%s: it is applied", name)
		}
	}
	for name, ticket := range map[string]dataplane.Ticket{
		"of nobody":      {Node: "b", Size: 4 * (steps + 1)},
		"of the owner":   {Node: "a", Size: 4 * (steps + 1)},
		"of a bad size":  {Node: "b", Size: -1},
		"of a huge size": {Node: "b", Size: 1 << 60},
	} {
		if _, err := r.ask(ctx, request{Kind: kindPush, Step: step, Version: v.Number, Ticket: ticket}, nil, 1); err == nil {
			t.Errorf("a ticket %s: it is applied", name)
		}
	}
	if err := r.Push(ctx, "", good); err != nil {
		t.Fatalf("a good gradient after all that: %v", err)
	}
	if err := r.Push(ctx, "", good); err == nil {
		t.Error("a gradient is applied twice")
	}
	if _, err := r.Read(ctx, "", step); err == nil {
		t.Error("a step that is applied begins again")
	}
}

// Whatever a peer sends is decoded under limits; what passes is encoded again to
// the same request.
func FuzzRequest(f *testing.F) {
	for _, r := range []request{
		{Group: 1, Epoch: 2, Kind: kindDeal},
		{Group: 1 << 60, Kind: kindPush, Step: 5, Version: 4, Stats: messages.Stats{Loss: 1, Weight: 2, Correct: 1, Count: 2}, Ticket: dataplane.Ticket{Node: "n1", Size: 64}},
	} {
		b, err := r.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		q, err := parseRequest(again)
		if err != nil || fmt.Sprint(*q) != fmt.Sprint(*r) {
			t.Fatalf("%v became %v, %v", r, q, err)
		}
	})
}

// An answer is a number and bytes, a ticket is of the node that was asked.
func FuzzAnswer(f *testing.F) {
	f.Add(appendNumber(over))
	f.Add(append(appendNumber(3), 1, 2, 3, 4))
	f.Add([]byte{0x83, 0xa1, 'n', 0xa1, 'a', 0xa1, 's', 5})
	f.Add([]byte("\x8d\xa1" + strings.Repeat("\xa4", 18) + "\xdb\xdb\xdb\xdb\xdb\xdb\xdb" + "\xa4\xa4\xa4\xa4\xa4\xa4\x17")) // a name of 3.7 GB
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, rest, err := parseNumber(b); err == nil && (n < over || !bytes.Equal(append(appendNumber(n), rest...), b)) {
			t.Fatalf("%d and %d bytes of %d", n, len(rest), len(b))
		}
		if ticket, err := parseTicket(b, "a", 100); err == nil && (ticket.Node != "a" || ticket.Size < 0 || ticket.Size > 100) {
			t.Fatalf("%v", ticket)
		}
	})
}
