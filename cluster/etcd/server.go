package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/dirlock"
)

// Options of a server inside a node.
type Options struct {
	Node string // its name
	Dir  string // where it keeps its data
	// ClientListen and PeerListen are host:port; with port 0 in ClientListen
	// (or PeerListen) a free one is chosen.
	ClientListen, PeerListen string
	// Advertise is the host that others reach this node at; empty: that of
	// PeerListen.
	Advertise      string
	Certs          *transport.CertFiles // nil: plaintext
	AllowPlaintext bool
	// Join adds this server to the one whose clients are served at these
	// addresses; empty: it begins a store of its own. A server with data in Dir
	// goes on from that, whatever Join says.
	Join []string
	// Heartbeat and Election are raft's times; zero: 50 ms, and ten heartbeats, so
	// that an election ends before leases of 3 s do. On a slow network set
	// Heartbeat to its round trip.
	Heartbeat, Election time.Duration
	// Logger hears of what is wrong, etcd's own warnings among it; nil: nobody does.
	Logger *slog.Logger
}

// Server is a running etcd.
type Server struct {
	etcd     *embed.Etcd
	node     string
	client   string
	once     sync.Once
	outdated chan struct{}
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	unlock   func() error // the directory
	log      *slog.Logger
	room     *reserve
	ended    *ended
	clients  *grpc.Server
}

// quota is the most that the database may come to.
const quota = 1 << 30

// Serve starts a server and waits until it serves clients, or ctx ends.
func Serve(ctx context.Context, o Options) (*Server, error) {
	if o.Certs == nil {
		for _, l := range []string{o.ClientListen, o.PeerListen} {
			if err := transport.CheckPlaintext(l, o.AllowPlaintext); err != nil {
				return nil, err
			}
		}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	unlock, err := dirlock.Try(o.Dir) // etcd would wait for its files, whatever ctx says
	switch {
	case errors.Is(err, dirlock.ErrHeld):
		return nil, fmt.Errorf("%w: %s; give this one a directory of its own, or stop the other", ErrInUse, o.Dir)
	case errors.Is(err, dirlock.ErrNone):
		unlock = func() error { return nil }
	case err != nil:
		return nil, fmt.Errorf("etcd: %w", err)
	}
	s, err := serve(ctx, o)
	for tries := 0; errors.Is(err, errTaken) && tries < 10; tries++ {
		s, err = serve(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	s.unlock = unlock
	return s, nil
}

// ErrInUse: another server keeps its data in a directory.
var ErrInUse = errors.New("etcd: another store runs in the directory")

// errTaken: another process took a free port before etcd had it.
var errTaken = errors.New("etcd: a port that was free has been taken")

func serve(ctx context.Context, o Options) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Server{node: o.Node, outdated: make(chan struct{}), log: o.Logger, ended: &ended{done: make(chan struct{})}}
	var reloader *transport.Reloader
	if o.Certs != nil {
		var err error
		if reloader, err = transport.LoadCerts(*o.Certs, o.Logger); err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
	}
	l, err := net.Listen("tcp", o.ClientListen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("etcd: %w; %s", err, elsewhere)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	defer func() {
		if s.clients == nil {
			_ = l.Close() // nobody was let in
		}
	}()
	chosen := ""
	held, err := free(&o.PeerListen) // until etcd listens itself: there it takes no listener
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if held != nil {
		chosen = o.PeerListen
		defer func() { _ = held.Close() }() // nobody has connected
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.Node, o.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(o.Logger, s.ended))
	o.Heartbeat = cmp.Or(o.Heartbeat, 50*time.Millisecond)
	o.Election = cmp.Or(o.Election, 10*o.Heartbeat)
	cfg.TickMs, cfg.ElectionMs = uint(o.Heartbeat.Milliseconds()), uint(o.Election.Milliseconds())
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
	cfg.QuotaBackendBytes = quota
	scheme := "http"
	if o.Certs != nil {
		scheme = "https"
		cfg.PeerTLSInfo = tlsInfo(o.Certs)
	}
	host, port, err := net.SplitHostPort(o.PeerListen)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if o.Advertise != "" {
		host = o.Advertise
	}
	clientPort := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	s.client = net.JoinHostPort(host, clientPort)
	// Clients are served here: etcd's own listener lets a flood of strangers keep them out.
	cfg.ListenClientUrls, cfg.EnableGRPCGateway = nil, false
	cfg.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: o.PeerListen}}
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: scheme, Host: net.JoinHostPort(host, clientPort)}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: net.JoinHostPort(host, port)}}
	cfg.InitialCluster = o.Node + "=" + cfg.AdvertisePeerUrls[0].String()
	cfg.InitialClusterToken = "gnnactor"
	if _, err := os.Stat(filepath.Join(o.Dir, "member")); errors.Is(err, os.ErrNotExist) && len(o.Join) > 0 {
		if cfg.InitialCluster, err = addMember(ctx, o, cfg.AdvertiseClientUrls[0].String(), cfg.AdvertisePeerUrls[0].String()); err != nil {
			return nil, err
		}
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	var authorities []byte
	if o.Certs != nil { // before etcd reads them
		if authorities, err = os.ReadFile(o.Certs.CA); err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
	}
	if held != nil {
		_ = held.Close()
	}
	if s.room, err = openReserve(o.Dir); err != nil {
		return nil, err
	}
	if _, err := s.room.keep(); err != nil {
		return nil, errors.Join(err, s.room.file.Close())
	}
	err = s.start(ctx, cfg)
	switch {
	case err == nil:
	case errors.Is(err, syscall.EADDRINUSE) && chosen != "" && len(o.Join) == 0 && strings.Contains(err.Error(), chosen+":"):
		err = fmt.Errorf("%w: %w", errTaken, err)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("etcd: %w; %s", err, elsewhere)
	default:
		err = fmt.Errorf("etcd: start in %s: %w", o.Dir, err)
	}
	if err != nil {
		return nil, errors.Join(err, s.room.file.Close())
	}
	s.serveClients(l, reloader)
	var run context.Context
	run, s.cancel = context.WithCancel(context.Background())
	s.tasks.Go(func() { s.guard(run) })
	if o.Certs != nil {
		s.tasks.Go(func() { s.look(run, *o.Certs, authorities) })
	}
	return s, nil
}

