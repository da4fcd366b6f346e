package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/certs"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/bounded"
)

// Visitor answers a question of one who is no node: from is the name in its
// certificate, empty without TLS. ctx ends when the visitor goes.
type Visitor func(ctx context.Context, from string, body []byte) ([]byte, error)

// question is what a visitor asks, as msgpack.
type question struct {
	Kind string `msgpack:"k"`
	Body []byte `msgpack:"b"`
}

const (
	visitService = "gnnactor.Control"
	visitMethod  = "Visit"
	// metaCluster names the cluster that a visitor means, as gRPC metadata.
	metaCluster = "gnnactor-cluster"
)

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

// HandleVisitor sets who answers a kind of question that visitors ask.
func (p *Plane) HandleVisitor(kind string, v Visitor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visitors[kind] = v
}

// visits describes the service that visitors call.
func (p *Plane) visits() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: visitService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: visitMethod, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in frame
			if err := decode(&in); err != nil {
				return nil, err
			}
			md, _ := metadata.FromIncomingContext(ctx)
			if c := md.Get(metaCluster); len(c) != 1 || c[0] != p.o.Cluster {
				return nil, status.Errorf(codes.PermissionDenied, "a visitor of cluster %.80q, not %q", c, p.o.Cluster)
			}
			from, ok := transport.Name(ctx)
			if p.o.Certs != nil && !ok {
				return nil, status.Error(codes.PermissionDenied, "a visitor without a certificate")
			}
			out, err := p.visited(ctx, from, in)
			if err != nil {
				text := err.Error()
				return nil, status.Error(codes.Unknown, text[:min(len(text), maxError)])
			}
			return (*frame)(&out), nil
		}}},
	}
}

// visited answers a visitor; a panic in who answers is the visitor's error.
func (p *Plane) visited(ctx context.Context, from string, raw []byte) (out []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	q, err := unmarshalQuestion(raw)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	v := p.visitors[q.Kind]
	p.mu.Unlock()
	if v == nil {
		return nil, fmt.Errorf("node %s does not answer visitors who ask %.64q", p.o.Node, q.Kind)
	}
	return p.guard("visitor's "+q.Kind, func() ([]byte, error) { return v(ctx, from, q.Body) })
}

// Visit asks the node whose control plane is at address, without being one. The answer
// may be larger than a message.
func Visit(ctx context.Context, cluster, address string, keeper *certs.Keeper, kind string, body []byte) ([]byte, error) {
	raw, err := msgpack.Marshal(&question{kind, body})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	cc, err := transport.Dial(address, transportOptions(keeper, true, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPeerGone, address, err)
	}
	in, out := frame(raw), frame(nil)
	err = cc.Invoke(metadata.AppendToOutgoingContext(ctx, metaCluster, cluster), "/"+visitService+"/"+visitMethod, &in, &out)
	if s, ok := status.FromError(err); ok && err != nil {
		switch s.Code() {
		case codes.Unknown, codes.PermissionDenied:
			err = errors.New(s.Message())
		default:
			err = fmt.Errorf("%w: %s: %s", ErrPeerGone, address, s.Message())
		}
	}
	if err = errors.Join(err, cc.Close()); err != nil {
		return nil, err
	}
	return out, nil
}
