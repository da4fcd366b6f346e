package trainers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
)

// ErrRegroup is wrapped by the errors of a group that was closed, or that is
// not a peer's any longer: the step has to be done again in another group.
var ErrRegroup = errors.New("trainers: the group of trainers has changed")

// Deal returns the micro-batches [from, to) of trainer t among n.
func Deal(micros, n, t int) (from, to int) { return t * micros / n, (t + 1) * micros / n }

// owner returns the trainer of micro-batch m.
func owner(micros, n, m int) int {
	t := m * n / micros
	for from, to := Deal(micros, n, t); m < from || m >= to; from, to = Deal(micros, n, t) {
		if t++; m < from {
			t -= 2
		}
	}
	return t
}

// reducer answers for the groups of a node.
type reducer struct {
	plane *dataplane.Plane

	mu      sync.Mutex
	current *reduceGroup
	ended   *reduceGroup    // the one before, until current has made a sum; nil: it was closed
	gate    membership.Gate // for groups in rising order
	changed chan struct{}   // closed when current changes
}

// newReducer registers at p.
func newReducer(p *dataplane.Plane) *reducer {
	s := &reducer{plane: p, changed: make(chan struct{})}
	p.Handle(dataplane.MethodSums, s.serve)
	p.Handle(dataplane.MethodInputs, s.serveGather)
	return s
}

// reduceGroup is the trainers of a run between two changes of membership.
type reduceGroup struct {
	s       *reducer
	id      uint64
	members []string
	self    int           // this trainer's place among them
	closed  chan struct{} // when the group is
	segment int           // values, at most

	mu    sync.Mutex
	err   error
	steps map[int64]*step
	last  int64        // the step that was begun last
	turn  int          // whose roots it has
	roots [2][]float32 // what this trainer adds up last, of the last two steps
	temps chan []float32

	sums   sync.RWMutex     // held while a sum is made
	told   map[int64][]byte // what this trainer tells by Gather, guarded by mu as the following
	tells  chan struct{}    // closed when told changes
	oldest int64            // number that may be asked for
}

// segment is how many values travel at once, at most; inFlight how many segments do.
// A shorter vector is cut into as many, if they have leastSegment values: what the
// trainers send and add of one overlaps with another.
const (
	segment      = 1 << 19
	leastSegment = 1 << 14
	inFlight     = 4
)

// segmentOf returns how many values the segments of a vector have: the same at all
// trainers.
func (g *reduceGroup) segmentOf(size int) int {
	return min(max((size+inFlight-1)/inFlight, leastSegment), g.segment)
}

// newGroup makes the group numbered id, larger than all before it, of members
// in this order; self is this node's place. The older group is closed, if it was not
// ended.
func (s *reducer) newGroup(id uint64, members []string) (*reduceGroup, error) {
	self := slices.Index(members, s.plane.Node())
	if self < 0 {
		return nil, fmt.Errorf("trainers: node %s is not among the trainers %v", s.plane.Node(), members)
	}
	g := &reduceGroup{s: s, id: id, members: slices.Clone(members), self: self, closed: make(chan struct{}),
		segment: segment, steps: map[int64]*step{}, told: map[int64][]byte{}, tells: make(chan struct{}), temps: make(chan []float32, inFlight)}
	s.mu.Lock()
	if !s.gate.Enter(id) {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: group %d is older than %d", ErrRegroup, id, s.gate.Entered())
	}
	old := s.current
	s.current, s.ended = g, nil
	if old != nil && old.retired() {
		s.ended, old = old, nil
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return g, nil
}

// Members returns the trainers, in order.
func (g *reduceGroup) Members() []string { return slices.Clone(g.members) }

// Close fails what waits for the group, here and at peers.
func (g *reduceGroup) Close() { g.fail(ErrRegroup) }

func (g *reduceGroup) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steps = nil
	if g.err == nil {
		g.err = err
		close(g.closed)
	}
}

// End is Close between two steps: peers that have not all of the step that was made
// last get it still, until the next group has made a sum.
func (g *reduceGroup) End() { g.end(ErrRegroup) }

func (g *reduceGroup) end(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = why
		close(g.closed)
	}
}

// retired reports whether the group was ended, and not closed.
func (g *reduceGroup) retired() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err != nil && g.steps != nil
}

// step is what peers may get of a step. Its cells come into being when they
// are filled or asked for, whichever is first.
type step struct{ cells map[cellKey]*cell }

type cellKey struct {
	kind    cellKind
	segment uint32
	stride  uint32 // how many micro-batches a partial sum is over, at most
	index   uint32 // the first of them
}

type cellKind uint8

const (
	partialCell cellKind = iota + 1
	resultCell
	metaCell
)

type cell struct {
	full chan struct{}
	data []byte
	// waiting is how many peers wait for it, guarded by the group's lock.
	waiting int
}

func (c *cell) isFull() bool {
	select {
	case <-c.full:
		return true
	default:
		return false
	}
}

