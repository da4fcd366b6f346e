package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// Reloader serves mutual TLS from a node's files, and follows them as they
// change. Its methods may be called by several goroutines.
type Reloader struct {
	files CertFiles

	mu    sync.Mutex
	stamp [3]stamp
	cert  *tls.Certificate
	roots *x509.CertPool
	node  string
	err   error // of the last reading; the pair before it is still served
	log   *slog.Logger
}

type stamp struct {
	mod  time.Time
	size int64
}

// LoadCerts reads a node's files. What is wrong with them is the error; what is
// wrong with them later is logged when there is a connection to be made, and the
// last good ones are served meanwhile. No log: nil.
func LoadCerts(f CertFiles, log *slog.Logger) (*Reloader, error) {
	k := &Reloader{files: f, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refresh(); k.err != nil {
		return nil, k.err
	}
	return k, nil
}

// Node returns the name in the node's own certificate.
func (k *Reloader) Node() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node
}

// Files returns the names of the files.
func (k *Reloader) Files() CertFiles { return k.files }

// refresh reads the files if one of them changed, and logs what comes of it: once for as long as nothing else is wrong.
func (k *Reloader) refresh() {
	before, first := k.err, k.cert == nil
	changed := k.reread()
	switch {
	case first:
	case k.err != nil && (before == nil || before.Error() != k.err.Error()):
		k.log.Warn("new certificates are not taken, and the ones before serve on; put files in their place that belong together", "error", k.err)
	case changed:
		k.log.Info("new certificates serve", "cert", k.files.Cert, "until", k.cert.Leaf.NotAfter)
	}
}

// reread reports whether other certificates serve than before.
func (k *Reloader) reread() bool {
	var now [3]stamp
	for i, path := range []string{k.files.CA, k.files.Cert, k.files.Key} {
		if s, err := os.Stat(path); err == nil {
			now[i] = stamp{s.ModTime(), s.Size()}
		} else if !errors.Is(err, fs.ErrNotExist) || k.cert == nil {
			k.err = fmt.Errorf("transport: %w", err)
			if errors.Is(err, fs.ErrNotExist) {
				k.err = fmt.Errorf("%w; 'gnnactor cluster certs' makes certificates of nodes, and --node says which node this is", k.err)
			}
			return false
		}
	}
	if k.cert != nil && now == k.stamp {
		k.err = nil // those that were wrong meanwhile are gone
		return false
	}
	if k.err = k.read(); k.err != nil {
		return false
	}
	k.stamp = now
	return true
}

func (k *Reloader) read() error {
	pair, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		return fmt.Errorf("transport: %s and %s: %w", k.files.Cert, k.files.Key, err)
	}
	b, err := os.ReadFile(k.files.CA)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return fmt.Errorf("transport: %s holds no certificate", k.files.CA)
	}
	if err := CheckNode(pair.Leaf.Subject.CommonName); err != nil {
		return fmt.Errorf("%w, in %s", err, k.files.Cert)
	}
	if k.node != "" && pair.Leaf.Subject.CommonName != k.node {
		return fmt.Errorf("transport: %s is now the certificate of %s; this is node %s", k.files.Cert, pair.Leaf.Subject.CommonName, k.node)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("transport: %s is not signed by %s: %w", k.files.Cert, k.files.CA, err)
	}
	k.cert, k.roots, k.node = &pair, roots, pair.Leaf.Subject.CommonName
	return nil
}

// Client returns the configuration of one connection to host, or, of either side, from it: who connects must have a
// certificate by the cluster's authority. A connection made later should ask again.
func (k *Reloader) Client(host string) *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refresh()
	return &tls.Config{
		Certificates: []tls.Certificate{*k.cert},
		ServerName:   host, RootCAs: k.roots, ClientCAs: k.roots,
		ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
		// A resumed session would outlive the certificate that it began with.
		SessionTicketsDisabled: true,
	}
}

// Credentials returns k for gRPC, both sides.
func (k *Reloader) Credentials() credentials.TransportCredentials { return &grpcCredentials{k: k} }

// grpcCredentials makes the configuration anew for every handshake; gRPC's own
// would keep the first one.
type grpcCredentials struct {
	k    *Reloader
	name string
}

func (c *grpcCredentials) now() credentials.TransportCredentials {
	return credentials.NewTLS(c.k.Client(c.name))
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *grpcCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.now().ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *grpcCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.now().ServerHandshake(conn)
}

// Info implements credentials.TransportCredentials.
func (c *grpcCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c *grpcCredentials) Clone() credentials.TransportCredentials {
	return &grpcCredentials{k: c.k, name: c.name}
}

// OverrideServerName implements credentials.TransportCredentials.
func (c *grpcCredentials) OverrideServerName(name string) error {
	c.name = name
	return nil
}

// NodeName returns the name in the certificate of a gRPC peer, and false for a
// connection without one.
func NodeName(info credentials.AuthInfo) (string, bool) {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.VerifiedChains) == 0 {
		return "", false
	}
	return t.State.VerifiedChains[0][0].Subject.CommonName, true
}

// ErrPlaintext is wrapped by the error of CheckPlaintext.
var ErrPlaintext = errors.New("plaintext off loopback")

// CheckPlaintext reports why a node may not listen at address without TLS:
// anyone who reaches the port could stop the cluster. Loopback may; other
// addresses only when the user asked for it.
func CheckPlaintext(address string, allowed bool) error {
	if allowed {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("transport: %s: %w: make certificates with 'gnnactor cluster certs', or say --insecure", address, ErrPlaintext)
}
