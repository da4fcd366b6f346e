package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/scheduler"
)

var hundred = graph.Elsewhere(100, 1000)

// batchOf makes b a batch that its ID tells from others.
func batchOf(b *sampling.Batch, id sampling.ID) {
	b.Reset()
	b.ID = id
	nodes := b.Nodes(3)
	copy(nodes, []uint32{uint32(id.Batch), uint32(id.Epoch), 7})
	b.Seeds = nodes[:1]
	k := b.Block(0, 1, 3, 2, false, false)
	k.Indptr[0], k.Indptr[1], k.Indices[0], k.Indices[1], k.SrcIDs = 0, 2, 1, 2, nodes
}

// sampling makes a node sample, at a cost that may change.
func samples(t *testing.T, n *Node, work *atomic.Int64) {
	t.Helper()
	err := n.Sample(within(t), samplers.Run{ID: "run", First: sampling.ID{Phase: "train", Of: 1}, Open: func() samplers.Draw {
		return func(b *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
			id := m.ID
			if id.Epoch > 99 {
				return nil, errors.New("no such epoch")
			}
			if wait := time.Duration(work.Load()); wait > 0 { // has no processor meanwhile: it is as slow as if it had one and worked
				tick := time.NewTimer(wait)
				defer tick.Stop()
				<-tick.C
			}
			batchOf(b, id)
			return nil, nil
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// A trainer's samplers are on two other nodes. The leader moves them from the one that is slow,
// and back when it is the faster one; a node that leaves or drains is done without; every
// batch is the one that was asked for, once.
func TestSamplersMove(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := options(s, "a", t.TempDir())
	o.MoveSampler = scheduler.MoveSampler // a Balancer takes nodes that change this soon for noise
	a, b, c := enter(t, o), enter(t, options(s, "b", t.TempDir())), enter(t, options(s, "c", t.TempDir()))
	var atB, atC atomic.Int64
	atB.Store(int64(80 * time.Millisecond))
	atC.Store(int64(4 * time.Millisecond))
	samples(t, b, &atB)
	samples(t, c, &atC)
	a.Member.Stand()
	r := a.Samplers(false)
	if err := r.Ready(within(t), "run", 2, hundred); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	drew := make(chan int) // the samplers, for whoever wants to know
	for i := range 2 {
		wg.Go(func() {
			x := new(sampling.Batch)
			for batch := i; ctx.Err() == nil; batch += 2 {
				m := &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: 3, Batch: batch % 90, Of: 1}, Seeds: []uint32{uint32(batch % 90)}}
				_, err := r.Draw(ctx, i, m, x)
				if ctx.Err() != nil {
					return
				}
				if err != nil || x.ID != m.ID || x.Inputs()[0] != uint32(batch%90) || x.Inputs()[1] != 3 {
					t.Errorf("%v: %+v, %v", m.ID, x, err)
					return
				}
				select {
				case drew <- i:
				default:
				}
			}
		})
	}
	on := func(why string, want ...string) {
		t.Helper()
		for times, limit := [2]int{}, within(t); min(times[0], times[1]) < 2; { // both draw there
			select {
			case i := <-drew:
				if fmt.Sprint(r.Where()) == fmt.Sprint(want) {
					times[i]++
				}
			case <-limit.Done():
				t.Fatalf("%s: %v batches were drawn, and the samplers are on %v", why, times, r.Where())
			}
		}
	}
	on("b is slow", "c", "c")
	atC.Store(int64(80 * time.Millisecond))
	atB.Store(int64(4 * time.Millisecond))
	on("b is fast", "b", "b")
	if moves, why := r.Moves(), a.status().Moved; moves < 3 || len(why) < 3 || !strings.Contains(why[0], "to c: 1 samplers make") {
		t.Errorf("%d moves: %q", moves, why)
	}
	if err := b.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	on("b drains", "c", "c")
	leave(t, b)
	atC.Store(int64(4 * time.Millisecond))
	d := enter(t, options(s, "d", t.TempDir()))
	samples(t, d, &atC)
	leave(t, c)
	on("c left", "d", "d")
	if _, err := r.Draw(within(t), 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: 100, Of: 1}}, new(sampling.Batch)); err == nil || errors.Is(err, actors.ErrHere) {
		t.Errorf("a batch that cannot be drawn: %v", err)
	}
	if _, err := r.Draw(within(t), 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: 3, Of: 1}, Seeds: []uint32{8}}, new(sampling.Batch)); err == nil {
		t.Error("a batch of other seeds was taken")
	}
	stop()
	wg.Wait()
	if err := r.Ready(within(t), "another", 2, hundred); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Draw(within(t), 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: 3, Of: 1}}, new(sampling.Batch)); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("of another run: %v", err)
	}
	home := samplers.NewRemote(a.samplersOptions(), true)
	defer home.Close()
	if err := home.Ready(within(t), "run", 2, hundred); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Draw(within(t), 0, &messages.Seeds{}, new(sampling.Batch)); !errors.Is(err, actors.ErrHere) {
		t.Errorf("at home: %v", err)
	}
}

