// Package dataplane moves what is too large for messages between the nodes of
// a cluster: ids, rows, gradients, topology, state.
//
// There is one connection and one gRPC stream per pair of nodes, opened by the
// node whose name sorts first; the other one asks to be dialled back. On it run asks: a request
// is named by a method, is at most Options.MaxRequest bytes, and is answered by
// one reply of any size, or by an error. Bytes are cut into frames of at most
// 1 MiB that go from the sender's memory to the transport and from the
// transport to where the asker wants them, without an encoding in between.
// The frames of all replies take turns, so that a large one does not hold up
// the small ones.
//
// Every byte is sent under a credit that its receiver granted: for replies as
// they arrive, for requests when their handler has returned. So what a node
// holds for a peer is bounded by the two windows and by the replies that it
// asked for itself. When a peer goes, every ask to it fails at once.
//
// What a peer sends is not trusted: a frame that breaks the protocol or a limit
// ends its connection with an error, and nothing else.
//
// What is large, the files of a graph's topology (CopyDirectory), checkpoints and shards of
// features, is bytes under a name that its owner gives. A range of them is read from whichever
// node has them (ServeRanges, Source), or is put where those end that the other node has; both
// ways go on where they were interrupted. A range carries a CRC-32C. Who knows the SHA-256 of the
// whole, or of a chunk, compares that, too, and what becomes a file takes its name when it is on the disk.
//
// Replicas are copies of checkpoints on other nodes than those that wrote them, so that a machine
// that is lost with its disk takes nothing along. A ReplicaServer keeps them in a directory, the
// newest of the newest runs of every sender, so that a peer can fill no more than its own part.
package dataplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Errors that asks wrap.
var (
	// ErrPeerGone: the connection to the peer ended, or could not be made.
	ErrPeerGone = errors.New("dataplane: the peer is gone")
	// ErrClosed: this node's plane was closed.
	ErrClosed = errors.New("dataplane: closed")
	// ErrLimit: a size is over a limit.
	ErrLimit = errors.New("dataplane: over the limit")
	// ErrProtocol: a peer sent what the protocol does not allow.
	ErrProtocol = errors.New("dataplane: protocol error")
)

// RemoteError is a handler's error, as the asker sees it.
type RemoteError struct {
	Node   string
	Method Method
	Text   string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("dataplane: node %s, %v: %s", e.Node, e.Method, e.Text)
}

// Method names what a request asks for.
type Method uint16

// Request is what a handler gets. Body is valid until the handler returns.
type Request struct {
	Peer string // the name of the asking node
	Body []byte
}

// Reply is what a handler answers. Data is sent from where it lies: it must
// not change before Release, which is called once, when the transport has
// taken all of it or the asker no longer wants it. On a connection that broke,
// Release may never be called: do not wait for it.
type Reply struct {
	Data    [][]byte
	Release func()
	what    string // is counted; empty: the method's answer
}

// Handler answers requests, several at a time. ctx ends when the asker gives up
// or goes.
type Handler func(ctx context.Context, r *Request) (Reply, error)

// Options of a Plane. Cluster and Node must be set; zero numbers mean defaults.
type Options struct {
	Cluster string // peers of another cluster are refused
	Node    string // this node's name, as in its certificate
	Listen  string // host:port; port 0 takes a free one
	// Advertise is where peers reach this node; empty: the listening address.
	Advertise string
	// Certs gives mutual TLS; nil: plaintext, on loopback only or when
	// AllowPlaintext.
	Certs          *transport.Reloader
	AllowPlaintext bool

	MaxRequest  int           // bytes of a request; 8 MiB
	Window      int           // bytes that a peer may send ahead, for requests and replies each; 64 MiB
	MaxAsks     int           // asks that a peer may have open; 128
	MaxPeers    int           // connected nodes; 256
	DialTimeout time.Duration // 5 s
	PingTimeout time.Duration // 5 s

	Logger *slog.Logger
}

