package parts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/training"
)

// An Exchange carries rows of masters between the pieces of a divided graph that several nodes
// compute: compute.Exchange over the data plane.
//
// Rows stay with the node that sends them, or where it offers them from, until the one that needs them takes them, so Send never waits.
// A node has one ask open at each other, which is answered with what was sent meanwhile: with rows, as far as the asker has
// room for rows that no piece has received yet, and of all others with their sizes. Those are fetched when a piece
// receives them, and what is fetched is there. So a node holds ExchangeOptions.Room bytes for each other at
// most, beside the rows that its own pieces send and receive, and no order of sending and receiving stands still, however many pieces there
// are. Rows cross a border once, as 4 bytes a value; what is sent beside them are some 60 bytes for
// each message and as many for each answer.
//
// The open ask ends when its node does, or fails: everything here fails then, with an error that names the node and its pieces.

// ErrClosed is wrapped by errors of an Exchange that was closed.
var ErrClosed = errors.New("parts: closed")

// ErrLost is wrapped by errors of an Exchange that a node is lost to.
var ErrLost = errors.New("parts: a node is lost")

// Lost is an error that wraps ErrLost, which adds nothing to the text.
type Lost struct {
	Node string // that is lost
	Err  error
}

func (e *Lost) Error() string { return e.Err.Error() }

// Unwrap makes it one of ErrLost and Err.
func (e *Lost) Unwrap() []error { return []error{ErrLost, e.Err} }

// Exchanges are those of a node.
type Exchanges struct {
	plane *dataplane.Plane

	mu      sync.Mutex
	open    map[string]*Exchange // by name; closed ones stay, empty, to say so
	changed chan struct{}        // closed when one is opened
}

// ServeExchanges registers at p.
func ServeExchanges(p *dataplane.Plane) *Exchanges {
	s := &Exchanges{plane: p, open: map[string]*Exchange{}, changed: make(chan struct{})}
	p.Handle(dataplane.MethodPieceRows, s.serve)
	return s
}

// ExchangeOptions of Open, alike on all nodes.
type ExchangeOptions struct {
	Name  string   // of what is computed; what is computed again has another
	Nodes []string // the node that computes each piece
	Room  int      // bytes of rows that a node may bring before they are received; 0: training.SpreadRoom
}

const (
	// batch is how many bytes of rows an answer has, unless one message has more.
	batch = 4 << 20
	// maxParcels is how many messages an answer tells of.
	maxParcels = 1024
	// maxAsked is how many sizes of messages are known to have come. Batches that differ have ever new ones.
	maxAsked = 1 << 16
)

// Exchange implements compute.Exchange. Methods may be called by several goroutines.
type Exchange struct {
	s     *Exchanges
	o     ExchangeOptions
	ctx   context.Context
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu     sync.Mutex
	err    error
	slots  map[key]*slot       // what came and was not received, or is waited for
	held   map[string]int      // bytes of rows that a node brought, in slots
	spare  map[int][][]float32 // rows that nodes brought and pieces have received, by size: the next gradient's are as many
	asked  map[int]int         // how often memory was asked for, by size: what crosses once, as features do, is not kept
	spared int                 // values of them
	queues map[string]*outward // by node, others alone
	loads  [][]float32         // memory for what was offered, when it is taken: the next is taken to it
}

// slot is where a message to a piece here is waited for. Of what it says one holds when there is closed.
type slot struct {
	there chan struct{}
	rows  []float32
	left  bool // the rows are with the node that sent them
	size  int  // values
}

// outward is what another node has not taken yet.
type outward struct {
	untold []parcel
	left   map[key]parcel // told of
	more   chan struct{}  // has room for one
}

type parcel struct {
	key
	size int // values
	rows []float32
	take func(rows []float32) error // if it was offered
}

