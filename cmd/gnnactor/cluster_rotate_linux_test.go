package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// While four hosts train, the cluster's authority is replaced, and with it every
// certificate: first all know both authorities, then each node gets a certificate
// of the new one, then the old one is forgotten. A node that dies after that
// comes back with what is new; whoever has a certificate of the old authority is
// refused at every port. The bits are those of one process.
func TestNetRotate(t *testing.T) {
	c := startStores(t, 4, 3)
	args := netArgs(rotateEpochs)
	c.train(args...)
	c.settled()
	next := filepath.Join(c.dir, "next")
	makeCerts := []string{"cluster", "certs", next}
	for _, n := range c.nodes {
		makeCerts = append(makeCerts, n.name+"="+n.host.Addr().String())
	}
	mustInvoke(t, makeCerts...)
	read := func(path ...string) []byte {
		b, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	authority := filepath.Join(c.certs(), transport.AuthorityCert)
	old, fresh := read(authority), read(next, transport.AuthorityCert)
	leaf := transport.NodeFiles(c.certs(), c.nodes[0].name)
	former, err := tls.X509KeyPair(read(leaf.Cert), read(leaf.Key))
	if err != nil {
		t.Fatal(err)
	}
	put(t, authority, append(append([]byte{}, old...), fresh...))
	c.storesBegun(2)
	for _, n := range c.nodes {
		from, to := transport.NodeFiles(next, n.name), transport.NodeFiles(c.certs(), n.name)
		put(t, to.Key, read(from.Key))
		put(t, to.Cert, read(from.Cert))
	}
	put(t, authority, fresh)
	c.storesBegun(3)
	// Its connections, and those of its store, are all new.
	group := c.settled()
	starts := c.nodes[3].process.Starts()
	c.kill(3)
	c.awaitStep(c.nodes[0], group)
	if err := c.nodes[3].process.Await(c.ctx, starts+1); err != nil {
		t.Fatal(err)
	}
	c.settled()
	c.checkPorts()
	c.refused(former)
	c.finish(alone(t, args))
	for i, n := range c.nodes {
		want := 1
		if i == 3 {
			want = 2
		}
		if got := n.process.Starts(); got != want {
			t.Errorf("%s was started %d times, for %d: its log ends\n%s", n.name, got, want, ending(n.log.String()))
		}
	}
}

// rotateEpochs take about a minute.
const rotateEpochs = 900

// put replaces a file as a whole.
func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// storesBegun waits until every store has begun so many times.
func (c *netCluster) storesBegun(times int) {
	c.t.Helper()
	for i, log := range c.storeLogs {
		if err := log.await(c.ctx, func(s string) bool { return strings.Count(s, "serves at") >= times }); err != nil {
			c.t.Fatalf("store %d has not started anew: %v", i, err)
		}
	}
}

// refused knocks with a certificate at every port.
func (c *netCluster) refused(pair tls.Certificate) {
	c.t.Helper()
	for _, n := range c.nodes {
		ports, err := n.host.Listening()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, p := range ports {
			if err := c.speakHTTP2(p.Addr.String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}}); err != nil {
				c.t.Errorf("%s at %v, a certificate of the former authority: %v", n.name, p.Addr, err)
			}
		}
	}
}
