package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// checkPorts lists what listens, and knocks there without a certificate, with
// one of another authority, and in plain text.
func (c *netCluster) checkPorts() {
	c.t.Helper()
	foreign := filepath.Join(c.dir, "foreign")
	mustInvoke(c.t, "cluster", "certs", foreign, "n0="+c.nodes[0].host.Addr().String())
	files := transport.NodeFiles(foreign, "n0")
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		c.t.Fatal(err)
	}
	for i, n := range c.nodes {
		ports, err := n.host.Listening()
		if err != nil {
			c.t.Fatal(err)
		}
		want := []uint16{7402, 7403}
		if i < len(c.stores) {
			want = []uint16{7400, 7401, 7402, 7403}
		}
		if got := portNumbers(ports); !slices.Equal(got, want) {
			c.t.Errorf("%s listens at %v, not at %v alone", n.name, ports, want)
		}
		for _, p := range ports {
			for _, config := range []*tls.Config{
				nil,
				{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
				{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}},
			} {
				if err := c.speakHTTP2(p.Addr.String(), config); err != nil {
					c.t.Errorf("%s at %v, certificates %v: %v", n.name, p.Addr, config != nil && len(config.Certificates) > 0, err)
				}
			}
		}
	}
}

// speakHTTP2 asks a port what a client of HTTP/2 would; nil means that the port hung
// up without an answer.
func (c *netCluster) speakHTTP2(address string, config *tls.Config) error {
	conn, err := c.nodes[0].host.Dial(c.ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if config != nil {
		conn = tls.Client(conn, config)
	}
	// The preface with empty settings: a server that takes it answers with its own.
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return nil // refused in the handshake
	}
	b, err := io.ReadAll(io.LimitReader(conn, 9))
	// A server of plain HTTP/1 would say so; settings are frames of type 4.
	if len(b) == 9 && b[3] == 4 {
		return fmt.Errorf("it answered with settings, % x", b)
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return fmt.Errorf("it neither answered nor hung up")
	}
	return nil
}
