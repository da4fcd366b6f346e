package dataplane

import (
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/gnnactor/gnnactor/cluster/certs"
)

// load is what a peer makes this node do and hold, over all the connections
// that it ever had: a handler may go on for a while after its request was taken
// back, or its connection ended.
type load struct {
	handlers    int
	bytes       uint64 // of requests
	connections int    // that the peer opened, under TLS
}

// maxConnections is how many connections a node may have opened to this one:
// one with the stream, one that knocks, and those that it lost and this node
// has not heard of yet.
const maxConnections = 8

// errBusy is what a peer hears that takes its requests back faster than their
// handlers return.
var errBusy = errors.New("too many requests of this node are being handled, those that it took back included")

// takeOn books a request of a peer; false: there are too many.
func (p *Plane) takeOn(peer string, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	if l.handlers >= 2*p.o.MaxAsks || l.bytes+uint64(bytes) > 2*uint64(p.o.Window) {
		return false
	}
	l.handlers++
	l.bytes += uint64(bytes)
	p.loads[peer] = l
	return true
}

// putDown books that a request's handler has returned.
func (p *Plane) putDown(peer string, bytes int) {
	p.unload(peer, load{handlers: 1, bytes: uint64(bytes)})
}

func (p *Plane) unload(peer string, part load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	l.handlers -= part.handlers
	l.bytes -= part.bytes
	l.connections -= part.connections
	if p.loads[peer] = l; l == (load{}) {
		delete(p.loads, peer)
	}
}

func (p *Plane) connected(peer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	if l.connections >= maxConnections {
		return false
	}
	l.connections++
	p.loads[peer] = l
	return true
}

// counted lets each node have a few connections at a time, so that one of them
// cannot take all that there are.
type counted struct {
	credentials.TransportCredentials
	p *Plane
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *counted) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	name, ok := certs.NodeName(info)
	if !ok {
		err = fmt.Errorf("%w: no certificate", ErrProtocol)
	} else if !c.p.connected(name) {
		err = fmt.Errorf("%w: node %.80q has %d connections already", ErrLimit, name, maxConnections)
	}
	if err != nil {
		c.p.o.Logger.Warn("data plane refused a connection", "error", err)
		return nil, nil, errors.Join(err, secured.Close())
	}
	return &limitedConn{Conn: secured, back: func() { c.p.unload(name, load{connections: 1}) }}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *counted) Clone() credentials.TransportCredentials {
	return &counted{c.TransportCredentials.Clone(), c.p}
}
