package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// What nodes tell each other when a stream begins, as gRPC metadata.
const (
	metaCluster     = "gnnactor-cluster"
	metaNode        = "gnnactor-node"
	metaIncarnation = "gnnactor-incarnation"
	metaAddress     = "gnnactor-address"
	metaAsks        = "gnnactor-asks"      // asks that may be open
	metaRequest     = "gnnactor-request"   // bytes of a request
	metaDialBack    = "gnnactor-dial-back" // please connect to me
)

func (p *Plane) hello(dialBack bool) metadata.MD {
	md := metadata.Pairs(transport.MetaVersion, transport.WireVersion, metaCluster, p.o.Cluster, metaNode, p.o.Node,
		metaIncarnation, strconv.FormatUint(p.incarnation, 16), metaAddress, p.advertise,
		metaAsks, strconv.Itoa(p.o.MaxAsks), metaRequest, strconv.Itoa(p.o.MaxRequest))
	if dialBack {
		md.Set(metaDialBack, "1")
	}
	return md
}

// greeting is a peer's hello.
type greeting struct {
	node, address     string
	incarnation       uint64
	maxAsks, maxBytes int
	dialBack          bool
}

// greet checks a peer's hello. The certificate's name, where there is one, must
// be the name that the peer says it has.
func (p *Plane) greet(ctx context.Context, md metadata.MD) (greeting, error) {
	var g greeting
	get := func(key string) string {
		if v := md.Get(key); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	if err := transport.CheckVersion(md, get(metaNode)); err != nil {
		return g, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if c := get(metaCluster); c != p.o.Cluster {
		return g, fmt.Errorf("%w: a node of cluster %.80q, not %q", ErrProtocol, c, p.o.Cluster)
	}
	g.node, g.address, g.dialBack = get(metaNode), get(metaAddress), get(metaDialBack) != ""
	if g.node == p.o.Node {
		return g, fmt.Errorf("%w: another node is called %s too; every node needs a name of its own", ErrProtocol, g.node)
	}
	if err := transport.CheckName(ctx, p.o.Certs, g.node); err != nil {
		return g, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	var err error
	if g.incarnation, err = strconv.ParseUint(get(metaIncarnation), 16, 64); err != nil {
		return g, fmt.Errorf("%w: incarnation: %w", ErrProtocol, err)
	}
	for key, v := range map[string]*int{metaAsks: &g.maxAsks, metaRequest: &g.maxBytes} {
		if *v, err = strconv.Atoi(get(key)); err != nil || *v < 1 {
			return g, fmt.Errorf("%w: %s is %.20q", ErrProtocol, key, get(key))
		}
	}
	return g, nil
}

// accept serves a stream that a peer opened. It returns when the session ends.
func (p *Plane) accept(_ any, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	g, err := p.greet(stream.Context(), md)
	if err != nil {
		p.o.Logger.Warn("data plane refused a peer", "error", err)
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if g.dialBack {
		return p.dialBack(stream.Context(), g)
	}
	if g.node >= p.o.Node {
		return status.Error(codes.FailedPrecondition, "the node whose name sorts first opens the stream")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s := newSession(p, g, stream, cancel)
	if err := p.admit(s); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if err := stream.SendHeader(p.hello(false)); err != nil {
		s.end(fmt.Errorf("%w: node %s: %w", ErrPeerGone, g.node, err))
	}
	return s.run(ctx)
}

// dialBack connects to a node that asks this one to, and answers when it has or cannot, so that one that waits hears at
// once when this node ends meanwhile. A node that is no peer yet is looked for where it says it is: it may
// know of this one first.
func (p *Plane) dialBack(ctx context.Context, g greeting) error {
	if g.node <= p.o.Node {
		return status.Error(codes.FailedPrecondition, "the node whose name sorts first opens the stream and does not ask to be dialled back")
	}
	p.mu.Lock()
	_, known := p.peers[g.node]
	full := !known && len(p.peers) >= 2*p.o.MaxPeers
	if !known && !full {
		p.peers[g.node] = g.address
	}
	old := p.sessions[g.node]
	p.mu.Unlock()
	if full {
		return status.Error(codes.ResourceExhausted, "too many nodes that are not members have asked to be dialled back")
	}
	answer := make(chan error, 1)
	if !p.start(func() { answer <- p.connectAnew(ctx, g, old) }) {
		return status.Error(codes.Unavailable, ErrClosed.Error())
	}
	if err := <-answer; err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// connectAnew connects to a node that has no session with this one, whatever this one has.
func (p *Plane) connectAnew(ctx context.Context, g greeting, old *session) error {
	switch {
	case old == nil:
	case old.g.incarnation == g.incarnation: // that has not heard of it yet, or has heard of its end already
		select {
		case <-old.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	default: // before the transport notices
		old.end(fmt.Errorf("%w: node %s has started anew", ErrPeerGone, g.node))
	}
	_, err := p.session(ctx, g.node)
	if err != nil && ctx.Err() == nil {
		p.o.Logger.Warn("data plane could not dial a node back", "node", g.node, "error", err)
	}
	return err
}

// dial is an attempt to connect that several asks may wait for.
type dial struct {
	done chan struct{}
	s    *session
	err  error
}

// session returns the session with node, connecting if need be.
func (p *Plane) session(ctx context.Context, node string) (*session, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if s := p.sessions[node]; s != nil {
		p.mu.Unlock()
		return s, nil
	}
	address, known := p.peers[node]
	if !known {
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: node %s is not a member", ErrPeerGone, node)
	}
	d := p.dialing[node]
	if d == nil {
		d = &dial{done: make(chan struct{})}
		p.dialing[node] = d
		p.tasks.Go(func() {
			if p.o.Node < node {
				d.s, d.err = p.connect(node, address)
			} else {
				d.s, d.err = p.requestDialBack(node, address)
			}
			if d.err != nil {
				d.err = fmt.Errorf("%w: node %s at %s: %w", ErrPeerGone, node, address, d.err)
			}
			p.mu.Lock()
			delete(p.dialing, node)
			p.mu.Unlock()
			close(d.done)
		})
	}
	p.mu.Unlock()
	select {
	case <-d.done:
		return d.s, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connect opens the stream to node and runs its session.
func (p *Plane) connect(node, address string) (s *session, err error) {
	cc, err := transport.Dial(address, p.transport())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(p.ctx, p.hello(false)))
	defer func() {
		if err != nil {
			cancel()
			err = errors.Join(err, cc.Close())
		}
	}()
	timer := time.AfterFunc(p.o.DialTimeout, cancel) // a stream has no deadline of its own to open
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+serviceName+"/"+streamName)
	if err != nil {
		return nil, err
	}
	md, err := stream.Header()
	if !timer.Stop() {
		return nil, context.DeadlineExceeded
	}
	if err != nil {
		return nil, err
	}
	if len(md.Get(transport.MetaVersion)) == 0 { // refused: the reason is the stream's status
		if err := stream.RecvMsg(silence{}); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: no greeting", ErrProtocol)
	}
	g, err := p.greet(stream.Context(), md)
	if err != nil {
		return nil, err
	}
	if g.node != node {
		return nil, fmt.Errorf("%w: it is node %s", ErrProtocol, g.node)
	}
	s = newSession(p, g, stream, cancel)
	if err := p.admit(s); err != nil {
		return nil, err
	}
	if !p.start(func() {
		// Why it ended was told to all asks; closing has nothing to add.
		_ = s.run(ctx)
		_ = cc.Close()
	}) {
		s.end(ErrClosed)
		return nil, ErrClosed
	}
	return s, nil
}

// requestDialBack asks node to connect to this one, and waits until it did.
func (p *Plane) requestDialBack(node, address string) (*session, error) {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(p.ctx, p.hello(true)), p.o.DialTimeout)
	defer cancel()
	cc, err := transport.Dial(address, p.transport())
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+serviceName+"/"+streamName)
	if err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	answer := make(chan error, 1)
	p.tasks.Go(func() { answer <- stream.RecvMsg(silence{}) })
	var end error // why it does not come, or has been and is over
	for {
		p.mu.Lock()
		s := p.sessions[node]
		here := p.waiting[node]
		if s == nil && here == nil {
			here = make(chan struct{})
			p.waiting[node] = here
		}
		p.mu.Unlock()
		switch {
		case s != nil:
			return s, nil
		case end != nil:
			return nil, end
		}
		select {
		case <-here:
		case end = <-answer:
		case <-ctx.Done():
			end = ctx.Err()
		}
	}
}

// admit makes s the session with its peer. An older one with the same peer is
// ended: the peer knows best that it is gone.
func (p *Plane) admit(s *session) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	old := p.sessions[s.peer]
	if old == nil && len(p.sessions) >= p.o.MaxPeers {
		p.mu.Unlock()
		return fmt.Errorf("%w: %d nodes are connected already", ErrLimit, p.o.MaxPeers)
	}
	p.sessions[s.peer] = s
	if w := p.waiting[s.peer]; w != nil {
		close(w)
		delete(p.waiting, s.peer)
	}
	p.mu.Unlock()
	if old != nil {
		old.end(fmt.Errorf("%w: node %s connected anew", ErrPeerGone, s.peer))
	}
	return nil
}

// dismiss forgets s.
func (p *Plane) dismiss(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.peer] == s {
		delete(p.sessions, s.peer)
	}
}
