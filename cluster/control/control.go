// Package control carries the small messages of a cluster between its nodes:
// commands and their answers, at most 64 KiB each; what is larger goes over the
// data plane, named by a ticket.
//
// Messages are between actors of Proto.Actor's cluster. An actor has a kind and an
// identity; the plane's members are the cluster's, and Place says on which of them
// an actor is. A node starts it when somebody asks for it, and ends it when it is
// placed elsewhere. Between nodes messages travel by the protocol of Proto.Actor's
// remote, in msgpack.
//
// AskAsOperator is for those who are no nodes, such as an operator's command: they ask
// one node, which asks the others.
//
// A message is numbered, sent again until its receiver says that it has it, and
// handled once; it carries the epochs of its sender and its receiver, and one
// from or to an older self of a node is refused. An ask fails at once when its
// peer goes. The plane has connections and a port of its own, so that bulk does
// not delay it. Whom a message is from is what the certificate of its connection
// says.
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"google.golang.org/grpc"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// MaxBody is the largest body of a message, in bytes.
const MaxBody = maxMessage - 4<<10

// Errors that asks wrap.
var (
	ErrPeerGone = errors.New("control: the peer is gone")
	ErrClosed   = errors.New("control: closed")
	ErrLimit    = errors.New("control: over the limit")
	// ErrElsewhere: the actor is on no node, or not on the one that was asked.
	ErrElsewhere = errors.New("control: the actor is not there")
)

// RemoteError is a handler's error, as the asker sees it.
type RemoteError struct{ Node, Kind, Text string }

func (e *RemoteError) Error() string {
	return fmt.Sprintf("control: node %s, %s: %s", e.Node, e.Kind, e.Text)
}

// Handler answers what the actor of an identity is asked, several asks at a time. ctx
// ends when the plane closes or the asker's node goes.
type Handler func(ctx context.Context, identity, from string, body []byte) ([]byte, error)

// Options of a Plane.
type Options struct {
	Cluster, Node  string
	Epoch          int64  // at which this node joined; 0: Begin says it
	Listen         string // host:port
	Host           string // where peers reach it; empty: the listening address's
	Certs          *transport.Reloader
	AllowPlaintext bool
	// Place says which node the actor of a kind and an identity is on; empty: on
	// none. It may be called at any time. Nil: identities are names of nodes.
	Place func(kind, identity string) (node string)
	// Resend is how long a message that failed waits before it is sent again;
	// 50 ms. It doubles up to 1 s.
	Resend time.Duration
	Logger *slog.Logger
}

// Peer says where a node is, and since when it is a member.
type Peer struct {
	Address string
	Epoch   int64
}

// Plane is a node's end of the control plane.
type Plane struct {
	o      Options
	server *transport.Server
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	system   *actor.ActorSystem
	cluster  *cluster.Cluster
	provider *provider
	asker    *actor.PID
	ending   sync.Once

	// deliver gives a message to a node; nil: it has it. Tests put a lossy
	// network here.
	deliver func(ctx context.Context, pr *peer, m *message) error

	mu        sync.Mutex
	closed    bool
	known     map[string]Peer // what SetPeers said last
	peers     map[string]*peer
	heard     map[string]*heard // of all that ever were
	handlers  map[string]Handler
	actors    map[string]*actor.PID // that run here, by what others call them
	spawned   int                   // actors that ever ran
	joined    uint64                // members that ever were
	operators map[string]OperatorHandler
	asks      map[uint64]*ask
	last      uint64

	traffic transport.Traffic
}

// outstanding bounds the messages on their way to a peer, and those of a peer
// that are being handled; maxMessage is the largest of them, with its envelope.
const (
	outstanding = 256
	maxMessage  = 64 << 10
)