// cell returns a cell of a step. The lock is held.
func (g *reduceGroup) cell(number int64, k cellKey) (*cell, error) {
	if g.err != nil {
		return nil, g.err
	}
	s := g.steps[number]
	if s == nil {
		if len(g.steps) > 4 {
			return nil, fmt.Errorf("trainers: step %d is not this group's", number)
		}
		s = &step{cells: map[cellKey]*cell{}}
		g.steps[number] = s
	}
	c := s.cells[k]
	if c == nil {
		if len(s.cells) > 1<<20 {
			return nil, errors.New("trainers: too many parts of a step")
		}
		c = &cell{full: make(chan struct{})}
		s.cells[k] = c
	}
	return c, nil
}

// expect returns a cell that a peer is to wait for. One that is not full goes with
// the last who gives it up: what peers ask for and take back leaves nothing.
func (g *reduceGroup) expect(number int64, k cellKey) (c *cell, giveUp func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.steps[number]; g.err != nil && s != nil && k.kind != partialCell { // all partial sums of a step that was made were fetched
		if c := s.cells[k]; c != nil && c.isFull() {
			return c, func() {}, nil
		}
	}
	if c, err = g.cell(number, k); err != nil {
		return nil, nil, err
	}
	c.waiting++
	return c, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		c.waiting--
		s := g.steps[number]
		if s == nil || s.cells[k] != c || c.waiting > 0 {
			return
		}
		if c.isFull() {
			return
		}
		if delete(s.cells, k); len(s.cells) == 0 {
			delete(g.steps, number)
		}
	}, nil
}

func (g *reduceGroup) put(number int64, k cellKey, data []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, err := g.cell(number, k)
	if err != nil {
		return err
	}
	c.data = data
	close(c.full)
	return nil
}

// request is what a trainer asks another for: 8 + 8 + 1 + 4 + 4 + 4 bytes.
const requestSize = 29

func appendRequest(b []byte, group uint64, number int64, k cellKey) []byte {
	b = binary.LittleEndian.AppendUint64(b, group)
	b = binary.LittleEndian.AppendUint64(b, uint64(number))
	b = append(b, byte(k.kind))
	b = binary.LittleEndian.AppendUint32(b, k.segment)
	b = binary.LittleEndian.AppendUint32(b, k.stride)
	return binary.LittleEndian.AppendUint32(b, k.index)
}

func parseReduce(b []byte) (group uint64, number int64, k cellKey, err error) {
	if len(b) != requestSize {
		return 0, 0, k, fmt.Errorf("trainers: a request of %d bytes", len(b))
	}
	group, number = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
	k = cellKey{cellKind(b[16]), binary.LittleEndian.Uint32(b[17:]), binary.LittleEndian.Uint32(b[21:]), binary.LittleEndian.Uint32(b[25:])}
	if number < 0 || k.kind < partialCell || k.kind > metaCell {
		return 0, 0, k, fmt.Errorf("trainers: a request for part %v of step %d", k, number)
	}
	return group, number, k, nil
}

func (s *reducer) serve(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	id, number, k, err := parseReduce(r.Body)
	if err != nil {
		return dataplane.Reply{}, err
	}
	g, err := s.group(ctx, id)
	if err != nil {
		return dataplane.Reply{}, err
	}
	if !slices.Contains(g.members, r.Peer) {
		return dataplane.Reply{}, fmt.Errorf("trainers: node %s is not in group %d", r.Peer, id)
	}
	c, giveUp, err := g.expect(number, k)
	if err != nil {
		return dataplane.Reply{}, err
	}
	defer giveUp()
	select {
	case <-c.full:
	case <-g.closed:
		if !c.isFull() {
			return dataplane.Reply{}, ErrRegroup
		}
	case <-ctx.Done():
		return dataplane.Reply{}, ctx.Err()
	}
	return dataplane.Reply{Data: [][]byte{c.data}}, nil
}

// group waits for a group that this node has not made yet.
func (s *reducer) group(ctx context.Context, id uint64) (*reduceGroup, error) {
	for {
		s.mu.Lock()
		g, ended, gate, changed := s.current, s.ended, s.gate, s.changed
		s.mu.Unlock()
		switch {
		case g != nil && g.id == id:
			return g, nil
		case ended != nil && ended.id == id:
			return ended, nil
		case gate.Passed(id):
			return nil, fmt.Errorf("%w: %d is not group %d", ErrRegroup, gate.Entered(), id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// get asks trainer t for a part, into dst.
func (g *reduceGroup) get(ctx context.Context, t int, number int64, k cellKey, dst []byte, most int) ([]byte, error) {
	body := appendRequest(make([]byte, 0, requestSize), g.id, number, k)
	b, err := g.s.plane.Ask(ctx, dataplane.Call{Node: g.members[t], Method: dataplane.MethodSums, Body: [][]byte{body}, Into: dst, Max: most})
	if err == nil && dst != nil && len(b) != len(dst) {
		err = fmt.Errorf("trainers: node %s has %d bytes of a part of %d; all nodes must run one configuration", g.members[t], len(b), len(dst))
	}
	return b, err
}
