package netlab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// deadline bounds each test: nothing here takes a hundredth of it.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// server starts the server program on h and waits until it listens.
func server(ctx context.Context, t *testing.T, h *netlab.Host) *netlab.Process {
	t.Helper()
	out := newLog()
	p, err := h.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=serve"}, Log: out})
	if err != nil {
		t.Fatal(err)
	}
	out.await(ctx, t, "listening")
	return p
}

// client is a connection to the server program.
type client struct {
	net.Conn
	in *bufio.Reader
	t  *testing.T
}

// dial connects from one host to the server program on another and sends its
// first line.
func dial(ctx context.Context, t *testing.T, from, to *netlab.Host, line string) *client {
	t.Helper()
	conn, err := from.Dial(ctx, "tcp", to.Addr().String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	c := &client{conn, bufio.NewReader(conn), t}
	c.say(line)
	return c
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.t.Helper()
	if got, err := c.in.ReadString('\n'); err != nil || got != want+"\n" {
		c.t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// silence checks that nothing is heard for d.
func (c *client) silence(d time.Duration) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
	if b, err := c.in.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %q, %v; want a timeout", b, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(4 * time.Minute)); err != nil {
		c.t.Fatal(err)
	}
}

// TestHosts shows that hosts reach each other, that each has its own ports and
// loopback, and that what they exchange is counted.
func TestHosts(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 3)
	a, b, c := lab.Host(0), lab.Host(1), lab.Host(2)
	server(ctx, t, a)
	server(ctx, t, b) // the same ports on another host

	want := []netlab.Port{
		{Network: "tcp", Addr: netip.MustParseAddrPort("0.0.0.0:7000")},
		{Network: "udp", Addr: netip.MustParseAddrPort("0.0.0.0:7000")},
	}
	for _, h := range []*netlab.Host{a, b} {
		if got, err := h.Listening(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s listens on %v, %v; want %v", h.Name(), got, err, want)
		}
	}
	l, err := c.Listen(ctx, "tcp", "[::1]:7000")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want = []netlab.Port{{Network: "tcp", Addr: netip.MustParseAddrPort("[::1]:7000")}}
	if got, err := c.Listening(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s listens on %v, %v; want %v", c.Name(), got, err, want)
	}

	const bytes = 1 << 20
	before, err := c.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(ctx, t, c, b, fmt.Sprint("give ", bytes))
	if n, err := io.Copy(io.Discard, conn.in); err != nil || n != bytes {
		t.Fatalf("%d bytes, %v; want %d", n, err, bytes)
	}
	after, err := c.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	// Headers are 66 bytes in at most 1514; a little may be sent twice.
	if got := after.Sub(before); got.Received < bytes || got.Received > bytes*3/2 || got.Sent > bytes/10 {
		t.Errorf("%+v for %d bytes received", got, bytes)
	}

	// The lab is not on the test's own network.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if own, ok := addr.(*net.IPNet); ok && own.Contains(b.Addr().AsSlice()) {
			t.Errorf("the test's own address %v is in the network of host %v", own, b.Addr())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, n := range []int{-1, 0, 251} {
		if lab, err := netlab.New(t.Context(), n); err == nil {
			t.Errorf("made a lab of %d hosts", n)
			lab.Close()
		}
	}
}

// TestAbandoned shows that a lab whose process is killed goes: its processes at
// once, the rest, runaway children included, when the next lab is made.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	netlab.ForTest(t, 1) // skips
	out := newLog()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "NETLAB_ROLE=abandon")
	cmd.Stdout, cmd.Stderr = out, out
	// Its heirs hold the pipe.
	cmd.WaitDelay = time.Millisecond
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	namespace := out.await(ctx, t, "namespace")
	leader, runaway := watch(t, out.await(ctx, t, "leader")), watch(t, out.await(ctx, t, "runaway"))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the process that was to be killed ended well")
	}
	ended(ctx, t, leader)
	lab, err := netlab.New(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Close(); err != nil {
		t.Error(err)
	}
	ended(ctx, t, runaway)
	if _, err := os.Stat("/run/netns/" + namespace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace %s: %v; want it gone", namespace, err)
	}
	noGroups(t, namespace)
}

// TestCloseLeavesNothing shows that Close ends children that left their group,
// removes the namespaces, and may be called twice.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 1)
	host := lab.Host(0)
	out := newLog()
	if _, err := host.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=family"}, Log: out, Restart: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	runaway := watch(t, out.await(ctx, t, "runaway"))
	if err := host.Latency(time.Millisecond); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := lab.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ended(ctx, t, runaway)
	if _, err := os.Stat("/run/netns/" + host.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace %s: %v; want it gone", host.Name(), err)
	}
	if _, err := host.Start(netlab.Command{Path: os.Args[0]}); err == nil {
		t.Error("a closed lab starts a process")
	}
	if err := host.Cut(); err == nil {
		t.Error("a closed lab cuts a host")
	}
	if _, err := host.Listening(); err == nil {
		t.Error("a closed lab lists ports")
	}
}

// watch returns a descriptor of the process with the given id.
func watch(t *testing.T, pid string) int {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		t.Fatalf("process %d: %v", n, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// ended waits until a watched process has ended.
func ended(ctx context.Context, t *testing.T, pidfd int) {
	t.Helper()
	end, _ := ctx.Deadline()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		switch {
		case n == 1:
			return
		case !errors.Is(err, unix.EINTR):
			t.Fatalf("the process lives on: %v", err)
		}
	}
}
