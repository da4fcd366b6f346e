// Package netlab is the project's test kit for several hosts on one machine.
//
// A [Lab] is a switch with hosts on it. Every host is a network namespace of
// its own, with an Ethernet interface eth0, an address 10.x.y.i, its own ports
// and its own loopback; the switch is a bridge in one more namespace. Nothing
// is changed outside of these namespaces: no interface, route or firewall rule
// of the machine, so labs may stand side by side, and so may the tests of
// several packages.
//
//	lab := netlab.ForTest(t, 2) // skips where the machine cannot
//	server, client := lab.Host(0), lab.Host(1)
//	p, err := server.Start(netlab.Command{Path: binary, Args: args, Dir: dir, Log: log})
//	…
//	err = client.Loss(5) // percent
//	p.Signal(syscall.SIGKILL)
//
// Processes that [Host.Start] starts are direct children of the test: signals,
// SIGSTOP included, and exit statuses are the process's own. They die with the
// lab, and with the test's own process, however that ends.
//
// [Host.Cut], [Host.Loss], [Host.Bandwidth] and [Host.Latency] disturb the
// network. They combine, and each holds until it is undone. Cut and Loss work in
// the switch, on IP packets; hosts know each other's Ethernet addresses from the
// start, so that no lost ARP turns a silent loss into an error.
//
// [Host.SetCPU] and [Host.SetMemory] bound what a host's processes take of the
// machine, while they run, by control groups of cgroup v1 or v2; [NeedLimits] skips
// where there are none.
//
// A lab is removed by [Lab.Close], which ForTest leaves to the test's cleanup. A
// run that was killed cannot; the next lab made on the machine finds what it
// left, by the process id and start time in the namespaces' names (ip netns
// list), kills what still runs in there and removes it, control groups included.
//
// Linux only, as root, with Debian's iproute2 and nftables; elsewhere every call
// returns [ErrUnsupported] and [Available] says why.
package netlab

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"
)

// ErrUnsupported says that this system has no network namespaces.
var ErrUnsupported = errors.New("netlab: hosts are network namespaces, which only Linux has; run these tests on Linux")

// Require is the environment variable that, set to 1, lets [ForTest] fail a test
// where it would skip it: for machines that ought to have what it takes. Tests that
// take long run when it is set to anything, and skip as others do if that is not 1.
const Require = "GNNACTOR_NETLAB"

// ForTest returns a lab of n hosts that is closed when the test ends. Where
// [Available] says no, it skips the test with the reason, or fails it if the
// environment has GNNACTOR_NETLAB=1.
func ForTest(t testing.TB, n int) *Lab {
	t.Helper()
	need(t, Available())
	lab, err := New(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// NeedLimits skips a test where [Limits] says that hosts cannot be bounded, with the
// reason, or fails it if the environment has GNNACTOR_NETLAB=1.
func NeedLimits(t testing.TB) {
	t.Helper()
	need(t, Limits())
}

// need skips or fails a test that lacks something.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv(Require) == "1":
		t.Fatalf("%s=1, but %v", Require, err)
	default:
		t.Skip(err)
	}
}

// A Command says what [Host.Start] runs.
type Command struct {
	Path string   // the program, looked up in PATH if it has no slash
	Args []string // without the program's name
	Dir  string   // working directory; empty: the test's own
	Env  []string // key=value, added to the test's own environment

	// Log receives standard output and error as they come, from one goroutine at
	// a time; nil discards them. An *os.File is handed to the process itself.
	Log io.Writer

	// Restart, if positive, starts the program again, with the same arguments in
	// the same directory, that long after it failed: systemd's
	// Restart=on-failure with RestartSec. Exit status 0 and death by SIGHUP,
	// SIGINT, SIGTERM or SIGPIPE are no failures.
	Restart time.Duration
}

// A Port is a socket that waits for peers: a listening TCP socket, or a UDP
// socket bound to no peer.
type Port struct {
	Network string         // "tcp" or "udp"
	Addr    netip.AddrPort // 0.0.0.0 and :: stand for every address
}

// Traffic counts the bytes that went through a host's eth0, Ethernet headers
// included, in frames as the kernel hands them over: segments of one large send
// count one header. The loopback is not counted.
type Traffic struct{ Sent, Received uint64 }

// Sub returns what was added since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{t.Sent - before.Sent, t.Received - before.Received}
}

// maxHosts keeps addresses within one /24.
const maxHosts = 250

// toolTimeout bounds each run of ip, tc and nft: they answer in milliseconds.
const toolTimeout = 20 * time.Second

// bounded gives ctx the tools' time limit.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, toolTimeout)
}
