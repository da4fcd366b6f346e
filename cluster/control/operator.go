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

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
)

// OperatorHandler answers a question of an operator, who is no node: from is the name in its
// certificate, empty without TLS. ctx ends when the operator goes.
type OperatorHandler func(ctx context.Context, from string, body []byte) ([]byte, error)

// question is what an operator asks, as msgpack.
type question struct {
	Kind string `msgpack:"k"`
	Body []byte `msgpack:"b"`
}

const (
	operatorServiceName = "gnnactor.Control"
	operatorMethod      = "Visit"
	// metaCluster names the cluster that an operator means, as gRPC metadata.
	metaCluster = "gnnactor-cluster"
)

// decodeQuestion decodes what an operator sent.
func decodeQuestion(raw []byte) (q question, err error) {
	if len(raw) > maxMessage {
		return q, fmt.Errorf("%w: %d bytes", errMessage, len(raw))
	}
	if err := msgpackcheck.Unmarshal(raw, &q); err != nil {
		return question{}, fmt.Errorf("%w: %w", errMessage, err)
	}
	if len(q.Kind) > 64 || len(q.Body) > MaxBody {
		return question{}, fmt.Errorf("%w: a question", errMessage)
	}
	return q, nil
}

// HandleOperator sets who answers a kind of question that operators ask.
func (p *Plane) HandleOperator(kind string, v OperatorHandler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.operators[kind] = v
}

// operatorService describes the service that operators call.
func (p *Plane) operatorService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: operatorServiceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: operatorMethod, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in frame
			if err := decode(&in); err != nil {
				return nil, err
			}
			md, _ := metadata.FromIncomingContext(ctx)
			if c := md.Get(metaCluster); len(c) != 1 || c[0] != p.o.Cluster {
				return nil, status.Errorf(codes.PermissionDenied, "an operator of cluster %.80q, not %q", c, p.o.Cluster)
			}
			from, ok := transport.Name(ctx)
			if p.o.Certs != nil && !ok {
				return nil, status.Error(codes.PermissionDenied, "an operator without a certificate")
			}
			if err := transport.CheckVersion(md, "(an operator)"); err != nil {
				return nil, status.Error(codes.PermissionDenied, err.Error())
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs(transport.MetaVersion, transport.WireVersion)); err != nil {
				return nil, err
			}
			out, err := p.answerOperator(ctx, from, in)
			if err != nil {
				text := err.Error()
				return nil, status.Error(codes.Unknown, text[:min(len(text), maxError)])
			}
			return (*frame)(&out), nil
		}}},
	}
}

// answerOperator answers an operator; a panic in the handler is the operator's error.
func (p *Plane) answerOperator(ctx context.Context, from string, raw []byte) (out []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	q, err := decodeQuestion(raw)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	v := p.operators[q.Kind]
	p.mu.Unlock()
	if v == nil {
		return nil, fmt.Errorf("node %s does not answer operators who ask %.64q", p.o.Node, q.Kind)
	}
	return p.guard("operator's "+q.Kind, func() ([]byte, error) { return v(ctx, from, q.Body) })
}

// AskAsOperator asks the node whose control plane is at address, without being one. The answer
// may be larger than a message. Both must speak the same wire version.
func AskAsOperator(ctx context.Context, cluster, address string, reloader *transport.Reloader, kind string, body []byte) ([]byte, error) {
	raw, err := msgpack.Marshal(&question{kind, body})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	cc, err := transport.Dial(address, transportOptions(reloader, true, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPeerGone, address, err)
	}
	in, out := frame(raw), frame(nil)
	var md metadata.MD
	ctx = metadata.AppendToOutgoingContext(ctx, metaCluster, cluster, transport.MetaVersion, transport.WireVersion)
	if err = cc.Invoke(ctx, "/"+operatorServiceName+"/"+operatorMethod, &in, &out, grpc.Header(&md)); err == nil {
		err = transport.CheckVersion(md, "at "+address)
	}
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
