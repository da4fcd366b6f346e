// Package transport makes the connections between processes of a cluster: gRPC, under
// mutual TLS or, on loopback or where it was allowed, without. Both planes run on
// it, each on a port of its own.
//
// A listener takes so many connections in all, and a few from one certificate; those
// that have not shown one yet have room of their own.
// Messages travel as they are: what they mean is the planes' business, which
// bring codecs of their own, and limits on sizes.
//
// An Authority makes certificates, one for each node, with its name as the common name and the
// hosts and addresses that it is reached at. Both planes and the store check the chain and the
// host; the planes also check that a peer is who it says it is (CheckName). A Reloader reads files
// again when they change, so that certificates rotate while a cluster runs: a connection keeps
// what it was made with, the next one takes the new files.
package transport

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
)

// Options of a server and of connections to others. Codec and the sizes must be set;
// a time of 0 means the default.
type Options struct {
	// Certs gives mutual TLS; nil: plaintext, which a server speaks on loopback
	// only, or when AllowPlaintext.
	Certs          *Reloader
	AllowPlaintext bool

	Codec       encoding.CodecV2
	MaxMessage  int // bytes of a message in either direction
	Window      int // bytes of a stream, and of a connection, on their way
	Buffer      int // bytes that are read or written at once
	Streams     int // that a connection may have open
	Connections int // that a server has open
	PerNode     int // of those, with one certificate

	DialTimeout time.Duration // 5 s
	PingTimeout time.Duration // 5 s

	Logger *slog.Logger
}

func (o *Options) fill() {
	o.DialTimeout, o.PingTimeout = cmp.Or(o.DialTimeout, 5*time.Second), cmp.Or(o.PingTimeout, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
}

// pinging is how often idle connections are pinged: the least that gRPC allows.
const pinging = 10 * time.Second

// Server serves services on a port.
type Server struct {
	listener net.Listener
	server   *grpc.Server
	served   chan struct{}
}

// Listen opens a server at host:port, of which port 0 takes a free one. It serves
// nobody before Serve.
func Listen(address string, o Options, services ...*grpc.ServiceDesc) (*Server, error) {
	o.fill()
	if o.Certs == nil {
		if err := CheckPlaintext(address, o.AllowPlaintext); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(o.Codec), grpc.MaxRecvMsgSize(o.MaxMessage), grpc.MaxSendMsgSize(o.MaxMessage),
		grpc.InitialWindowSize(int32(o.Window)), grpc.InitialConnWindowSize(int32(o.Window)),
		grpc.ReadBufferSize(o.Buffer), grpc.WriteBufferSize(o.Buffer),
		grpc.MaxConcurrentStreams(uint32(o.Streams)), grpc.MaxHeaderListSize(8 << 10), grpc.ConnectionTimeout(o.DialTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pinging, Timeout: o.PingTimeout, MaxConnectionIdle: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pinging / 2, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	}
	guarded, creds := Guard(l, o)
	opts = append(opts, grpc.Creds(creds))
	s := &Server{listener: guarded, server: grpc.NewServer(opts...), served: make(chan struct{})}
	for _, d := range services {
		s.server.RegisterService(d, nil)
	}
	return s, nil
}

// Guard returns a listener, and credentials for the server that is to serve it, which
// together keep to the limits on connections.
func Guard(l net.Listener, o Options) (net.Listener, credentials.TransportCredentials) {
	o.fill()
	creds := credentials.TransportCredentials(open{insecure.NewCredentials()})
	if o.Certs != nil {
		creds = &counted{o.Certs.Credentials(), o.Logger, o.PerNode}
	}
	return &limited{Listener: l, most: o.Connections, by: map[string]int{}}, creds
}

// Serve lets connections in, until Close.
func (s *Server) Serve() error {
	defer close(s.served)
	return s.server.Serve(s.listener)
}

// Close ends all connections, and waits for Serve, which must have been called, and
// for handlers.
func (s *Server) Close() {
	s.server.Stop()
	<-s.served
}

// Address returns where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// AddressAt returns host with the server's port.
func (s *Server) AddressAt(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port))
}

// Dial makes a connection to address that does not try again by itself. It connects
// when it is used.
func Dial(address string, o Options) (*grpc.ClientConn, error) {
	o.fill()
	creds := insecure.NewCredentials()
	if o.Certs != nil {
		creds = o.Certs.Credentials()
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(o.Codec), grpc.MaxCallRecvMsgSize(o.MaxMessage), grpc.MaxCallSendMsgSize(o.MaxMessage)),
		grpc.WithInitialWindowSize(int32(o.Window)), grpc.WithInitialConnWindowSize(int32(o.Window)),
		grpc.WithReadBufferSize(o.Buffer), grpc.WithWriteBufferSize(o.Buffer),
		grpc.WithMaxHeaderListSize(8<<10), grpc.WithDisableRetry(), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: o.DialTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pinging, Timeout: o.PingTimeout}),
		grpc.WithTransportCredentials(creds),
	)
}

// Name returns the name in the certificate of who is at the other end of a stream or
// call, and false without TLS.
func Name(ctx context.Context) (string, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	return NodeName(p.AuthInfo)
}

// CheckName reports why the other end of a stream or call is not the node that it says
// it is: under TLS, which k is for, its certificate must say so.
func CheckName(ctx context.Context, k *Reloader, says string) error {
	if err := CheckNode(says); err != nil {
		return err
	}
	if k == nil {
		return nil
	}
	if name, ok := Name(ctx); !ok || name != says {
		return fmt.Errorf("node %s has the certificate of %.80q", says, name)
	}
	return nil
}