// Open begins an exchange with the other nodes, which all open it; until they have, they are waited for.
// The caller must Close.
func (s *Exchanges) Open(o ExchangeOptions) (*Exchange, error) {
	if o.Room == 0 {
		o.Room = training.SpreadRoom
	}
	if len(o.Name) > maxName || len(o.Nodes) > 1<<16 {
		return nil, fmt.Errorf("parts: a name of %d bytes, %d pieces: at most %d and %d", len(o.Name), len(o.Nodes), maxName, 1<<16)
	}
	e := &Exchange{s: s, o: o, slots: map[key]*slot{}, held: map[string]int{}, spare: map[int][][]float32{}, asked: map[int]int{}, queues: map[string]*outward{}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	for _, node := range o.Nodes {
		if node != s.plane.Node() && e.queues[node] == nil {
			e.queues[node] = &outward{left: map[key]parcel{}, more: make(chan struct{}, 1)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[o.Name] != nil {
		return nil, fmt.Errorf("parts: %s was opened before", o.Name)
	}
	s.open[o.Name] = e
	close(s.changed)
	s.changed = make(chan struct{})
	for node := range e.queues {
		e.tasks.Go(func() { e.fail(e.poll(node)) })
	}
	return e, nil
}

// Close ends the exchange: what waits here or asks from elsewhere fails, with why if it is not nil. A node whose rows others still
// need must not.
func (e *Exchange) Close(why error) {
	if why == nil {
		why = ErrClosed
	}
	e.fail(fmt.Errorf("parts: node %s ended: %w", e.s.plane.Node(), why))
	e.tasks.Wait()
}

// fail ends everything, once.
func (e *Exchange) fail(err error) {
	e.mu.Lock()
	if e.err == nil {
		e.err = err
	}
	e.slots, e.held, e.spare, e.asked, e.loads = map[key]*slot{}, map[string]int{}, map[int][][]float32{}, map[int]int{}, nil
	for _, q := range e.queues {
		q.untold, q.left = nil, map[key]parcel{}
	}
	e.mu.Unlock()
	e.stop()
}

func (e *Exchange) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// node returns where piece p is computed.
func (e *Exchange) node(p int) (string, error) {
	if p < 0 || p >= len(e.o.Nodes) {
		return "", fmt.Errorf("parts: there is no piece %d of %d", p, len(e.o.Nodes))
	}
	return e.o.Nodes[p], nil
}

// Send is compute.Exchange's.
func (e *Exchange) Send(_ context.Context, round string, from, to int, rows []float32) error {
	return e.send(to, parcel{key: key{round, from, to}, size: len(rows), rows: rows})
}

// Offer is Send, to a piece of another node, of as many values as size says, which take writes when that node takes them: once, on a
// goroutine of the data plane's, and not after Close. If it fails, the exchange does.
func (e *Exchange) Offer(_ context.Context, round string, from, to, size int, take func(rows []float32) error) error {
	return e.send(to, parcel{key{round, from, to}, size, nil, take})
}

func (e *Exchange) send(to int, p parcel) error {
	node, err := e.node(to)
	if err == nil && (len(p.round) > maxRound || uint64(p.size) >= 1<<32) {
		err = fmt.Errorf("parts: %d values in round %.80q: at most 2³² of a name of %d bytes", p.size, p.round, maxRound)
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	q := e.queues[node]
	if q == nil && p.take != nil {
		return fmt.Errorf("parts: rows of round %.80q are offered to piece %d, which is computed here", p.round, to)
	}
	if q == nil {
		return e.arrived(p.key, slot{rows: p.rows, size: p.size})
	}
	q.untold = append(q.untold, p)
	select {
	case q.more <- struct{}{}:
	default:
	}
	return nil
}

// slot returns where a message is waited for. The lock is held.
func (e *Exchange) slot(k key) *slot {
	s := e.slots[k]
	if s == nil {
		s = &slot{there: make(chan struct{})}
		e.slots[k] = s
	}
	return s
}

// arrived books what is known of a message now. The lock is held.
func (e *Exchange) arrived(k key, now slot) error {
	s := e.slot(k)
	select {
	case <-s.there:
		return fmt.Errorf("parts: piece %d sent to piece %d in round %s twice", k.from, k.to, k.round)
	default:
	}
	s.rows, s.left, s.size = now.rows, now.left, now.size
	close(s.there)
	return nil
}

// Receive is compute.Exchange's.
func (e *Exchange) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	node, err := e.node(from)
	if err != nil {
		return err
	}
	k := key{round, from, to}
	e.mu.Lock()
	s := e.slot(k)
	e.mu.Unlock()
	select {
	case <-s.there:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.ctx.Done():
		return e.failure()
	}
	if s.size != len(rows) {
		return fmt.Errorf("parts: piece %d of node %s sent %d values to piece %d in round %s, which expects %d", from, node, s.size, to, round, len(rows))
	}
	if s.left {
		return e.fetch(ctx, node, k, rows)
	}
	copy(rows, s.rows)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.slots, k)
	if e.queues[node] == nil {
		return nil
	}
	e.held[node] -= 4 * s.size
	if e.asked[s.size] > 1 {
		if e.spared += s.size; 4*e.spared > e.o.Room {
			e.spare, e.spared = map[int][][]float32{}, s.size
		}
		e.spare[s.size] = append(e.spare[s.size], s.rows)
	}
	return nil
}

// memory returns room for n values of unspecified content.
func (e *Exchange) memory(n int) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asked) >= maxAsked {
		clear(e.asked)
	}
	e.asked[n]++
	last := len(e.spare[n]) - 1
	if last < 0 {
		return make([]float32, n)
	}
	rows := e.spare[n][last]
	e.spare[n], e.spared = e.spare[n][:last], e.spared-n
	return rows
}

// fetch brings what a node has told of.
func (e *Exchange) fetch(ctx context.Context, node string, k key, rows []float32) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(e.ctx, stop)()
	into := dataplane.BytesOf(rows)
	b, err := e.s.plane.Ask(ctx, dataplane.Call{
		Node: node, Method: dataplane.MethodPieceRows, Body: [][]byte{(&request{name: e.o.Name, key: k, take: true}).append(nil)}, Into: into, Max: len(into),
	})
	switch {
	case err == nil && len(b) != len(into):
		err = fmt.Errorf("parts: node %s brought %d bytes of the %d from piece %d to piece %d in round %s", node, len(b), len(into), k.from, k.to, k.round)
	case err == nil:
		e.mu.Lock()
		delete(e.slots, k)
		e.mu.Unlock()
	case e.failure() != nil:
		err = e.failure()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = e.lost(node, err)
		e.fail(err)
	}
	return err
}

