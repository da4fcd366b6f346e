// Package samplers places the samplers of a run's trainers on the nodes of a cluster.
//
// A trainer has as many samplers as its plan says; sampler i of node c is the actor
// "c:i" of the kind sampler. At says where it is: on the trainer's own node, which
// hands batches on by pointer, unless that has not the role or the table has the
// sampler elsewhere; or on one of the nodes that have it, which need the graph and no
// features. There it is asked for a micro-batch by a message of the control plane,
// Seeds without the seeds, and answers Sampled with a ticket, by which the batch is fetched
// over the data plane.
//
// A micro-batch is a pure function of its ID. So a sampler has no state that could be
// handed over, two nodes that both think that they have it do no harm, and what it
// had not delivered when it moved, or its node died, is drawn again where it is next:
// drawn twice at most, and used once.
package samplers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/internal/memlimit"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// Kind is that of a sampler, and what a node that has the role has among membership's
// kinds.
const Kind = "sampler"

// Nobody is what a cluster lacks in which no node samples, and what to do.
const Nobody = "no node samples, and those that train need one that does: add a node with --roles sampler"

// Full is what a cluster lacks in which some samplers fit on no node, and what to do.
const Full = "some samplers fit on no node, and who trains with them needs all of them: add a node with --roles sampler, have trainers use fewer (--samplers), or raise --capacity samplers=N of those that sample"

// Member is who knows the members and where the table has samplers: a membership.Member.
type Member interface {
	View() (*membership.View, <-chan struct{})
	Place(kind, id string) (membership.Place, bool)
	Suspect(ctx context.Context, nodes []string) (died []string, err error)
	Announce(ctx context.Context, change func(*membership.Info)) error
}

// Options of a Host and of a Remote.
type Options struct {
	Member  Member
	Control *control.Plane
	Plane   *dataplane.Plane
	Logger  *slog.Logger
}

// Draw makes b what m wants, or returns a message that is. It is called by one goroutine at a
// time.
type Draw func(b *sampling.Batch, m *messages.Seeds) (messages.Message, error)

// Run is what a node samples for.
type Run struct {
	// ID is a hash of what the micro-batches depend on: who has another one draws others.
	ID string
	// First names one of them.
	First sampling.ID
	// Open makes what draws them, for each sampler one.
	Open func() Draw
}

// Host is a node's part in sampling for others.
type Host struct {
	o     Options
	run   Run
	meter meter
	stop  chan struct{} // nil: it is not measured while it is idle
	idle  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	asked    sync.WaitGroup // answers under way
	samplers map[string]*hosted
	drawn    atomic.Int64
	bytes    atomic.Int64
}

// hosted is a sampler that is, or was, on this node.
type hosted struct {
	turn  chan struct{} // has room for the one that samples
	draw  Draw
	batch sampling.Batch
	out   []func() // withdraw what waits to be fetched, the newest last
	kept  int      // how many of them there may be
}

// kept is how many batches of a sampler wait to be fetched: its trainer asks for two
// at a time, and for some answers beside. One that is still wanted when so many came after it is
// asked for again.
const kept = 8

// ErrNotReady: the node does not sample yet. Who asks is told that the sampler is
// elsewhere, and asks again.
var ErrNotReady = fmt.Errorf("%w: the node does not sample yet", control.ErrElsewhere)

// Serve makes this node sample for the trainers of its run. A node that does nothing else
// (only) is measured while it is idle, too. Close ends it.
func Serve(o Options, run Run, only bool) *Host {
	h := &Host{o: o, run: run, meter: meter{only: only, quota: memlimit.Cores}, samplers: map[string]*hosted{}}
	o.Plane.Handle(dataplane.MethodWatch, func(ctx context.Context, _ *dataplane.Request) (dataplane.Reply, error) {
		<-ctx.Done()
		return dataplane.Reply{}, context.Cause(ctx)
	})
	if only {
		h.stop = make(chan struct{})
		h.idle.Go(h.measure)
	}
	return h
}

// Close ends the offers, when what is being drawn is drawn: afterwards nothing that Run.Open
// made is called any more, and who asks hears ErrNotReady. It may be called again.
func (h *Host) Close() {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if h.stop != nil && !closed {
		close(h.stop)
	}
	h.idle.Wait()
	h.asked.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.samplers {
		s.withdraw(0)
	}
	h.samplers = nil
}

