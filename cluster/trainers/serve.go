package trainers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// service answers the trainers of other nodes, while this node has the
// parameters.
type service struct {
	plane *dataplane.Plane

	mu      sync.Mutex
	term    *term
	ended   uint64        // the newest group that makes no further epoch
	changed chan struct{} // closed when term or ended changes
}

// term is an epoch of a group of nodes.
type term struct {
	group   uint64
	epoch   int64
	members []string
	owner   async.Parameters
	size    int // of the parameters
	buffers chan []float32
	ended   chan struct{} // closed when state is there
	gone    chan struct{} // closed when there is another term
	state   dataplane.Ticket
	revoke  func()
	begun   map[string]bool // the nodes that have asked for anything in the group
	have    map[string]bool // the nodes that have said that they have the state
	more    chan struct{}   // closed when begun or have grows
}

// newService registers at a plane; Close must be called.
func newService(p *dataplane.Plane) *service {
	s := &service{plane: p, changed: make(chan struct{})}
	p.Handle(dataplane.MethodParameters, s.serve)
	return s
}

// Close ends it.
func (s *service) Close() {
	s.plane.Handle(dataplane.MethodParameters, nil)
	s.set(nil)
}

// open has the trainers of the members of a group ask owner for the steps of an
// epoch. A group has a larger number than those before it.
func (s *service) open(group uint64, epoch int64, members []string, owner async.Parameters, size int) {
	t := &term{group: group, epoch: epoch, members: slices.Clone(members), owner: owner, size: size,
		buffers: make(chan []float32, len(members)), ended: make(chan struct{}), gone: make(chan struct{}), begun: map[string]bool{}, have: map[string]bool{}, more: make(chan struct{})}
	s.set(t)
}

// end says that a group makes no epoch after the one that is open: who waits for
// one need not.
func (s *service) end(group uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = max(s.ended, group)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *service) set(t *term) {
	s.mu.Lock()
	old := s.term
	if old != nil && t != nil && old.group == t.group && s.ended < t.group { // else who followed may have heard that there is no such epoch
		t.begun = old.begun
	}
	s.term = t
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if old != nil {
		close(old.gone)
		if old.revoke != nil {
			old.revoke()
		}
	}
}

// finish gives the other nodes the state that the epoch ended with, until the
// next one is opened.
func (s *service) finish(state []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term.state, s.term.revoke = s.plane.Offer("state", [][]byte{state}, nil)
	close(s.term.ended)
}

// begun returns those of nodes that follow the group whose epoch is open.
func (s *service) begun(nodes []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return !s.term.begun[n] })
}

// joined waits until those of nodes that are not this one follow the group.
func (s *service) joined(ctx context.Context, nodes []string) error {
	return s.until(ctx, nodes, func(t *term) map[string]bool { return t.begun })
}

// taken waits until those of nodes that are not this one have the state.
func (s *service) taken(ctx context.Context, nodes []string) error {
	return s.until(ctx, nodes, func(t *term) map[string]bool { return t.have })
}

// until waits until those of nodes that are not this one are in a set of the open term.
func (s *service) until(ctx context.Context, nodes []string, set func(*term) map[string]bool) error {
	for {
		s.mu.Lock()
		lack := slices.ContainsFunc(nodes, func(n string) bool { return n != s.plane.Node() && !set(s.term)[n] })
		more := s.term.more
		s.mu.Unlock()
		if !lack {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add puts a node into a set of a term, and wakes who waits for it.
func (s *service) add(t *term, set map[string]bool, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !set[node] {
		set[node] = true
		close(t.more)
		t.more = make(chan struct{})
	}
}

// errOther: a request for what this node does not do, or does no longer.
var errOther = errors.New("trainers: not this node's group and epoch")

// at waits for the term of a request. nil without an error: it is over.
func (s *service) at(ctx context.Context, r *request) (*term, error) {
	for {
		s.mu.Lock()
		t, ended, changed := s.term, s.ended, s.changed
		s.mu.Unlock()
		if t != nil {
			switch {
			case t.group > r.Group:
				return nil, fmt.Errorf("%w: group %d has followed", errOther, t.group)
			case t.group == r.Group && t.epoch == r.Epoch:
				return t, nil
			case t.group == r.Group && t.epoch > r.Epoch:
				return nil, nil
			}
		}
		if r.Group <= ended {
			return nil, fmt.Errorf("%w: group %d is over", errOther, r.Group)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *service) serve(ctx context.Context, q *dataplane.Request) (dataplane.Reply, error) {
	none := dataplane.Reply{}
	r, err := parseRequest(q.Body)
	if err != nil {
		return none, err
	}
	t, err := s.at(ctx, r)
	if err != nil {
		return none, err
	}
	isOver := dataplane.Reply{Data: [][]byte{appendNumber(over)}}
	if t == nil {
		if r.Kind == kindState {
			return none, fmt.Errorf("%w: epoch %d has ended long ago", errOther, r.Epoch)
		}
		return isOver, nil
	}
	if !slices.Contains(t.members, q.Peer) {
		return none, fmt.Errorf("trainers: node %s is not in group %d", q.Peer, t.group)
	}
	s.add(t, t.begun, q.Peer)
	name := async.Name(q.Peer, r.Trainer)
	switch r.Kind {
	case kindDeal:
		step, err := t.owner.Deal(ctx, name)
		if errors.Is(err, async.ErrOver) {
			return isOver, nil
		}
		return dataplane.Reply{Data: [][]byte{appendNumber(step)}}, err
	case kindRead:
		v, err := t.owner.Read(ctx, name, r.Step)
		if errors.Is(err, async.ErrOver) {
			return isOver, nil
		}
		if err != nil {
			return none, err
		}
		return dataplane.Reply{Data: [][]byte{appendNumber(v.Number), dataplane.BytesOf(v.Params)}, Release: v.Release}, nil
	case kindPush:
		return none, s.push(ctx, t, q.Peer, name, r)
	case kindTaken:
		s.add(t, t.have, q.Peer)
		return none, nil
	default:
		return s.handOver(ctx, t)
	}
}

// push fetches a gradient and has it applied.
func (s *service) push(ctx context.Context, t *term, peer, name string, r *request) error {
	if r.Ticket.Node != peer || r.Ticket.Size != 4*int64(t.size) {
		return fmt.Errorf("trainers: node %s pushes a gradient of %d bytes that lies at %.80q; there are %d parameters", peer, r.Ticket.Size, r.Ticket.Node, t.size)
	}
	var grad []float32
	select {
	case grad = <-t.buffers:
	default:
		grad = make([]float32, t.size)
	}
	if _, err := s.plane.Fetch(ctx, r.Ticket, dataplane.BytesOf(grad)); err != nil {
		return err
	}
	if err := t.owner.Push(ctx, name, async.Push{Step: r.Step, Version: r.Version, Stats: r.Stats, Data: grad}); err != nil {
		return err // who knows whether it is still read
	}
	select {
	case t.buffers <- grad:
	default:
	}
	return nil
}

// handOver answers with where the state is, when the epoch has ended.
func (s *service) handOver(ctx context.Context, t *term) (dataplane.Reply, error) {
	select {
	case <-t.ended:
	case <-t.gone:
		return dataplane.Reply{}, fmt.Errorf("%w: epoch %d was not ended", errOther, t.epoch)
	case <-ctx.Done():
		return dataplane.Reply{}, ctx.Err()
	}
	s.mu.Lock()
	ticket := t.state
	s.mu.Unlock()
	b, err := msgpack.Marshal(&ticket)
	return dataplane.Reply{Data: [][]byte{b}}, err
}
