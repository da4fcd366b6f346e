// Package control carries the small messages of a cluster between its nodes:
// commands and their answers, at most 64 KiB each; what is larger goes over the
// data plane, named by a ticket.
//
// Messages are between actors: Proto.Actor's cluster knows the plane's members, and
// finds the actor of a kind on a node by the node's name.
//
// Visit is for those who are no nodes, such as an operator's command: they ask
// one node, which asks the others.
//
// A message is numbered, sent again until its receiver says that it has it, and
// handled once; it carries the epochs of its sender and its receiver, and one
// from or to an older self of a node is refused. An ask fails at once when its
// peer goes. The plane has connections and a port of its own, so that bulk does
// not delay it; they are dataplane's, with its limits: whom a message is from is
// what the certificate of its connection says.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"github.com/gnnactor/gnnactor/cluster/certs"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
)

// MaxBody is the largest body of a message, in bytes.
const MaxBody = 64 << 10

// Errors that asks wrap.
var (
	ErrPeerGone = errors.New("control: the peer is gone")
	ErrClosed   = errors.New("control: closed")
	ErrLimit    = errors.New("control: over the limit")
)

// RemoteError is a handler's error, as the asker sees it.
type RemoteError struct{ Node, Kind, Text string }

func (e *RemoteError) Error() string {
	return fmt.Sprintf("control: node %s, %s: %s", e.Node, e.Kind, e.Text)
}

// Handler answers messages of a kind, several at a time. ctx ends when the
// plane closes or the sender goes.
type Handler func(ctx context.Context, from string, body []byte) ([]byte, error)

// Options of a Plane.
type Options struct {
	Cluster, Node  string
	Epoch          int64  // at which this node joined; 0: Begin says it
	Listen         string // host:port
	Host           string // where peers reach it; empty: the listening address's
	Certs          *certs.Keeper
	AllowPlaintext bool
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
	plane  *dataplane.Plane
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	system   *actor.ActorSystem
	cluster  *cluster.Cluster
	provider *provider
	asker    *actor.PID
	ending   sync.Once

	// deliver gives bytes to a node; nil: it has them. Tests put a lossy
	// network here.
	deliver func(ctx context.Context, node string, raw []byte) error

	mu       sync.Mutex
	closed   bool
	peers    map[string]*peer
	handlers map[string]Handler
	actors   map[string]*actor.PID // by kind
	joined   int                   // members that ever were
	visitors map[string]Handler
	asks     map[uint64]*ask
	last     uint64
}

// outstanding bounds the messages on their way to a peer, and those of a peer
// that are being handled; maxMessage is one with its envelope.
const (
	outstanding = 256
	maxMessage  = MaxBody + 8<<10
)

// method is the one that messages travel under.
const method dataplane.Method = 16

// Listen opens a plane.
func Listen(o Options) (*Plane, error) {
	if o.Resend == 0 {
		o.Resend = 50 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Plane{
		o: o, peers: map[string]*peer{}, handlers: map[string]Handler{}, visitors: map[string]Handler{}, asks: map[uint64]*ask{}, actors: map[string]*actor.PID{},
		last: rand.Uint64() >> 1, // an answer to an older self finds nobody
	}
	plane, err := dataplane.Listen(dataplane.Options{
		Cluster: planeOf(o.Cluster), Node: o.Node, Listen: o.Listen, AdvertiseHost: o.Host, Certs: o.Certs, AllowPlaintext: o.AllowPlaintext,
		MaxRequest: maxMessage, Window: 4 << 20, MaxAsks: outstanding, Visitor: p.visited, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	p.plane = plane
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.deliver = func(ctx context.Context, node string, raw []byte) error {
		_, err := plane.Ask(ctx, dataplane.Call{Node: node, Method: method, Body: [][]byte{raw}})
		return err
	}
	if err := p.startActors(); err != nil {
		plane.Close()
		return nil, fmt.Errorf("control: %w", err)
	}
	plane.Handle(method, func(_ context.Context, r *dataplane.Request) (dataplane.Reply, error) {
		return dataplane.Reply{}, p.receive(r.Peer, r.Body)
	})
	return p, nil
}

// planeOf keeps the data plane's streams and this one's apart.
func planeOf(cluster string) string { return cluster + "/control" }

// Begin says at which epoch this node joined. Until then it hears nobody.
func (p *Plane) Begin(epoch int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o.Epoch = epoch
}

// Address returns where peers reach this node.
func (p *Plane) Address() string { return p.plane.Address() }

// Handle sets the handler of a kind of message, which this node's actor of that kind
// runs.
func (p *Plane) Handle(kind string, h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.actors[kind] == nil && !p.closed {
		p.spawn(kind)
	}
	p.handlers[kind] = h
}

// HandleVisitor sets the handler of a kind of question that visitors ask.
func (p *Plane) HandleVisitor(kind string, h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visitors[kind] = h
}

// SetPeers says which nodes are members. What is asked of a node that is gone,
// or that is there anew, fails now.
func (p *Plane) SetPeers(peers map[string]Peer) {
	addresses := map[string]string{}
	for node, at := range peers {
		addresses[node] = at.Address
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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
			p.peers[node] = newPeer(p.ctx, node, at, p.joined)
		}
		members[p.peers[node].member] = at.Address
	}
	p.provider.update(members)
	p.plane.SetPeers(addresses)
}

// drop forgets a peer; the lock is held.
func (p *Plane) drop(node string, err error) {
	pr := p.peers[node]
	delete(p.peers, node)
	pr.cancel()
	for id, a := range p.asks {
		if a.node == node {
			delete(p.asks, id)
			a.reply <- result{err: err}
		}
	}
}

// Close ends everything and waits for it.
func (p *Plane) Close() {
	p.mu.Lock()
	p.closed = true
	for node := range p.peers {
		p.drop(node, ErrClosed)
	}
	p.mu.Unlock()
	p.cancel()
	p.plane.Close()
	p.tasks.Wait()
	p.ending.Do(p.stopActors)
}
