package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// relayFrames bounds what a relay holds; more is dropped, as a router would.
	// At 1500 bytes a frame it is 2 Gbit/s for 0.2 s.
	relayFrames = 1 << 15
	maxFrame    = 1 << 16
)

// relay carries Ethernet frames between two TAP devices, those from near to far
// after a delay:
//
//	host eth0 ── h1 ─(bridge b1)─ near1 ══ relay ══ far1 ─(bridge sw)─ …
//
// The devices offer no offloads, so the kernel has cut and checksummed what the
// relay reads. Being the process's own, they go with it.
type relay struct {
	near, far *os.File
	delay     atomic.Int64 // nanoseconds
	quit      chan struct{}
	running   sync.WaitGroup
}

type frame struct {
	data []byte
	due  time.Time
}

// newRelay makes both devices in namespace ns and begins to carry frames.
func newRelay(ns int, near, far string) (*relay, error) {
	r := &relay{quit: make(chan struct{})}
	err := inside(ns, func() (err error) {
		if r.near, err = openTAP(near); err != nil {
			return err
		}
		if r.far, err = openTAP(far); err != nil {
			r.near.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	waiting := make(chan frame, relayFrames)
	r.running.Add(3)
	go r.receive(waiting)
	go r.deliver(waiting)
	go r.pass()
	return r, nil
}

// openTAP makes a TAP device in the calling thread's namespace. It goes when the
// file is closed.
func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("netlab: /dev/net/tun: %w; latency without netem needs the tun module: modprobe tun", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlab: TAP device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil // after TUNSETIFF: before, it cannot be polled
}

// receive stamps what the host sends.
func (r *relay) receive(waiting chan<- frame) {
	defer r.running.Done()
	defer close(waiting)
	buf := make([]byte, maxFrame)
	for {
		n, err := r.near.Read(buf)
		if err != nil {
			return // closed
		}
		due := time.Now().Add(time.Duration(r.delay.Load()))
		select {
		case waiting <- frame{append([]byte(nil), buf[:n]...), due}:
		default:
		}
	}
}

// deliver hands frames on when they are due, in order.
func (r *relay) deliver(waiting <-chan frame) {
	defer r.running.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for f := range waiting {
		if wait := time.Until(f.due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-r.quit:
				return
			}
		}
		if _, err := r.far.Write(f.data); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// pass carries what the host receives.
func (r *relay) pass() {
	defer r.running.Done()
	buf := make([]byte, maxFrame)
	for {
		n, err := r.far.Read(buf)
		if err != nil {
			return // closed
		}
		if _, err := r.near.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// close removes the devices and returns when the goroutines have ended.
func (r *relay) close() {
	close(r.quit)
	r.near.Close()
	r.far.Close()
	r.running.Wait()
}

// divert puts the host's port behind a relay, sets the relay's delay, or takes
// it away, as h.delay asks. The port changes its bridge in one step; the host
// sees none of it.
func (h *Host) divert(ctx context.Context) error {
	hub := h.lab.names.hub()
	mini, near, far := fmt.Sprintf("b%d", h.index+1), fmt.Sprintf("near%d", h.index+1), fmt.Sprintf("far%d", h.index+1)
	switch {
	case h.delay == 0 && h.relay == nil:
		return nil
	case h.delay == 0:
		// The devices, too: closing their files would not take them away at once if
		// another goroutine is just starting a process, which has the files until it runs.
		err := tool(ctx, fmt.Sprintf("link set %s master sw\nlink del %s\nlink del %s\nlink del %s\n", h.port(), mini, near, far), "ip", "-n", hub, "-batch", "-")
		if err == nil {
			h.relay.close()
			h.relay = nil
		}
		return err
	case h.relay != nil:
		h.relay.delay.Store(int64(h.delay))
		return nil
	}
	r, err := newRelay(h.lab.switchNS, near, far)
	if err != nil {
		return err
	}
	r.delay.Store(int64(h.delay))
	err = tool(ctx, fmt.Sprintf(`link add %[1]s type bridge stp_state 0 forward_delay 0 mcast_snooping 0
link set %[2]s txqueuelen 10000 master %[1]s up
link set %[3]s txqueuelen 10000 master sw up
link set %[1]s up
link set %[4]s master %[1]s
`, mini, near, far, h.port()), "ip", "-n", hub, "-batch", "-")
	if err != nil {
		// Whatever was done of it: undoing what was not fails, harmlessly.
		_ = tool(ctx, fmt.Sprintf("link set %s master sw\nlink del %s\n", h.port(), mini), "ip", "-n", hub, "-force", "-batch", "-")
		r.close()
		return err
	}
	h.relay = r
	return nil
}
