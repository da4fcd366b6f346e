package trainers

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
	"github.com/gnnactor/gnnactor/messages"
)

// kind says what a trainer asks the owner's node.
type kind uint8

const (
	kindDeal kind = iota + 1
	kindRead
	kindPush
	kindState
	kindTaken // the trainer's node has the state
	kindLast
)

// request is what a trainer asks. What is large is fetched by its ticket.
type request struct {
	Group   uint64           `msgpack:"g"`
	Epoch   int64            `msgpack:"e"`
	Kind    kind             `msgpack:"k"`
	Trainer int              `msgpack:"t"` // of those of its node
	Step    int64            `msgpack:"s"`
	Version int64            `msgpack:"v"`
	Stats   messages.Stats   `msgpack:"x"`
	Ticket  dataplane.Ticket `msgpack:"n"` // a push: the gradient
}

// maxRequest bounds an encoded request.
const maxRequest = 1 << 10

// maxNodeTrainers bounds the trainers of a node.
const maxNodeTrainers = 1 << 10

// parseRequest decodes what a peer asks.
func parseRequest(b []byte) (*request, error) {
	if len(b) > maxRequest {
		return nil, fmt.Errorf("trainers: a request of %d bytes; at most %d", len(b), maxRequest)
	}
	r := new(request)
	if err := msgpackcheck.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("trainers: a malformed request: %w", err)
	}
	s := &r.Stats
	switch {
	case r.Kind < kindDeal || r.Kind >= kindLast || r.Epoch < 0 || r.Step < 0 || r.Version < 0 || r.Trainer < 0 || r.Trainer >= maxNodeTrainers:
		return nil, fmt.Errorf("trainers: a request of kind %d of trainer %d for step %d of epoch %d", r.Kind, r.Trainer, r.Step, r.Epoch)
	case math.IsNaN(s.Weight) || math.IsInf(s.Weight, 0) || s.Weight < 0 || s.Correct < 0 || s.Count < s.Correct:
		return nil, fmt.Errorf("trainers: statistics of step %d: weight %v, %d of %d correct", r.Step, s.Weight, s.Correct, s.Count)
	}
	return r, nil
}

func (r *request) encode() ([]byte, error) {
	b, err := msgpack.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("trainers: %w", err)
	}
	return b, nil
}

// A reply begins with a number of 8 bytes: the step that was dealt, the version
// that was read, or over. What was read follows.
const (
	numberSize = 8
	over       = -1
)

func appendNumber(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

// parseNumber also returns what follows.
func parseNumber(b []byte) (int64, []byte, error) {
	if len(b) < numberSize {
		return 0, nil, fmt.Errorf("trainers: an answer of %d bytes", len(b))
	}
	n := int64(binary.LittleEndian.Uint64(b))
	if n < over {
		return 0, nil, fmt.Errorf("trainers: an answer with number %d", n)
	}
	return n, b[numberSize:], nil
}

// maxTicket bounds an encoded ticket.
const maxTicket = 256

// parseTicket decodes where the state is that an epoch ended with.
func parseTicket(b []byte, node string, most int64) (dataplane.Ticket, error) {
	var t dataplane.Ticket
	if len(b) > maxTicket {
		return t, fmt.Errorf("trainers: a ticket of %d bytes", len(b))
	}
	if err := msgpackcheck.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("trainers: a ticket: %w", err)
	}
	if t.Node != node || t.Size < 0 || t.Size > most {
		return t, fmt.Errorf("trainers: a ticket of node %.80q for %d bytes; expected of %s, and at most %d", t.Node, t.Size, node, most)
	}
	return t, nil
}
