package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// limitListener accepts at most n connections at a time and closes what comes
// beyond: a peer that connects again and again cannot use up the descriptors.
func limitListener(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, n)}
}

type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, back: func() { <-l.free }}, nil
		default:
			// What closing a connection that is refused reports matters to nobody.
			_ = c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	once sync.Once
	back func()
}

func (c *limitedConn) Close() error {
	c.once.Do(c.back)
	return c.Conn.Close()
}

// counted lets each node have a few connections at a time, so that one of them
// cannot take all that there are.
type counted struct {
	credentials.TransportCredentials
	log  *slog.Logger
	most int
	have *counts
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *counted) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	name, ok := certs.NodeName(info)
	if !ok {
		err = errors.New("transport: no certificate")
	} else if !c.have.add(name, c.most) {
		err = fmt.Errorf("transport: node %.80q has %d connections already", name, c.most)
	}
	if err != nil {
		c.log.Warn("refused a connection", "error", err)
		return nil, nil, errors.Join(err, secured.Close())
	}
	return &limitedConn{Conn: secured, back: func() { c.have.remove(name) }}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *counted) Clone() credentials.TransportCredentials {
	d := *c
	d.TransportCredentials = c.TransportCredentials.Clone()
	return &d
}
