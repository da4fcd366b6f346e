package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// Visitor answers one question of one who is no node: from is the name in its
// certificate, empty without TLS. ctx ends when the visitor goes.
type Visitor func(ctx context.Context, from string, body []byte) ([]byte, error)

// visit is a question or an answer on the wire.
type visit []byte

const visitName = "Visit"

// visits returns the method that visitors call, if there is one.
func (p *Plane) visits() []grpc.MethodDesc {
	if p.o.Visitor == nil {
		return nil
	}
	return []grpc.MethodDesc{{MethodName: visitName, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in visit
		if err := decode(&in); err != nil {
			return nil, err
		}
		md, _ := metadata.FromIncomingContext(ctx)
		if c := md.Get(metaCluster); len(c) != 1 || c[0] != p.o.Cluster {
			return nil, status.Errorf(codes.PermissionDenied, "a visitor of cluster %.80q, not %q", c, p.o.Cluster)
		}
		from := ""
		if p.o.Certs != nil {
			pr, ok := peer.FromContext(ctx)
			if ok {
				from, ok = certs.NodeName(pr.AuthInfo)
			}
			if !ok {
				return nil, status.Error(codes.PermissionDenied, "a visitor without a certificate")
			}
		}
		out, err := p.answer(ctx, from, in)
		if err != nil {
			text := err.Error()
			return nil, status.Error(codes.Unknown, text[:min(len(text), maxErrorText)])
		}
		return (*visit)(&out), nil
	}}}
}

// answer calls the visitor's handler; a panic in it is the visitor's error.
func (p *Plane) answer(ctx context.Context, from string, body []byte) (out []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	defer func() {
		if x := recover(); x != nil {
			p.o.Logger.Error("a visitor's handler panicked", "panic", x)
			err = errors.New("the handler panicked")
		}
	}()
	if len(body) > p.o.MaxRequest {
		return nil, fmt.Errorf("%w: %d bytes", ErrLimit, len(body))
	}
	return p.o.Visitor(ctx, from, body)
}

// Visit asks the node at address, without being one. It waits for the answer
// until ctx ends.
func Visit(ctx context.Context, cluster, address string, keeper *certs.Keeper, body []byte) ([]byte, error) {
	p := &Plane{o: Options{Cluster: cluster, Certs: keeper, DialTimeout: 5 * time.Second}}
	p.o.fill()
	cc, err := p.client(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPeerGone, address, err)
	}
	in, out := visit(body), visit(nil)
	err = cc.Invoke(metadata.AppendToOutgoingContext(ctx, metaCluster, cluster), "/"+serviceName+"/"+visitName, &in, &out)
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