const elsewhere = "another store may run here: choose other ports, or stop it"

// start starts etcd and waits until it is ready.
func (s *Server) start(ctx context.Context, cfg *embed.Config) error {
	began := make(chan error, 1)
	go func() { // it may end itself before it has begun
		var err error
		s.etcd, err = embed.StartEtcd(cfg)
		began <- err
	}()
	select {
	case err := <-began:
		if err != nil {
			return err
		}
	case <-s.ended.done:
		return s.ended.err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-s.ended.done:
		return s.ended.err
	case err := <-s.etcd.Err():
		s.etcd.Close()
		return err
	case <-ctx.Done():
		s.etcd.Close()
		return ctx.Err()
	}
}

// serveClients serves etcd's clients on l.
func (s *Server) serveClients(l net.Listener, reloader *transport.Reloader) {
	guarded, creds := transport.Guard(l, transport.Options{Certs: reloader, Connections: 4096, PerNode: 64, Logger: s.log})
	s.clients = v3rpc.Server(s.etcd.Server, nil, nil, grpc.Creds(creds), grpc.ConnectionTimeout(calling/2),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: calling, Timeout: calling / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: calling / 2}))
	s.tasks.Go(func() {
		if err := s.clients.Serve(guarded); err != nil {
			s.log.Error("the store serves no clients any more", "error", err)
		}
	})
}

// Ended is closed when etcd has ended itself, for a reason that Err returns. The server
// cannot be closed then: the process is to end.
func (s *Server) Ended() <-chan struct{} { return s.ended.done }

// Err returns why etcd has ended itself.
func (s *Server) Err() error { return fmt.Errorf("etcd: the store has ended: %w", s.ended.err) }

// free replaces port 0 by one that is free, and is held by the listener that it
// returns; nil: the address names its port.
func free(address *string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(*address)
	if err != nil || port != "0" {
		return nil, err
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		return nil, err
	}
	*address = net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	return l, nil
}

// ErrServes: a server of the store that answers has the name or the address of another one that is to join.
var ErrServes = errors.New("a server of the store has this name or address, and it answers")

// answersAt returns where a server of the store answers, unless that is this server's own address; "": nowhere.
func answersAt(ctx context.Context, c *clientv3.Client, m *pb.Member, self string) string {
	for _, u := range m.ClientURLs {
		if u == self {
			continue
		}
		call, cancel := context.WithTimeout(ctx, calling/5)
		s, err := c.Status(call, u)
		cancel()
		if err == nil && s.Header.MemberId == m.ID {
			return u
		}
	}
	return ""
}

// addMember makes room for this server in the others' raft group and returns
// the group's servers. A server that lost its data takes its old place anew.
func addMember(ctx context.Context, o Options, clientURL, peerURL string) (string, error) {
	c, err := Dial(ctx, o.Join, o.Certs)
	if err != nil {
		return "", err
	}
	defer c.Close()
	call, cancel := bounded(ctx)
	list, err := c.c.MemberList(call)
	cancel()
	if err != nil {
		return "", fmt.Errorf("etcd: members of the store at %v: %w", o.Join, err)
	}
	for _, m := range list.Members {
		if m.Name == o.Node || slices.Contains(m.PeerURLs, peerURL) {
			if at := answersAt(ctx, c.c, m, clientURL); at != "" {
				return "", fmt.Errorf("etcd: %w: %s, whose clients are at %s and whose peers are at %s; give this one a name and addresses of its own (--node, --listen, --peers), or stop that one",
					ErrServes, m.Name, at, strings.Join(m.PeerURLs, ", "))
			}
			call, cancel := bounded(ctx)
			_, err := c.c.MemberRemove(call, m.ID)
			cancel()
			if err != nil {
				return "", fmt.Errorf("etcd: take %s out of the store: %w", o.Node, err)
			}
		}
	}
	var added *clientv3.MemberAddResponse
	for { // while another server is still catching up, a new one is refused
		call, cancel := bounded(ctx)
		added, err = c.c.MemberAdd(call, []string{peerURL})
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("etcd: add %s to the store at %v: %w", o.Node, o.Join, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
	var parts []string
	for _, m := range added.Members {
		name := m.Name
		if m.ID == added.Member.ID {
			name = o.Node
		}
		for _, u := range m.PeerURLs {
			parts = append(parts, name+"="+u)
		}
	}
	return strings.Join(parts, ","), nil
}

// Endpoint returns the address that clients reach the server at.
func (s *Server) Endpoint() string { return s.client }

// Close stops the server and waits for it. Its data stays.
func (s *Server) Close() {
	s.once.Do(func() {
		s.cancel()
		s.clients.Stop()
		s.tasks.Wait()
		s.etcd.Close()
		_ = s.room.file.Close() // nothing was written
		_ = s.unlock()
	})
}
