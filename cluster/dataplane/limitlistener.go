package dataplane

import (
	"net"
	"sync"
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
