package etcd

import (
	"context"
	"errors"
	"fmt"
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

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/gnnactor/gnnactor/cluster/certs"
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
	Certs          *certs.Files // nil: plaintext
	AllowPlaintext bool
	// Join adds this server to the one whose clients are served at these
	// addresses; empty: it begins a store of its own. A server with data in Dir
	// goes on from that, whatever Join says.
	Join []string
	// Heartbeat and Election are raft's times; zero: 50 ms, and ten heartbeats, so
	// that an election ends before leases of 3 s do. On a slow network set
	// Heartbeat to its round trip.
	Heartbeat, Election time.Duration
}

// Server is a running etcd.
type Server struct {
	etcd     *embed.Etcd
	node     string
	client   string
	once     sync.Once
	outdated chan struct{}
	cancel   context.CancelFunc
	watch    sync.WaitGroup
	unlock   func() error // the directory
}

// Serve starts a server and waits until it serves clients, or ctx ends.
func Serve(ctx context.Context, o Options) (*Server, error) {
	if o.Certs == nil {
		for _, l := range []string{o.ClientListen, o.PeerListen} {
			if err := certs.CheckPlaintext(l, o.AllowPlaintext); err != nil {
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
	var chosen []string
	var held []net.Listener // until etcd listens itself: it takes no listeners
	defer func() {
		for _, l := range held {
			_ = l.Close() // nobody has connected
		}
	}()
	for _, address := range []*string{&o.ClientListen, &o.PeerListen} {
		l, err := free(address)
		if err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
		if l != nil {
			chosen, held = append(chosen, *address), append(held, l)
		}
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.Node, o.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.LogLevel = "fatal"
	if o.Heartbeat == 0 {
		o.Heartbeat = 50 * time.Millisecond
	}
	if o.Election == 0 {
		o.Election = 10 * o.Heartbeat
	}
	cfg.TickMs, cfg.ElectionMs = uint(o.Heartbeat.Milliseconds()), uint(o.Election.Milliseconds())
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "5m"
	cfg.QuotaBackendBytes = 1 << 30
	scheme := "http"
	if o.Certs != nil {
		scheme = "https"
		cfg.ClientTLSInfo, cfg.PeerTLSInfo = tlsInfo(o.Certs), tlsInfo(o.Certs)
	}
	host, port, err := net.SplitHostPort(o.PeerListen)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	if o.Advertise != "" {
		host = o.Advertise
	}
	_, clientPort, err := net.SplitHostPort(o.ClientListen)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	cfg.ListenClientUrls = []url.URL{{Scheme: scheme, Host: o.ClientListen}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: o.PeerListen}}
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: scheme, Host: net.JoinHostPort(host, clientPort)}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: net.JoinHostPort(host, port)}}
	cfg.InitialCluster = o.Node + "=" + cfg.AdvertisePeerUrls[0].String()
	cfg.InitialClusterToken = "gnnactor"
	if _, err := os.Stat(filepath.Join(o.Dir, "member")); errors.Is(err, os.ErrNotExist) && len(o.Join) > 0 {
		if cfg.InitialCluster, err = addMember(ctx, o, cfg.AdvertisePeerUrls[0].String()); err != nil {
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
	for _, l := range held {
		_ = l.Close()
	}
	held = nil
	e, err := embed.StartEtcd(cfg)
	if len(o.Join) == 0 && errors.Is(err, syscall.EADDRINUSE) && slices.ContainsFunc(chosen, func(a string) bool { return strings.Contains(err.Error(), a+":") }) {
		return nil, fmt.Errorf("%w: %w", errTaken, err)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("etcd: %w; another store may run here: choose other ports, or stop it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: start in %s: %w", o.Dir, err)
	}
	s := &Server{etcd: e, node: o.Node, client: net.JoinHostPort(host, clientPort), outdated: make(chan struct{})}
	var run context.Context
	run, s.cancel = context.WithCancel(context.Background())
	if o.Certs != nil {
		s.watch.Go(func() { s.look(run, *o.Certs, authorities) })
	}
	select {
	case <-e.Server.ReadyNotify():
		return s, nil
	case err := <-e.Err():
		s.Close()
		return nil, fmt.Errorf("etcd: %w", err)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("etcd: start in %s: %w", o.Dir, ctx.Err())
	}
}

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

// addMember makes room for this server in the others' raft group and returns
// the group's servers. A server that lost its data takes its old place anew.
func addMember(ctx context.Context, o Options, peerURL string) (string, error) {
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
		s.watch.Wait()
		s.etcd.Close()
		if s.unlock != nil { // it was served
			_ = s.unlock() // nothing was written
		}
	})
}