// withdraw ends the offers but the newest ones.
func (s *hosted) withdraw(but int) {
	for len(s.out) > but {
		s.out[0]()
		s.out = s.out[1:]
	}
}

// Drawn returns how many micro-batches were drawn here for other nodes, and their
// bytes on the data plane.
func (h *Host) Drawn() (batches, bytes int64) { return h.drawn.Load(), h.bytes.Load() }

// Load returns what sampling takes here, lately; false: nothing was drawn.
func (h *Host) Load() (Load, bool) { return h.meter.load() }

// sampler returns the sampler of a name, for which h.asked counts; nil: the host is closed.
// Those of trainers that the cluster has no more are forgotten.
func (h *Host) sampler(name string) *hosted {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.asked.Add(1)
	s := h.samplers[name]
	if s == nil {
		v, _ := h.o.Member.View()
		for other, old := range h.samplers {
			if !known(v, other) {
				old.withdraw(0)
				old.kept = 0
				delete(h.samplers, other)
			}
		}
		s = &hosted{turn: make(chan struct{}, 1), kept: kept}
		h.samplers[name] = s
	}
	return s
}

// Has reports whether a sampler of that name, which may be anybody's, is answered for here. One
// that moves away is until its trainer has heard of its next place: two do no harm.
func (h *Host) Has(name string) bool {
	v, _ := h.o.Member.View()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && known(v, name)
}

// Answer draws a micro-batch: it is what the sampler of a name answers Seeds. The batch of no ID
// is the run's first, drawn for nobody: who asks wants to know that this node is ready, and hears it by
// an answer without a ticket.
func (h *Host) Answer(ctx context.Context, name string, body []byte) ([]byte, error) {
	m, err := messages.Unmarshal("seeds", body)
	if err != nil {
		return nil, err
	}
	seeds := m.(*messages.Seeds)
	nameless := seeds.ID == (sampling.ID{})
	if seeds.Run != h.run.ID && !(seeds.Run == "" && nameless) { // who asks does not know yet what the run is
		return nil, errors.New("it samples for a run of other settings or data; start all nodes with the same --cache and --sampler-options, and one version of gnnactor")
	}
	s := h.sampler(name)
	if s == nil {
		return nil, ErrNotReady
	}
	defer h.asked.Done()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ErrNotReady // the node leaves, or the asker did
	}
	if nameless && seeds.Want == "" {
		if _, err := h.sample(s, &messages.Seeds{ID: h.run.First}); err != nil {
			return nil, err
		}
		return messages.Marshal(&messages.Sampled{})
	}
	data, err := h.sample(s, seeds)
	if err != nil {
		return nil, err
	}
	what := "sampled batch"
	if seeds.Want != "" { // one that there is: it was answered
		what = "sampled " + string(seeds.Want)
	}
	ticket, withdraw := h.o.Plane.Offer(what, [][]byte{data}, nil)
	if seeds.Want == "" {
		h.drawn.Add(1)
		h.bytes.Add(int64(len(data)))
	}
	h.mu.Lock()
	s.out = append(s.out, withdraw)
	s.withdraw(s.kept)
	h.mu.Unlock()
	b, err := msgpack.Marshal(&ticket)
	if err != nil {
		return nil, fmt.Errorf("samplers: %w", err)
	}
	return messages.Marshal(&messages.Sampled{Step: seeds.Step, Ticket: b})
}

// sample has s, whose turn it is, draw a micro-batch, or find out what else m wants.
func (h *Host) sample(s *hosted, m *messages.Seeds) (data []byte, err error) {
	var answer messages.Message
	err = pool.Recovered(func() (err error) {
		if s.draw == nil {
			s.draw = h.run.Open()
		}
		if m.Want == "" {
			defer h.meter.begin()()
		}
		answer, err = s.draw(&s.batch, m)
		return err
	})
	switch {
	case err != nil:
		s.draw = nil // a panic may have left anything in it
		return nil, err
	case answer != nil:
		return messages.Marshal(answer)
	}
	return messages.AppendBatch(nil, &s.batch), nil
}