func (o *Options) fill() {
	o.MaxRequest, o.Window = cmp.Or(o.MaxRequest, 8<<20), cmp.Or(o.Window, 64<<20)
	o.MaxAsks, o.MaxPeers = cmp.Or(o.MaxAsks, 128), cmp.Or(o.MaxPeers, 256)
	o.DialTimeout, o.PingTimeout = cmp.Or(o.DialTimeout, 5*time.Second), cmp.Or(o.PingTimeout, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

func (o *Options) check() error {
	if err := transport.CheckNode(o.Node); err != nil {
		return err
	}
	if o.Window < 2*o.MaxRequest || o.Window < 4*chunk || o.MaxRequest < 1 || o.MaxAsks < 1 || o.MaxPeers < 1 {
		return fmt.Errorf("dataplane: limits: window %d must be at least 4 MiB and twice max request %d; max asks %d and max peers %d at least 1",
			o.Window, o.MaxRequest, o.MaxAsks, o.MaxPeers)
	}
	if o.Certs != nil && o.Certs.Node() != o.Node {
		return fmt.Errorf("dataplane: node %s has the certificate of %s", o.Node, o.Certs.Node())
	}
	return nil
}

// Plane is a node's end of the data plane.
type Plane struct {
	o           Options
	incarnation uint64 // of this process; a peer that restarts has another
	server      *transport.Server
	advertise   string
	ctx         context.Context // of everything that this plane does
	cancel      context.CancelFunc
	tasks       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	handlers map[Method]Handler
	peers    map[string]string // addresses, by node
	sessions map[string]*session
	dialing  map[string]*dial
	waiting  map[string]chan struct{} // closed when a session with the node exists
	loads    map[string]load          // by peer
	tickets  tickets

	sent, received, asked, answered atomic.Int64
	traffic                         transport.Traffic
}

// Listen opens a plane.
func Listen(o Options) (*Plane, error) {
	o.fill()
	if err := o.check(); err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, errors.New("dataplane: this machine is big-endian; the data plane sends little-endian values as they lie in memory")
	}
	var inc [8]byte
	_, _ = rand.Read(inc[:]) // it cannot fail
	p := &Plane{
		o: o, incarnation: binary.LittleEndian.Uint64(inc[:]), advertise: o.Advertise,
		handlers: map[Method]Handler{}, peers: map[string]string{}, sessions: map[string]*session{},
		dialing: map[string]*dial{}, waiting: map[string]chan struct{}{}, loads: map[string]load{},
	}
	var err error
	p.server, err = transport.Listen(o.Listen, p.transport(), &grpc.ServiceDesc{
		ServiceName: serviceName, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: streamName, Handler: p.accept, ServerStreams: true, ClientStreams: true}},
	})
	if err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.tickets.init(p)
	if p.advertise == "" {
		p.advertise = p.server.Address()
	}
	go func() {
		if err := p.server.Serve(); err != nil {
			o.Logger.Error("data plane stopped listening", "error", err)
		}
	}()
	return p, nil
}

// transport returns how connections are made.
func (p *Plane) transport() transport.Options {
	return transport.Options{
		Certs: p.o.Certs, AllowPlaintext: p.o.AllowPlaintext, Codec: codec{}, MaxMessage: maxFrame, Window: transportWindow, Buffer: transportBuffer,
		Streams: 2, Connections: 2 * p.o.MaxPeers, PerNode: maxConnections, DialTimeout: p.o.DialTimeout,
		PingTimeout: p.o.PingTimeout, Logger: p.o.Logger,
	}
}

// maxConnections is how many connections a node may have opened to this one:
// one with the stream, one that asks to be dialled back, and those that it lost and this node
// has not heard of yet.
const maxConnections = 8

// Node returns this node's name.
func (p *Plane) Node() string { return p.o.Node }

// Address returns where peers reach this node.
func (p *Plane) Address() string { return p.advertise }

// Handle sets the handler of a method. It may be called at any time; nil takes
// the handler away.
func (p *Plane) Handle(m Method, h Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[m] = h
}

// SetPeer says where a node is.
func (p *Plane) SetPeer(node, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers[node] = address
}

// Connect connects to a node, if it is not connected: an ask would.
func (p *Plane) Connect(ctx context.Context, node string) error {
	_, err := p.session(ctx, node)
	return err
}

// Stats counts since the plane was opened: bytes with their frame headers, and
// asks made and answered.
type Stats struct{ Sent, Received, Asked, Answered int64 }

// Stats returns the counts.
func (p *Plane) Stats() Stats {
	return Stats{p.sent.Load(), p.received.Load(), p.asked.Load(), p.answered.Load()}
}

// Traffic returns what was sent, by type of message: a request is called as its method, an answer as
// what it is of.
func (p *Plane) Traffic() []transport.Sent { return p.traffic.All() }

// Peers returns the names of the connected nodes.
func (p *Plane) Peers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.sessions))
}

// Close ends every connection and waits for what this plane started, handlers
// included: a handler must return when its context ends.
func (p *Plane) Close() {
	p.mu.Lock()
	p.closed = true
	all := slices.Collect(maps.Values(p.sessions))
	p.mu.Unlock()
	// Sessions first: what a handler answers because its context ends is not to
	// reach a peer, which would take it for the handler's own error.
	for _, s := range all {
		s.end(ErrClosed)
	}
	p.cancel()
	p.server.Close()
	p.tasks.Wait()
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
