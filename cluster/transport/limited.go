package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// waiting is how many connections a port lets try to authenticate at a time.
const waiting = 512

// limited lets so many connections in, and closes what comes beyond: a peer that
// connects again and again cannot use up the descriptors. Those that have not
// authenticated yet do not count among them, but have room of their own. When that is
// full, one of them, by chance, makes room for the next: so a flood of strangers, which
// stay, keeps out nobody who is quick to show a certificate.
type limited struct {
	net.Listener
	most int

	mu      sync.Mutex
	waiting []*waitingConn
	in      int
	by      map[string]int // of those that are in, how many have a certificate
}

func (l *limited) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &waitingConn{Conn: raw, l: l}
	l.mu.Lock()
	var out *waitingConn
	if len(l.waiting) == waiting {
		out = l.waiting[rand.IntN(waiting)]
		out.stopWaiting()
	}
	c.at = len(l.waiting)
	l.waiting = append(l.waiting, c)
	l.mu.Unlock()
	if out != nil {
		// What closing a connection that is refused reports matters to nobody.
		_ = out.Conn.Close()
	}
	return c, nil
}

// waitingConn is a connection that waits to be let in, or has been.
type waitingConn struct {
	net.Conn
	l  *limited
	at int    // among those that wait; -1: it does not
	in bool   // it counts,
	by string // and whose it is
}

// stopWaiting takes it from those that wait. The listener's lock is held.
func (c *waitingConn) stopWaiting() {
	all := c.l.waiting
	last := all[len(all)-1]
	all[c.at], last.at = last, c.at
	c.l.waiting, c.at = all[:len(all)-1], -1
}

// errFull is what a connection beyond the limit ends with.
var errFull = errors.New("transport: there are too many connections")

// admit lets a connection in that has authenticated, if its node has fewer than most.
func (c *waitingConn) admit(node string, most int) error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.by[node] >= most:
		return fmt.Errorf("transport: node %.80q has %d connections already", node, most)
	case c.at < 0 || l.in == l.most:
		return errFull
	}
	c.stopWaiting()
	l.in++
	l.by[node]++
	c.in, c.by = true, node
	return nil
}

// Close implements net.Conn.
func (c *waitingConn) Close() error {
	c.l.mu.Lock()
	if c.at >= 0 {
		c.stopWaiting()
	}
	if c.in {
		c.in = false
		c.l.in--
		if c.l.by[c.by]--; c.l.by[c.by] == 0 {
			delete(c.l.by, c.by)
		}
	}
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// open lets everybody in, in plaintext.
type open struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (o open) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := conn.(*waitingConn).admit("", math.MaxInt); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return o.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (o open) Clone() credentials.TransportCredentials { return open{o.TransportCredentials.Clone()} }

// counted lets each node have a few connections at a time, so that one of them
// cannot take all that there are.
type counted struct {
	credentials.TransportCredentials
	log  *slog.Logger
	most int
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *counted) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	name, ok := NodeName(info)
	if !ok {
		err = errors.New("transport: no certificate")
	} else {
		err = conn.(*waitingConn).admit(name, c.most)
	}
	if err != nil {
		c.log.Warn("refused a connection", "error", err)
		return nil, nil, errors.Join(err, secured.Close())
	}
	return secured, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *counted) Clone() credentials.TransportCredentials {
	d := *c
	d.TransportCredentials = c.TransportCredentials.Clone()
	return &d
}
