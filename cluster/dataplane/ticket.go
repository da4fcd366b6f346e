package dataplane

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// Ticket names bytes that lie at a node, for a message to carry: who holds it
// may fetch them. Tickets are drawn at random, so that none can be guessed.
type Ticket struct {
	Node string   `msgpack:"n"`
	ID   [16]byte `msgpack:"i"`
	Size int64    `msgpack:"s"`
}

// ErrTicket: a ticket that its node does not know, or not any longer.
var ErrTicket = errors.New("dataplane: unknown ticket")

type tickets struct {
	mu   sync.Mutex
	open map[[16]byte]*offer
}

type offer struct {
	what     string
	data     [][]byte
	released func()
	uses     int // who reads it, and the offer itself
}

func (t *tickets) init(p *Plane) {
	t.open = map[[16]byte]*offer{}
	p.handlers[methodTicket] = t.serve
}

// leave ends a use of an offer.
func (t *tickets) leave(o *offer) {
	t.mu.Lock()
	o.uses--
	last := o.uses == 0
	t.mu.Unlock()
	if last && o.released != nil {
		o.released()
	}
}

// Offer lets whoever has the ticket fetch data, any number of times, until
// withdraw is called. What says what it is, where bytes are counted. data must not change before released is called, which
// happens after withdraw when nobody reads it any more; released may be nil.
func (p *Plane) Offer(what string, data [][]byte, released func()) (t Ticket, withdraw func()) {
	_, _ = rand.Read(t.ID[:]) // it cannot fail
	t.Node = p.o.Node
	for _, b := range data {
		t.Size += int64(len(b))
	}
	p.tickets.mu.Lock()
	defer p.tickets.mu.Unlock()
	p.tickets.open[t.ID] = &offer{what, data, released, 1}
	return t, func() { p.tickets.close(t.ID) }
}

// Offers returns how many tickets are open.
func (p *Plane) Offers() int {
	p.tickets.mu.Lock()
	defer p.tickets.mu.Unlock()
	return len(p.tickets.open)
}

func (t *tickets) close(id [16]byte) {
	t.mu.Lock()
	o := t.open[id]
	delete(t.open, id)
	t.mu.Unlock()
	if o != nil { // it was not withdrawn before
		t.leave(o)
	}
}

func (t *tickets) serve(_ context.Context, r *Request) (Reply, error) {
	if len(r.Body) != 16+16 {
		return Reply{}, fmt.Errorf("a ticket request of %d bytes", len(r.Body))
	}
	from, n := binary.LittleEndian.Uint64(r.Body[16:]), binary.LittleEndian.Uint64(r.Body[24:])
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.open[[16]byte(r.Body[:16])]
	if o == nil {
		return Reply{}, errors.New(ErrTicket.Error())
	}
	part, ok := cut(o.data, from, n)
	if !ok {
		return Reply{}, fmt.Errorf("bytes [%d, %d+%d) of a ticket are beyond its end", from, from, n)
	}
	o.uses++
	return Reply{what: o.what, Data: part, Release: func() { t.leave(o) }}, nil
}

// cut returns bytes [from, from+n) of data; false: there are not so many.
func cut(data [][]byte, from, n uint64) (part [][]byte, ok bool) {
	for _, b := range data {
		if from >= uint64(len(b)) {
			from -= uint64(len(b))
			continue
		}
		if n == 0 {
			break
		}
		take := min(uint64(len(b))-from, n)
		part = append(part, b[from:from+take])
		n -= take
		from = 0
	}
	return part, n == 0
}

// Fetch gets the bytes of a ticket, into dst if they fit there.
func (p *Plane) Fetch(ctx context.Context, t Ticket, dst []byte) ([]byte, error) {
	if t.Size < 0 {
		return nil, fmt.Errorf("%w: a ticket for %d bytes", ErrLimit, t.Size)
	}
	body := binary.LittleEndian.AppendUint64(append([]byte(nil), t.ID[:]...), 0)
	body = binary.LittleEndian.AppendUint64(body, uint64(t.Size))
	b, err := p.Ask(ctx, Call{Node: t.Node, Method: methodTicket, Body: [][]byte{body}, Into: dst, Max: int(t.Size)})
	if err == nil && int64(len(b)) != t.Size {
		return nil, fmt.Errorf("%w: %d of %d bytes of a ticket", ErrProtocol, len(b), t.Size)
	}
	return b, err
}