// Listen opens a plane.
func Listen(o Options) (*Plane, error) {
	o.Resend = cmp.Or(o.Resend, 50*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Place == nil {
		o.Place = func(_, identity string) string { return identity }
	}
	if err := transport.CheckNode(o.Node); err != nil {
		return nil, err
	}
	if o.Certs != nil && o.Certs.Node() != o.Node {
		return nil, fmt.Errorf("control: node %s has the certificate of %s", o.Node, o.Certs.Node())
	}
	p := &Plane{
		o: o, peers: map[string]*peer{}, heard: map[string]*heard{}, handlers: map[string]Handler{}, operators: map[string]OperatorHandler{}, asks: map[uint64]*ask{}, actors: map[string]*actor.PID{},
		last: rand.Uint64() >> 1, // an answer to an older self finds nobody
	}
	p.deliver = p.send
	p.ctx, p.cancel = context.WithCancel(context.Background())
	var err error
	p.server, err = transport.Listen(o.Listen, transportOptions(o.Certs, o.AllowPlaintext, o.Logger), p.remoting(), p.operatorService())
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	p.startActors()
	go func() {
		if err := p.server.Serve(); err != nil {
			o.Logger.Error("control plane stopped listening", "error", err)
		}
	}()
	return p, nil
}

// transportOptions returns how connections are made.
func transportOptions(reloader *transport.Reloader, plaintext bool, log *slog.Logger) transport.Options {
	return transport.Options{
		Certs: reloader, AllowPlaintext: plaintext, Codec: codec{}, MaxMessage: maxFrame, Window: 1 << 20, Buffer: 32 << 10,
		Streams: 4, Connections: 512, PerNode: 8, Logger: log,
	}
}

// Begin says at which epoch this node joined. Until then it hears nobody.
func (p *Plane) Begin(epoch int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o.Epoch = epoch
}

// Address returns where peers reach this node.
func (p *Plane) Address() string {
	if p.o.Host != "" {
		return p.server.AddressAt(p.o.Host)
	}
	return p.server.Address()
}

// Traffic returns what was sent, by type of message: asks are called as the kind of the actor that is
// asked. What a message is sent again is counted again.
func (p *Plane) Traffic() []transport.Sent { return p.traffic.All() }

// Handle sets the handler of a kind, which this node's actors of that kind run.
func (p *Plane) Handle(kind string, h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[kind] = h
}

// SetPeers says which nodes are members. What is asked of a node that is gone,
// or that is there anew, fails now.
func (p *Plane) SetPeers(peers map[string]Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || maps.Equal(peers, p.known) {
		return
	}
	p.known = maps.Clone(peers)
	for node, old := range p.peers {
		if now, ok := peers[node]; !ok || now != old.Peer {
			p.drop(node, fmt.Errorf("%w: node %s left", ErrPeerGone, node))
		}
	}
	members := map[string]string{}
	for node, at := range peers {
		if node == p.o.Node {
			members[node] = at.Address
			continue
		}
		if p.peers[node] == nil {
			p.joined++
			if h := p.heard[node]; h == nil || h.epoch != at.Epoch {
				p.heard[node] = &heard{epoch: at.Epoch}
			}
			pr := newPeer(p.ctx, node, at, p.joined, p.heard[node])
			p.peers[node] = pr
			p.tasks.Go(func() { p.link(pr) })
			for _, o := range pr.heard.owed {
				p.tasks.Go(func() { p.pay(pr, o) })
			}
			pr.heard.owed = nil
		}
		members[p.peers[node].member] = at.Address
	}
	p.provider.update(members)
}

// drop forgets a peer, and ends what it was asked; the lock is held.
func (p *Plane) drop(node string, err error) {
	if pr := p.peers[node]; pr != nil { // else it is this node
		delete(p.peers, node)
		pr.cancel()
	}
	for id, a := range p.asks {
		if a.node == node {
			delete(p.asks, id)
			a.reply <- &reply{err: err}
		}
	}
}

// start runs f in a goroutine that Close waits for; false: the plane is closed.
func (p *Plane) start(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.tasks.Go(f)
	}
	return !p.closed
}

// Close ends everything and waits for it.
func (p *Plane) Close() {
	p.mu.Lock()
	p.closed = true
	for node := range p.peers {
		p.drop(node, ErrClosed)
	}
	p.drop(p.o.Node, ErrClosed)
	p.mu.Unlock()
	p.cancel()
	p.server.Close()
	p.tasks.Wait()
	p.ending.Do(p.stopActors)
}

// remoting describes the service of Proto.Actor's remote.
func (p *Plane) remoting() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: remotingService, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: remotingStream, Handler: p.accept, ServerStreams: true, ClientStreams: true}},
	}
}