// lost says which node failed, and what it was to compute.
func (e *Exchange) lost(node string, err error) error {
	var computes []int
	for p, at := range e.o.Nodes {
		if at == node {
			computes = append(computes, p)
		}
	}
	return &Lost{node, fmt.Errorf("parts: node %s, which computes the pieces %v: %w", node, computes, err)}
}

// poll hears of what a node sends, until that fails.
func (e *Exchange) poll(node string) error {
	var b []byte
	for {
		e.mu.Lock()
		free := e.o.Room - e.held[node]
		e.mu.Unlock()
		if cap(b) > 2*batch {
			b = nil
		}
		var err error
		b, err = e.s.plane.Ask(e.ctx, dataplane.Call{
			Node: node, Method: dataplane.MethodPieceRows, Body: [][]byte{(&request{name: e.o.Name, room: free}).append(nil)}, Into: b, Max: free + maxHead,
		})
		if err == nil {
			err = e.deliver(node, b, free)
		}
		if err != nil {
			return e.lost(node, err)
		}
	}
}

// deliver takes what a node answered.
func (e *Exchange) deliver(node string, b []byte, free int) error {
	heads, rest, err := parseAnswer(b)
	if err != nil {
		return err
	}
	for _, h := range heads {
		if h.from >= len(e.o.Nodes) || h.to >= len(e.o.Nodes) || e.o.Nodes[h.from] != node || e.queues[e.o.Nodes[h.to]] != nil {
			return fmt.Errorf("parts: it sends rows of piece %d to piece %d, which are not computed there and here", h.from, h.to)
		}
		now := slot{left: h.left, size: h.size}
		if !h.left {
			if free -= 4 * h.size; free < 0 {
				return errors.New("parts: it sends more than there is room for")
			}
			now.rows = e.memory(h.size)
			copy(dataplane.BytesOf(now.rows), rest)
			rest = rest[4*h.size:]
		}
		e.mu.Lock()
		if err = e.err; err == nil {
			err = e.arrived(h.key, now)
		}
		if err == nil {
			e.held[node] += 4 * len(now.rows)
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Exchanges) serve(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
	q, err := parseRequest(r.Body)
	if err != nil {
		return dataplane.Reply{}, err
	}
	e, err := s.find(ctx, q.name)
	if err != nil {
		return dataplane.Reply{}, err
	}
	out := e.queues[r.Peer]
	if out == nil {
		return dataplane.Reply{}, fmt.Errorf("parts: node %s computes no piece", r.Peer)
	}
	if q.take {
		return e.give(out, q.key)
	}
	for {
		if heads, brought := e.answer(out, q.room); len(heads) > 0 {
			return e.reply(appendHeads(nil, heads), brought)
		}
		select {
		case <-out.more:
		case <-e.ctx.Done():
			return dataplane.Reply{}, e.failure()
		case <-ctx.Done():
			return dataplane.Reply{}, ctx.Err()
		}
	}
}

// find waits for an exchange that this node has not opened yet.
func (s *Exchanges) find(ctx context.Context, name string) (*Exchange, error) {
	for {
		s.mu.Lock()
		e, changed := s.open[name], s.changed
		s.mu.Unlock()
		if e != nil {
			return e, e.failure()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// give hands over rows that were told of.
func (e *Exchange) give(out *outward, k key) (dataplane.Reply, error) {
	e.mu.Lock()
	p, there := out.left[k]
	err := e.err
	delete(out.left, k)
	e.mu.Unlock()
	switch {
	case there:
		return e.reply(nil, []parcel{p})
	case err == nil:
		err = fmt.Errorf("parts: there are no rows of piece %d for piece %d in round %.80s", k.from, k.to, k.round)
	}
	return dataplane.Reply{}, err
}

// answer says what to tell of what was sent, and what to bring.
func (e *Exchange) answer(out *outward, free int) (heads []head, brought []parcel) {
	e.mu.Lock()
	defer e.mu.Unlock()
	bytes := 0
	for _, p := range out.untold[:min(len(out.untold), maxParcels)] {
		size := 4 * p.size
		if bytes > 0 && bytes+size > batch {
			break
		}
		h := head{p.key, p.size, bytes+size > free}
		if heads = append(heads, h); h.left {
			out.left[p.key] = p
			continue
		}
		bytes += size
		brought = append(brought, p)
	}
	out.untold = slices.Delete(out.untold, 0, len(heads))
	return heads, brought
}

// reply is one of b and of what parcels have.
func (e *Exchange) reply(b []byte, parcels []parcel) (dataplane.Reply, error) {
	offered := 0
	for _, p := range parcels {
		if p.take != nil {
			offered += p.size
		}
	}
	r := dataplane.Reply{Data: [][]byte{b}}
	var load []float32
	if offered > 0 {
		var err error
		if load, err = e.load(offered); err != nil {
			return r, err
		}
		defer e.tasks.Done()
		r.Release = func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.err == nil {
				e.loads = append(e.loads, load)
			}
		}
	}
	at := load
	for _, p := range parcels {
		rows := p.rows
		if p.take != nil {
			rows, at = at[:p.size], at[p.size:]
			if err := p.take(rows); err != nil {
				e.fail(fmt.Errorf("parts: node %s: rows of piece %d for piece %d in round %s: %w", e.s.plane.Node(), p.from, p.to, p.round, err))
				return dataplane.Reply{}, e.failure()
			}
		}
		r.Data = append(r.Data, dataplane.BytesOf(rows))
	}
	return r, nil
}

// load returns room for n values of unspecified content, of which there is as much as was sent at a time. Close waits until the caller is Done
// with what it writes there.
func (e *Exchange) load(n int) (rows []float32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	e.tasks.Add(1)
	if last := len(e.loads) - 1; last >= 0 {
		rows, e.loads = e.loads[last], e.loads[:last]
	}
	if cap(rows) < n {
		rows = make([]float32, n)
	}
	return rows[:n], nil
}
