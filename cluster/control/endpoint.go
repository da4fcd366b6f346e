package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// pidAddress is what PIDs call a node: its cluster and its name, as the node that a
// socket belongs to may change.
func (p *Plane) pidAddress(node string) string { return p.o.Cluster + "/" + node }

// selfOf names a node since an epoch, as a system's id of Proto.Actor.
func selfOf(node string, epoch int64) string { return node + "#" + strconv.FormatInt(epoch, 10) }

// Why a message has not reached its node. It is sent again.
var (
	errBroken     = errors.New("control: the connection ended")
	errUnanswered = errors.New("control: it was not acknowledged")
)

// unanswered is how long a node may take to say that it has a message, on a connection
// that seems to be well.
const unanswered = 5 * time.Second

// send gives a message to a node once, and returns what that says of it.
func (p *Plane) send(ctx context.Context, pr *peer, m *message) error {
	select {
	case pr.out <- m:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-m.acked:
		return err
	case <-time.After(unanswered):
		return errUnanswered
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell leaves the newest word where it is looked for; that a message was taken is final.
func tell(acked chan error, err error) {
	select {
	case old := <-acked:
		if old == nil {
			err = nil
		}
	default:
	}
	acked <- err
}

// lost tells all who wait that the connection is lost, and what it was to carry with it.
func (p *Plane) lost(pr *peer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(pr.out) > 0 {
		<-pr.out // nobody else takes from it
	}
	for _, w := range pr.waiting {
		tell(w, err)
	}
}

// link sends what is for a peer, over a connection that it makes when there is
// something to send, until the peer goes.
func (p *Plane) link(pr *peer) {
	for {
		var first *message
		select {
		case first = <-pr.out:
		case first = <-pr.say:
		case <-pr.ctx.Done():
			return
		}
		err := p.talk(pr, first)
		if pr.ctx.Err() != nil {
			return
		}
		if errors.Is(err, transport.ErrVersion) || status.Code(err) == codes.PermissionDenied { // it is not mended by waiting
			p.o.Logger.Warn("control plane was refused by a peer, or refuses it", "node", pr.node, "error", err)
		} else {
			p.o.Logger.Debug("control plane connection ended", "node", pr.node, "error", err)
		}
		p.lost(pr, fmt.Errorf("%w: %w", errBroken, err))
		select {
		case <-time.After(p.o.Resend):
		case <-pr.ctx.Done():
			return
		}
	}
}

// talk connects to a peer, and sends until the connection ends.
func (p *Plane) talk(pr *peer, first *message) error {
	cc, err := transport.Dial(pr.Address, transportOptions(p.o.Certs, p.o.AllowPlaintext, p.o.Logger))
	if err != nil {
		return err
	}
	defer cc.Close() // what it reports is said by then
	ctx, cancel := context.WithCancel(pr.ctx)
	defer cancel()
	stream, err := p.connect(ctx, cc, pr)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	if !p.start(func() {
		var raw frame
		err := stream.RecvMsg(&raw)
		if err == nil { // there is only one thing to say
			err = errors.New("the peer disconnects")
		}
		ended <- err
	}) {
		return ErrClosed
	}
	from, to := p.pidAddress(p.o.Node), p.pidAddress(pr.node)
	for batch := []*message{first}; ; batch = batch[:0] {
		if len(batch) == 0 {
			select {
			case m := <-pr.out:
				batch = append(batch, m)
			case m := <-pr.say:
				batch = append(batch, m)
			case err := <-ended:
				return err
			case <-pr.ctx.Done():
				return pr.ctx.Err()
			}
		}
	more:
		for len(batch) < maxBatch {
			select {
			case m := <-pr.out:
				batch = append(batch, m)
			case m := <-pr.say:
				batch = append(batch, m)
			default:
				break more
			}
		}
		raw, err := encodeBatch(from, to, batch)
		if err == nil {
			p.count(batch, len(raw))
			err = stream.SendMsg(&raw)
		}
		if err != nil {
			return err
		}
	}
}

// count books a batch of so many bytes.
func (p *Plane) count(batch []*message, bytes int) {
	for _, m := range batch {
		p.traffic.Add(m.what, 1, len(m.raw), 0, len(m.raw))
		bytes -= len(m.raw)
	}
	p.traffic.Add("control plane's own", 0, bytes, 0, 0) // names of actors, in the main
}

// connect opens the stream to a peer, and makes sure that it is that one.
func (p *Plane) connect(ctx context.Context, cc *grpc.ClientConn, pr *peer) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, transport.MetaVersion, transport.WireVersion))
	limit := time.AfterFunc(dialing, cancel) // a stream has no deadline of its own to open
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+remotingService+"/"+remotingStream)
	if err == nil {
		err = p.greet(stream, pr)
	}
	if !limit.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(stream.Context(), cancel)
	return stream, nil
}