// lines gets what a logger writes, a line each.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// Who does not train says that nobody does when the last that did has left, and leaves when it is told to drain.
func TestNobodyTrains(t *testing.T) {
	t.Parallel()
	s, log := serve(t), make(lines, 64)
	o := options(s, "a", t.TempDir())
	o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, b := enter(t, o), enter(t, options(s, "b", t.TempDir()))
	if _, err := a.AgreeOnRun(within(t), &Run{Data: "d"}, false, nothing); err != nil {
		t.Fatal(err)
	}
	if err := b.Member.Announce(within(t), func(i *membership.Info) { i.Kinds = append(i.Kinds, trainers.Kind) }); err != nil {
		t.Fatal(err)
	}
	await(t, a, "b trains", func(v *membership.View) bool { m, _ := v.Member("b"); return trains(m) })
	type end struct {
		drained bool
		err     error
	}
	ended := make(chan end, 1)
	go func() {
		drained, err := a.Attend(within(t))
		ended <- end{drained, err}
	}()
	leave(t, b)
	for text := ""; !strings.Contains(text, "waiting: "+trainers.Nobody); {
		select {
		case text = <-log:
		case e := <-ended:
			t.Fatalf("it did not wait: %+v", e)
		case <-within(t).Done():
			t.Fatal("it does not say that nobody trains")
		}
	}
	if err := a.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; !e.drained || e.err != nil {
		t.Errorf("drained %t, %v", e.drained, e.err)
	}
	if len(log) > 0 {
		t.Errorf("it says more: %s", <-log)
	}
}

// Samplers are drawn with what may be closed when EndSampling returns: it waits for the batch that
// is being drawn, and whoever asks then is told that the sampler is not there. Nobody has
// another node's sampler draw, and one that a trainer which left had is forgotten.
func TestEndSampling(t *testing.T) {
	s := serve(t)
	a, b, c := enter(t, options(s, "a", t.TempDir())), enter(t, options(s, "b", t.TempDir())), enter(t, options(s, "c", t.TempDir()))
	begun, goOn, closed := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	if err := b.Sample(within(t), samplers.Run{ID: "run", First: sampling.ID{Phase: "train", Of: 1}, Open: func() samplers.Draw {
		return func(x *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
			id := m.ID
			if id.Epoch == 1 {
				begun <- struct{}{}
				<-goOn
			}
			if closed.Load() {
				t.Error("a batch is drawn with what is closed")
			}
			batchOf(x, id)
			return nil, nil
		}
	}}); err != nil {
		t.Fatal(err)
	}
	draw := func(r *samplers.Remote, epoch int) error {
		_, err := r.Draw(within(t), 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: epoch, Of: 1}}, new(sampling.Batch))
		return err
	}
	ready := func(n *Node) *samplers.Remote {
		r := n.Samplers(false)
		if err := r.Ready(within(t), "run", 1, hundred); err != nil {
			t.Fatal(err)
		}
		return r
	}
	ra, rc := ready(a), ready(c)
	for _, r := range []*samplers.Remote{ra, rc} {
		if err := draw(r, 0); err != nil {
			t.Fatal(err)
		}
	}
	seeds, err := messages.Marshal(&messages.Seeds{ID: sampling.ID{Phase: "train", Of: 1}, Run: "run"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Control.Ask(within(t), samplers.Kind, samplers.Name("a", 0), seeds); err == nil || !strings.Contains(err.Error(), "another node") {
		t.Errorf("c had a's sampler draw: %v", err)
	}
	leave(t, c)
	await(t, b, "c left", func(v *membership.View) bool { _, in := v.Member("c"); return !in })
	if offers := b.Plane.Offers(); offers != 2 {
		t.Errorf("%d offers", offers)
	}
	d := enter(t, options(s, "d", t.TempDir()))
	if err := draw(ready(d), 0); err != nil {
		t.Fatal(err)
	}
	if offers := b.Plane.Offers(); offers != 2 {
		t.Errorf("%d offers, after c left and d came", offers)
	}
	if _, err := ra.Ask(within(t), &messages.Seeds{Want: messages.WantTop, Step: 2, Run: "run"}); err != nil {
		t.Fatal(err)
	}
	count := func(n *Node, name string, want int64) {
		t.Helper()
		for _, m := range n.status().Messages {
			if m.Type == name && m.Count >= want && (m.Bulk > 0) == strings.HasPrefix(name, "sampled ") {
				return
			}
		}
		t.Errorf("%d times %q or more are not among %+v", want, name, n.status().Messages)
	}
	count(a, "seeds", 2)
	count(b, "sampled", 4)
	count(b, "sampled batch", 3)
	count(b, "sampled top", 1)
	drawn := make(chan error)
	ctx, stop := context.WithCancel(within(t))
	go func() {
		_, err := ra.Draw(ctx, 0, &messages.Seeds{ID: sampling.ID{Phase: "train", Epoch: 1, Of: 1}}, new(sampling.Batch))
		drawn <- err
	}()
	<-begun
	ended := make(chan struct{})
	go func() {
		b.EndSampling()
		closed.Store(true)
		close(ended)
	}()
	for { // until it is ending; others wait for the sampler's turn
		ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
		_, err := a.Control.Ask(ctx, samplers.Kind, samplers.Name("a", 0), seeds)
		cancel()
		if errors.Is(err, control.ErrElsewhere) {
			break
		}
	}
	goOn <- struct{}{}
	<-ended
	if offers := b.Plane.Offers(); offers != 0 {
		t.Errorf("%d offers are left", offers)
	}
	if _, err := a.Control.Ask(within(t), samplers.Kind, samplers.Name("a", 0), seeds); !errors.Is(err, control.ErrElsewhere) {
		t.Errorf("asked when it has ended: %v", err)
	}
	stop()
	<-drawn
}
