package control

import (
	"context"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/certs"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/internal/bounded"
)

// question is what a visitor asks, as msgpack.
type question struct {
	Kind string `msgpack:"k"`
	Body []byte `msgpack:"b"`
}

// unmarshalQuestion decodes what a visitor sent.
func unmarshalQuestion(raw []byte) (q question, err error) {
	if len(raw) > maxMessage {
		return q, fmt.Errorf("%w: %d bytes", errMessage, len(raw))
	}
	if err := bounded.Unmarshal(raw, &q); err != nil {
		return question{}, fmt.Errorf("%w: %w", errMessage, err)
	}
	if len(q.Kind) > 64 || len(q.Body) > MaxBody {
		return question{}, fmt.Errorf("%w: a question", errMessage)
	}
	return q, nil
}

// visited answers a visitor.
func (p *Plane) visited(ctx context.Context, from string, raw []byte) ([]byte, error) {
	q, err := unmarshalQuestion(raw)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	h := p.visitors[q.Kind]
	p.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("node %s does not answer visitors who ask %.64q", p.o.Node, q.Kind)
	}
	return h(ctx, from, q.Body)
}

// Visit asks the node whose control plane is at address. The answer may be
// larger than a message.
func Visit(ctx context.Context, cluster, address string, keeper *certs.Keeper, kind string, body []byte) ([]byte, error) {
	raw, err := msgpack.Marshal(&question{kind, body})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	b, err := dataplane.Visit(ctx, planeOf(cluster), address, keeper, raw)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return b, nil
}
