package trainers

import (
	"context"
	"fmt"

	"github.com/gnnactor/gnnactor/actors/async"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/training"
)

// remote is the parameters for one trainer of a node that does not have them. Its errors wrap
// training.ErrGroup when the node with the parameters does not answer, or with an error.
type remote struct {
	plane   *dataplane.Plane
	node    string
	group   uint64
	epoch   int64
	trainer int
	buf     []float32 // two values of room for the number, then the parameters
}

// newRemote returns the parameters at a node, for trainer i of this node, in an
// epoch of a group. size is how many parameters there are.
func newRemote(p *dataplane.Plane, node string, group uint64, epoch int64, i, size int) *remote {
	return &remote{plane: p, node: node, group: group, epoch: epoch, trainer: i, buf: make([]float32, numberSize/4+size)}
}

func (r *remote) ask(ctx context.Context, q request, into []byte, most int) ([]byte, error) {
	q.Group, q.Epoch, q.Trainer = r.group, r.epoch, r.trainer
	b, err := q.encode()
	if err != nil {
		return nil, err
	}
	answer, err := r.plane.Ask(ctx, dataplane.Call{Node: r.node, Method: dataplane.MethodParameters, Body: [][]byte{b}, Into: into, Max: most})
	if err != nil {
		return nil, fmt.Errorf("%w: the node with the parameters: %w", training.ErrGroup, err)
	}
	return answer, nil
}

// Deal implements async.Parameters.
func (r *remote) Deal(ctx context.Context, _ string) (int64, error) {
	b, err := r.ask(ctx, request{Kind: kindDeal}, nil, numberSize)
	if err != nil {
		return 0, err
	}
	step, _, err := parseNumber(b)
	if err == nil && step == over {
		err = async.ErrOver
	}
	return step, err
}

// Read implements async.Parameters. The version is valid until the next Read.
func (r *remote) Read(ctx context.Context, _ string, step int64) (*async.Version, error) {
	into := dataplane.BytesOf(r.buf)
	b, err := r.ask(ctx, request{Kind: kindRead, Step: step}, into, len(into))
	if err != nil {
		return nil, err
	}
	version, rest, err := parseNumber(b)
	if err == nil && version == over {
		err = async.ErrOver
	}
	if err != nil {
		return nil, err
	}
	// It lies in buf, for it fits there.
	return &async.Version{Number: version, Params: r.buf[numberSize/4 : numberSize/4+len(rest)/4]}, nil
}

// Push implements async.Parameters.
func (r *remote) Push(ctx context.Context, _ string, g async.Push) error {
	ticket, withdraw := r.plane.Offer("gradient", [][]byte{dataplane.BytesOf(g.Data)}, nil)
	defer withdraw()
	_, err := r.ask(ctx, request{Kind: kindPush, Step: g.Step, Version: g.Version, Stats: g.Stats, Ticket: ticket}, nil, 1)
	return err
}

// State waits for the end of the epoch, and returns the state that the owner's
// node ended it with; at most so many bytes.
func (r *remote) State(ctx context.Context, most int64) ([]byte, error) {
	b, err := r.ask(ctx, request{Kind: kindState}, nil, maxTicket)
	if err != nil {
		return nil, err
	}
	ticket, err := parseTicket(b, r.node, most)
	if err != nil {
		return nil, err
	}
	state, err := r.plane.Fetch(ctx, ticket, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: the node with the parameters: %w", training.ErrGroup, err)
	}
	_, err = r.ask(ctx, request{Kind: kindTaken}, nil, 1)
	return state, err
}
