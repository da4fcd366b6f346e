package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Lab is a switch with hosts on it. Its methods, and those of its hosts and
// processes, may be called from several goroutines.
type Lab struct {
	names    names
	hosts    []*Host
	switchNS int // file descriptor
	starter  *starter
	netem    bool

	mu     sync.Mutex // held while the network changes
	closed bool
}

// A Host is one machine of a lab.
type Host struct {
	lab   *Lab
	index int // from 0
	addr  netip.Addr
	ns    int // file descriptor
	disturbance

	mu        sync.Mutex
	processes []*Process
	groups    []string // control groups that bound the host, once something does
}

// labs counts those of this process.
var labs atomic.Uint32

// New makes a lab of n hosts, in which everyone reaches everyone. ctx bounds the
// making only; the caller must Close the lab.
func New(ctx context.Context, n int) (*Lab, error) {
	if n < 1 || n > maxHosts {
		return nil, fmt.Errorf("netlab: %d hosts; a lab has 1 to %d", n, maxHosts)
	}
	f := probe()
	if f.err != nil {
		return nil, f.err
	}
	if err := removeStale(ctx); err != nil {
		return nil, err
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	l := &Lab{names: names{owner: self, lab: labs.Add(1)}, switchNS: -1, netem: f.netem}
	// Labs do not meet; different addresses only tell their logs apart.
	subnet := uint32(self.pid)*31 + l.names.lab
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, byte(subnet >> 8), byte(subnet), byte(i + 1)})
		l.hosts = append(l.hosts, &Host{lab: l, index: i, addr: addr, ns: -1})
	}
	l.starter = newStarter()
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// build makes the namespaces and wires them.
func (l *Lab) build(ctx context.Context) error {
	var add strings.Builder
	fmt.Fprintf(&add, "netns add %s\n", l.names.hub())
	for _, h := range l.hosts {
		fmt.Fprintf(&add, "netns add %s\n", h.Name())
	}
	if err := tool(ctx, add.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	var err error
	if l.switchNS, err = openNamespace(l.names.hub()); err != nil {
		return err
	}
	// The switch takes no part in what it carries.
	if err := inside(l.switchNS, func() error { return disableIPv6("default") }); err != nil {
		return err
	}
	var wire strings.Builder
	wire.WriteString("link add sw type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set sw up\n")
	for _, h := range l.hosts {
		fmt.Fprintf(&wire, "link add %s type veth peer name eth0 address %s netns %s\n", h.port(), h.mac(), h.Name())
		fmt.Fprintf(&wire, "link set %s master sw up\n", h.port())
	}
	if err := tool(ctx, wire.String(), "ip", "-n", l.names.hub(), "-batch", "-"); err != nil {
		return err
	}
	for _, h := range l.hosts {
		if h.ns, err = openNamespace(h.Name()); err != nil {
			return err
		}
		if err := inside(h.ns, func() error { return disableIPv6("eth0") }); err != nil {
			return err
		}
		var up strings.Builder
		fmt.Fprintf(&up, "link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n", h.addr)
		for _, peer := range l.hosts {
			if peer != h {
				fmt.Fprintf(&up, "neigh add %s lladdr %s dev eth0 nud permanent\n", peer.addr, peer.mac())
			}
		}
		if err := tool(ctx, up.String(), "ip", "-n", h.Name(), "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}

// Hosts returns all hosts, in the order of their addresses.
func (l *Lab) Hosts() []*Host { return append([]*Host(nil), l.hosts...) }

// Host returns host i, counted from 0; it panics if there is none.
func (l *Lab) Host(i int) *Host { return l.hosts[i] }

// Close kills every process of every host and removes the lab. It returns when
// nothing is left; a second call does nothing. No other method may be running.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	all := []string{l.names.hub()}
	var processes []*Process
	for _, h := range l.hosts {
		all = append(all, h.Name())
		h.mu.Lock()
		processes = append(processes, h.processes...)
		h.mu.Unlock()
	}
	for _, p := range processes {
		p.leave()
	}
	ctx, cancel := bounded(context.Background())
	defer cancel()
	if err := killInside(ctx, all); err != nil {
		return err // waiting for them would be for ever
	}
	for _, p := range processes {
		<-p.done
	}
	l.starter.stop()
	for _, h := range l.hosts {
		if h.relay != nil {
			h.relay.close()
		}
		closeNamespace(&h.ns)
	}
	closeNamespace(&l.switchNS)
	return removeNamespaces(ctx, all)
}

// Name returns the name of the host's namespace, as ip netns exec takes it.
func (h *Host) Name() string { return h.lab.names.host(h.index) }

// Addr returns the host's address in the lab.
func (h *Host) Addr() netip.Addr { return h.addr }

// port is the host's socket on the switch: an interface of the switch's namespace.
func (h *Host) port() string { return fmt.Sprintf("h%d", h.index+1) }

func (h *Host) mac() string { return fmt.Sprintf("02:00:00:00:00:%02x", h.index+1) }

// Do calls f on the host: sockets that f opens, and what it reads below
// /proc/thread-self/net, are the host's. That holds for f's own goroutine, which
// keeps its thread until f returns, not for goroutines it starts.
func (h *Host) Do(f func() error) error {
	if h.ns < 0 {
		return fmt.Errorf("netlab: host %s: the lab is closed", h.Name())
	}
	return inside(h.ns, f)
}

// Dial connects from the host to address, which must be numeric.
func (h *Host) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = h.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on the host at address, which must be numeric.
func (h *Host) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = h.Do(func() error {
		l, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// disableIPv6 keeps the kernel from sending its own IPv6 packets on a device of
// the calling thread's namespace.
func disableIPv6(device string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6 at all
		return fmt.Errorf("netlab: %w", err)
	}
	return nil
}

func openNamespace(name string) (int, error) {
	fd, err := unix.Open(netnsFolder+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("netlab: namespace %s: %w", name, err)
	}
	return fd, nil
}

func closeNamespace(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// inside calls f with the calling goroutine's thread in namespace ns.
func inside(ns int, f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("netlab: /proc/thread-self/ns/net: %w", err)
	}
	defer func() {
		// A thread that cannot return stays locked and ends with its goroutine.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		unix.Close(home)
	}()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("netlab: cannot enter a network namespace: %w", err)
	}
	return f()
}
