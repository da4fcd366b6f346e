package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/attack"
	"github.com/gnnactor/gnnactor/internal/netlab"
)

// What strangers send to a port.
var floods = []struct {
	name string
	send func(*rand.Rand) []byte
}{
	{"silent", func(*rand.Rand) []byte { return nil }},
	{"half a TLS hello", func(*rand.Rand) []byte { return []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") }},
	{"noise", func(r *rand.Rand) []byte {
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}},
	{"HTTP/2 in plain text", func(*rand.Rand) []byte {
		return []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	}},
	{"gone at once", nil},
}

// flood opens connections to a port and holds them, by turns of every sort.
type flood struct {
	mu    sync.Mutex
	open  []net.Conn
	tally attack.Tally // same: it is held; refused: by the other side
}

func (f *flood) at(c *netCluster, from *netlab.Host, port string, count int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range count {
		sort := floods[i%len(floods)]
		conn, err := from.Dial(c.ctx, "tcp", port)
		o := attack.Same // it is held
		switch {
		case err != nil:
			o = attack.Refused
		case sort.send == nil:
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		default:
			if _, err := conn.Write(sort.send(r)); err != nil {
				o = attack.Refused
			}
		}
		f.mu.Lock()
		if err == nil && sort.send != nil {
			f.open = append(f.open, conn)
		}
		f.tally.Add("port "+port, sort.name, o)
		f.mu.Unlock()
	}
}

func (f *flood) close() {
	for _, conn := range f.open {
		conn.Close()
	}
}

// Every port is flooded with connections that never say who they are: training
// goes on to the bits of one process, and whoever asks for the status hears it.
func TestNetFlood(t *testing.T) {
	const perPort = 500
	c := startStores(t, 4, 1)
	args := netArgs(500)
	steps := func(i int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d-steps", i)) }
	c.trainEach(func(n *netNode) []string { return append(args, "--steps", filepath.Join(c.dir, n.name+"-steps")) })
	c.settled()
	before := c.memory()
	c.fault("flood")
	var f flood
	defer f.close()
	var wg sync.WaitGroup
	began := time.Now()
	for i, n := range c.nodes {
		ports, err := n.host.Listening()
		if err != nil {
			t.Fatal(err)
		}
		for k, p := range ports {
			wg.Go(func() { f.at(c, c.nodes[3].host, p.Addr.String(), perPort, uint64(100*i+k)) })
		}
	}
	wg.Wait()
	t.Logf("%d connections in %v, %d of them held\n%s", f.tally.Total(), time.Since(began).Round(time.Millisecond), len(f.open), &f.tally)
	for i, now := range c.memory() {
		t.Logf("n%d: %d MiB before, %d MiB at most", i, before[i]>>20, now>>20)
		if now > before[i]+256<<20 {
			t.Errorf("n%d took %d MiB more", i, (now-before[i])>>20)
		}
	}
	// The connections are held while the rest goes on.
	n := lineCount(t, steps(0))
	for k := range 5 {
		log := newOutput(t, fmt.Sprint("status", k))
		p, err := c.nodes[3].host.Start(netlab.Command{
			Path: c.self, Dir: c.dir, Env: []string{asCommand + "=1"}, Log: log,
			Args: []string{"cluster", "status", c.endpoints[0], "--certs", c.certs(), "--node", "n3", "--output", "json"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if state, err := p.Wait(c.ctx); err != nil || !state.Success() {
			t.Errorf("status number %d: %v, %v: %s", k, state, err, log)
		}
	}
	for lineCount(t, steps(0)) < n+100 {
		if strings.Contains(c.nodes[0].log.String(), `"parameters_sha256"`) {
			t.Fatal("it was done before the flood: more epochs are needed")
		}
		select {
		case <-c.ctx.Done():
			t.Fatalf("no hundred steps during the flood: %s", ending(c.nodes[0].log.String()))
		case <-time.After(50 * time.Millisecond):
		}
	}
	f.close()
	for i, r := range c.finish(alone(t, args)) {
		if n := len(r.Cluster.Lineage); n > 1 {
			t.Logf("n%d: the run has %d groups", i, n)
		}
	}
}

// memory returns the largest resident size of every trainer so far, in bytes.
func (c *netCluster) memory() (all []int64) {
	c.t.Helper()
	for _, n := range c.nodes {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.PID()))
		if err != nil {
			c.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "VmHWM:")
		var kib int64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, kib<<10)
	}
	return all
}

func lineCount(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}
