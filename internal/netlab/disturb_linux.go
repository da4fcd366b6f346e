package netlab

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// disturbance is what holds for a host at present; the lab's mu guards it.
type disturbance struct {
	cut     bool
	cutFrom map[*Host]bool
	loss    int   // in 1/10000
	rate    int64 // bit/s; 0: no bound
	delay   time.Duration
	relay   *relay // delays packets where the kernel cannot
}

const (
	lossUnit = 10000 // a loss of 1
	// minBurst holds one large send, so that the bucket need not cut it up.
	minBurst = 64 << 10
	// maxRate keeps tbf's arithmetic within 32 bits of the burst.
	maxRate = 100_000_000_000
	// maxDelay keeps what is in flight within the relay's queue.
	maxDelay = 10 * time.Second
)

// Cut drops every IP packet between the host and the peers given, in both
// directions; without peers, between it and everyone. Peers that are cut off
// already stay so. Nobody is told: connections stay open and dials time out.
func (h *Host) Cut(peers ...*Host) error {
	return h.disturb(func(d *disturbance) error {
		if len(peers) == 0 {
			d.cut = true
		}
		from := map[*Host]bool{}
		for peer := range d.cutFrom {
			from[peer] = true
		}
		for _, peer := range peers {
			if peer.lab != h.lab || peer == h {
				return fmt.Errorf("netlab: cannot cut %s from %s: want another host of the same lab", h.Name(), peer.Name())
			}
			from[peer] = true
		}
		d.cutFrom = from
		return nil
	}, h.lab.filter)
}

// Mend undoes every Cut of this host; those of its peers stay.
func (h *Host) Mend() error {
	return h.disturb(func(d *disturbance) error {
		d.cut, d.cutFrom = false, nil
		return nil
	}, h.lab.filter)
}

// Loss drops each IP packet to and from the host with a probability of so many
// percent, at random: between two hosts that both lose, a packet must survive
// twice. The resolution is 0.01 %. 0 ends it.
func (h *Host) Loss(percent float64) error {
	return h.disturb(func(d *disturbance) error {
		if !(percent >= 0 && percent <= 100) {
			return fmt.Errorf("netlab: a loss of %v %% on %s; want 0 to 100", percent, h.Name())
		}
		d.loss = int(math.Round(percent / 100 * lossUnit))
		if d.loss == 0 && percent > 0 {
			return fmt.Errorf("netlab: a loss of %v %% on %s; the least is %v", percent, h.Name(), 100.0/lossUnit)
		}
		return nil
	}, h.lab.filter)
}

// Bandwidth bounds what the host sends, and what it receives, to bits per second
// each, by token buckets of 2 ms (64 KiB at least) with queues of 50 ms; the
// switch drops what does not fit. 0 ends it.
func (h *Host) Bandwidth(bits int64) error {
	return h.disturb(func(d *disturbance) error {
		if bits != 0 && (bits < 8000 || bits > maxRate) {
			return fmt.Errorf("netlab: a bandwidth of %d bit/s on %s; want 8000 to %d, or 0 for no bound", bits, h.Name(), int64(maxRate))
		}
		d.rate = bits
		return nil
	}, h.shape)
}

// Latency delays each packet that leaves the host by d, and with it every round
// trip; packets keep their order. The kernel's netem does it, where there is
// one, else a relay within this process, which a stopped or overloaded test
// process delays further. What is in the relay when it is removed is lost. 0 ends
// it.
func (h *Host) Latency(d time.Duration) error {
	return h.disturb(func(now *disturbance) error {
		if d < 0 || d > maxDelay {
			return fmt.Errorf("netlab: a latency of %v on %s; want 0 to %v", d, h.Name(), maxDelay)
		}
		now.delay = d
		return nil
	}, func(ctx context.Context) error {
		if h.lab.netem {
			return h.shape(ctx)
		}
		return h.divert(ctx)
	})
}

// disturb changes what holds for the host and applies it; if either fails, what
// held before is kept on record.
func (h *Host) disturb(change func(*disturbance) error, apply func(context.Context) error) error {
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	if h.lab.closed {
		return fmt.Errorf("netlab: host %s: the lab is closed", h.Name())
	}
	before := h.disturbance
	if err := change(&h.disturbance); err != nil {
		h.disturbance = before
		return err
	}
	if err := apply(context.Background()); err != nil {
		before.relay = h.relay
		h.disturbance = before
		return err
	}
	return nil
}

// filter rewrites the switch's rules, in one transaction. A host's port is named
// once on a packet's way in and once on its way out, also where it hangs behind
// a relay.
func (l *Lab) filter(ctx context.Context) error {
	var rules strings.Builder
	rules.WriteString("table bridge lab\ndelete table bridge lab\ntable bridge lab {\nchain forward {\ntype filter hook forward priority 0\n")
	for _, h := range l.hosts {
		for _, side := range []struct{ port, peer string }{{"iifname", "daddr"}, {"oifname", "saddr"}} {
			if h.cut || h.loss == lossUnit { // numgen does not compare with what it never yields
				fmt.Fprintf(&rules, "%s %q ether type ip drop\n", side.port, h.port())
			}
			for _, peer := range l.hosts {
				if h.cutFrom[peer] {
					fmt.Fprintf(&rules, "%s %q ip %s %s drop\n", side.port, h.port(), side.peer, peer.addr)
				}
			}
			if h.loss > 0 && h.loss < lossUnit {
				fmt.Fprintf(&rules, "%s %q ether type ip numgen random mod %d < %d drop\n", side.port, h.port(), lossUnit, h.loss)
			}
		}
	}
	rules.WriteString("}\n}\n")
	return tool(ctx, rules.String(), "ip", "netns", "exec", l.names.hub(), "nft", "-f", "-")
}

// shape rebuilds the queues of both ends of the host's cable: sending, netem
// before the bucket; receiving, a bucket.
func (h *Host) shape(ctx context.Context) error {
	bucket := ""
	if h.rate > 0 {
		bytes := h.rate / 8
		burst := max(bytes/500, minBurst)
		bucket = fmt.Sprintf("tbf rate %dbit burst %d limit %d", h.rate, burst, burst+bytes/20)
	}
	var up, down strings.Builder
	// Replacing the root by the default first leaves nothing of the old queues.
	up.WriteString("qdisc replace dev eth0 root pfifo\nqdisc del dev eth0 root\n")
	parent := "root"
	if h.lab.netem && h.delay > 0 {
		fmt.Fprintf(&up, "qdisc add dev eth0 root handle 1: netem delay %dus limit %d\n", h.delay.Microseconds(), relayFrames)
		parent = "parent 1:1"
	}
	fmt.Fprintf(&down, "qdisc replace dev %s root pfifo\nqdisc del dev %s root\n", h.port(), h.port())
	if bucket != "" {
		fmt.Fprintf(&up, "qdisc add dev eth0 %s handle 2: %s\n", parent, bucket)
		fmt.Fprintf(&down, "qdisc add dev %s root handle 2: %s\n", h.port(), bucket)
	}
	if err := tool(ctx, up.String(), "tc", "-n", h.Name(), "-batch", "-"); err != nil {
		return err
	}
	return tool(ctx, down.String(), "tc", "-n", h.lab.names.hub(), "-batch", "-")
}
