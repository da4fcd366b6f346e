package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// looking is how long a connection is given to say why a store does not answer.
const looking = 2 * time.Second

// unanswered says why a store does not answer, of which gRPC keeps silent until
// the time is up: what a connection to each of its addresses comes to.
func unanswered(ctx context.Context, endpoints []string, reloader *transport.Reloader) error {
	var all []error
	for _, e := range endpoints {
		all = append(all, fmt.Errorf("%s %w", e, probe(ctx, e, reloader)))
	}
	return errors.Join(all...)
}

// probe connects to an address as a client does.
func probe(ctx context.Context, address string, reloader *transport.Reloader) error {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot be reached: %w; is 'gnnactor cluster start' running there, and is this the address that it listens on?", err)
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(looking)); err != nil {
		return err
	}
	config := &tls.Config{InsecureSkipVerify: true} // nothing is sent
	if reloader != nil {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("is no HOST:PORT: %w", err)
		}
		config = reloader.Client(host)
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	c := tls.Client(raw, config)
	err = c.HandshakeContext(ctx)
	if reloader == nil {
		var plain tls.RecordHeaderError
		if err == nil || !errors.As(err, &plain) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, io.EOF) {
			return errors.New("is under TLS; give --certs and --node")
		}
		return errStands
	}
	if err == nil { // the server looks at our certificate last, and says so in what it sends first
		_, err = c.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return errStands
		}
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("ends the connection (%w), as a store that is not under TLS does; leave --certs out if it is not", err)
	}
	return fmt.Errorf("refuses the connection: %w; are the certificates of both by one authority, and valid for this address?", err)
}

// errStands: the connection stands, the store behind it does not serve.
var errStands = errors.New("can be reached, but does not serve; do most of its stores run?")