// dialing is how long connecting may take.
const dialing = 5 * time.Second

func (p *Plane) greet(stream grpc.ClientStream, pr *peer) error {
	p.mu.Lock()
	self := selfOf(p.o.Node, p.o.Epoch)
	p.mu.Unlock()
	raw, err := encodeFrame(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{ConnectRequest: &remote.ConnectRequest{
		ConnectionType: &remote.ConnectRequest_ServerConnection{ServerConnection: &remote.ServerConnection{SystemId: self, Address: p.pidAddress(p.o.Node)}},
	}}})
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&raw); err != nil {
		return errors.Join(err, stream.RecvMsg(&raw)) // the reason is the stream's status
	}
	if err := stream.RecvMsg(&raw); err != nil {
		return err
	}
	md, err := stream.Header()
	if err != nil {
		return err
	}
	if err := transport.CheckVersion(md, pr.node); err != nil {
		return err
	}
	if err := transport.CheckName(stream.Context(), p.o.Certs, pr.node); err != nil {
		return err
	}
	m, err := decodeFrame(raw)
	if err != nil {
		return err
	}
	switch r := m.GetConnectResponse(); {
	case r == nil:
		return fmt.Errorf("%w: no answer to the request to connect", errRemoting)
	case r.GetMemberId() != selfOf(pr.node, pr.Epoch):
		return fmt.Errorf("it is %.80q, not %q", r.GetMemberId(), selfOf(pr.node, pr.Epoch))
	case r.GetBlocked():
		return errors.New("this node is no member there, or not yet")
	}
	return nil
}

// accept serves a stream that a peer opened. It returns when that ends or the peer goes.
func (p *Plane) accept(_ any, stream grpc.ServerStream) error {
	pr, err := p.greeted(stream)
	if err != nil {
		p.o.Logger.Warn("control plane refused a peer", "error", err)
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if pr == nil { // not yet
		return nil
	}
	// A server's stream ends when its handler returns and not before.
	ended := make(chan error, 1)
	if !p.start(func() { ended <- p.hear(stream, pr) }) {
		return status.Error(codes.Unavailable, ErrClosed.Error())
	}
	select {
	case err := <-ended:
		return err
	case <-pr.ctx.Done():
		return status.Error(codes.Unavailable, "the plane is closed, or its peer left")
	}
}

// greeted answers a peer's request to connect; nil: it is no member.
func (p *Plane) greeted(stream grpc.ServerStream) (*peer, error) {
	var raw frame
	if err := stream.RecvMsg(&raw); err != nil {
		return nil, err
	}
	m, err := decodeFrame(raw)
	if err != nil {
		return nil, err
	}
	c := m.GetConnectRequest().GetServerConnection()
	node, ok := strings.CutPrefix(c.GetAddress(), p.o.Cluster+"/")
	if !ok {
		return nil, fmt.Errorf("%w: a node that calls itself %.80q, not one of cluster %q", errRemoting, c.GetAddress(), p.o.Cluster)
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	if err := transport.CheckVersion(md, node); err != nil {
		return nil, fmt.Errorf("%w: %w", errRemoting, err)
	}
	if err := stream.SetHeader(metadata.Pairs(transport.MetaVersion, transport.WireVersion)); err != nil {
		return nil, err
	}
	if err := transport.CheckName(stream.Context(), p.o.Certs, node); err != nil {
		return nil, fmt.Errorf("%w: %w", errRemoting, err)
	}
	p.mu.Lock()
	pr := p.peers[node]
	if pr != nil && (c.GetSystemId() != selfOf(node, pr.Epoch) || p.o.Epoch == 0) {
		pr = nil
	}
	self := selfOf(p.o.Node, p.o.Epoch)
	p.mu.Unlock()
	raw, err = encodeFrame(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectResponse{ConnectResponse: &remote.ConnectResponse{MemberId: self, Blocked: pr == nil}}})
	if err != nil {
		return nil, err
	}
	return pr, stream.SendMsg(&raw)
}

// hear takes what a peer sends until its stream ends.
func (p *Plane) hear(stream grpc.ServerStream, pr *peer) error {
	from, to := p.pidAddress(pr.node), p.pidAddress(p.o.Node)
	for {
		var raw frame
		if err := stream.RecvMsg(&raw); err != nil {
			return err
		}
		m, err := decodeFrame(raw)
		var batch []*message
		if err == nil {
			batch, err = decodeBatch(m.GetMessageBatch(), from, to)
		}
		for i := 0; err == nil && i < len(batch); i++ {
			if err = p.receive(pr.node, batch[i]); errors.Is(err, errBusy) {
				err = nil
			}
		}
		if err != nil {
			p.o.Logger.Warn("control plane refused a message", "node", pr.node, "error", err)
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
}
