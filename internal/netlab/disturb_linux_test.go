package netlab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// unanswered checks that a dial from one host to the other is left without answer.
func unanswered(ctx context.Context, t *testing.T, from, to *netlab.Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", to.Addr().String()+":7000")
	var timeout net.Error
	if err == nil {
		conn.Close()
		t.Fatalf("%s reaches %s", from.Name(), to.Name())
	}
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("dialling from %s to %s: %v; want a timeout", from.Name(), to.Name(), err)
	}
}

// TestCut shows that a cut host is silent, that its connections outlive the cut,
// and that a cut between two hosts leaves the third alone.
func TestCut(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 3)
	a, b, c := lab.Host(0), lab.Host(1), lab.Host(2)
	server(ctx, t, a)
	server(ctx, t, c)
	conn := dial(ctx, t, b, a, "echo")
	conn.say("before")
	conn.hear("before")

	if err := a.Cut(); err != nil {
		t.Fatal(err)
	}
	unanswered(ctx, t, b, a)
	unanswered(ctx, t, a, c)
	conn.say("kept")
	conn.silence(100 * time.Millisecond)
	dial(ctx, t, b, c, "echo")
	if err := a.Mend(); err != nil {
		t.Fatal(err)
	}
	conn.hear("kept") // TCP sends it again
	dial(ctx, t, b, a, "echo")

	if err := a.Cut(b); err != nil {
		t.Fatal(err)
	}
	unanswered(ctx, t, b, a)
	dial(ctx, t, c, a, "echo")
	dial(ctx, t, a, c, "echo")
	if err := a.Mend(); err != nil {
		t.Fatal(err)
	}
	dial(ctx, t, b, a, "echo")

	if err := a.Cut(a); err == nil {
		t.Error("a host is cut off from itself")
	}
}

// TestLoss sends 2000 datagrams through a loss of 30 %: the number that arrives
// is binomial, with mean 1400 and standard deviation 20.5. The kernel's dice
// cannot be seeded; six deviations are left or right of it once in 5·10^8 runs.
func TestLoss(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 2)
	a, b := lab.Host(0), lab.Host(1)
	server(ctx, t, a)
	if err := b.Loss(30); err != nil {
		t.Fatal(err)
	}
	const sent, mean, deviation = 2000, 1400, 20.5
	if got := float64(datagrams(ctx, t, b, a, sent)); got < mean-6*deviation || got > mean+6*deviation {
		t.Errorf("%v of %d datagrams arrived; want %d ± %.0f", got, sent, mean, 6*deviation)
	}
	if err := b.Loss(100); err != nil {
		t.Fatal(err)
	}
	unanswered(ctx, t, b, a)
	if err := b.Loss(0); err != nil {
		t.Fatal(err)
	}
	if got := datagrams(ctx, t, b, a, sent); got != sent {
		t.Errorf("%d of %d datagrams arrived without loss", got, sent)
	}
	for _, percent := range []float64{-1, 100.1, 0.001} {
		if err := b.Loss(percent); err == nil {
			t.Errorf("a loss of %v %% was taken", percent)
		}
	}
}

// datagrams sends n datagrams and returns how many arrived.
func datagrams(ctx context.Context, t *testing.T, from, to *netlab.Host, n int) int {
	t.Helper()
	udp, err := from.Dial(ctx, "udp", to.Addr().String()+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for range n {
		if _, err := udp.Write([]byte("one of many")); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := dial(ctx, t, from, to, "count").in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	got, err := strconv.Atoi(strings.TrimSpace(answer))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestBandwidth sends 1 MiB each way at 20 Mbit/s: the bits that arrived are at
// most the rate times the time, and the bucket.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 2)
	a, b := lab.Host(0), lab.Host(1)
	server(ctx, t, a)
	const rate, bytes, bucket = 20_000_000, 1 << 20, 64 << 10
	if err := b.Bandwidth(rate); err != nil {
		t.Fatal(err)
	}
	bounded := func(direction string, began time.Time) {
		if most := bucket*8 + rate*time.Since(began).Seconds(); bytes*8 > most {
			t.Errorf("%s %d bits in %v at %d bit/s; want at most %.0f", direction, bytes*8, time.Since(began), rate, most)
		}
	}
	began := time.Now()
	conn := dial(ctx, t, b, a, fmt.Sprint("take ", bytes))
	if _, err := conn.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.in.ReadByte(); err != nil {
		t.Fatal(err)
	}
	bounded("sent", began)

	began = time.Now()
	conn = dial(ctx, t, b, a, fmt.Sprint("give ", bytes))
	if _, err := io.CopyN(io.Discard, conn.in, bytes); err != nil {
		t.Fatal(err)
	}
	bounded("received", began)

	if err := b.Bandwidth(0); err != nil {
		t.Fatal(err)
	}
	for _, bits := range []int64{-1, 7999, 1 << 50} {
		if err := b.Bandwidth(bits); err == nil {
			t.Errorf("a bandwidth of %d bit/s was taken", bits)
		}
	}
}

// TestLatency shows that a round trip takes at least what was asked, while a
// connection outlives every change, for both ways of doing it.
func TestLatency(t *testing.T) {
	t.Parallel()
	for _, netem := range []bool{false, true} {
		t.Run(fmt.Sprint("netem=", netem), func(t *testing.T) {
			t.Parallel()
			ctx := deadline(t)
			lab := netlab.ForTest(t, 2)
			if has := netlab.SetNetem(lab, netem); netem && !has {
				t.Skip("this kernel has no netem: CONFIG_NET_SCH_NETEM")
			}
			a, b := lab.Host(0), lab.Host(1)
			server(ctx, t, a)
			conn := dial(ctx, t, b, a, "echo")
			for _, d := range []time.Duration{20 * time.Millisecond, 40 * time.Millisecond, 0, 5 * time.Millisecond} {
				if err := b.Latency(d); err != nil {
					t.Fatal(err)
				}
				for i := range 4 {
					text := fmt.Sprint(d, " ", i)
					began := time.Now()
					conn.say(text)
					conn.hear(text)
					if took := time.Since(began); took < d {
						t.Errorf("a round trip took %v; want at least %v", took, d)
					}
				}
			}
			// Both ways, with everything else.
			for _, err := range []error{a.Latency(10 * time.Millisecond), b.Bandwidth(50_000_000), a.Bandwidth(50_000_000), b.Loss(1)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			const bytes = 256 << 10
			take := dial(ctx, t, b, a, fmt.Sprint("take ", bytes))
			if _, err := take.Write(make([]byte, bytes)); err != nil {
				t.Fatal(err)
			}
			if _, err := take.in.ReadByte(); err != nil {
				t.Fatal(err)
			}
			// The connection's own round trip and the data's.
			if took := time.Since(began); took < 2*15*time.Millisecond {
				t.Errorf("a transfer took %v; want at least two round trips of 15 ms", took)
			}
			// Cut holds behind a relay too.
			if err := b.Cut(a); err != nil {
				t.Fatal(err)
			}
			unanswered(ctx, t, b, a)
			if err := b.Latency(-1); err == nil {
				t.Error("a negative latency was taken")
			}
		})
	}
}

// TestRelayGoes shows that removing a latency removes the relay's
// devices from the switch.
func TestRelayGoes(t *testing.T) {
	t.Parallel()
	lab := netlab.ForTest(t, 1)
	netlab.SetNetem(lab, false)
	before := netlab.SwitchDevices(t, lab)
	if err := lab.Host(0).Latency(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if during := netlab.SwitchDevices(t, lab); during != before+3 {
		t.Errorf("%d devices with a relay, %d without; want two TAPs and a bridge more", during, before)
	}
	if err := lab.Host(0).Latency(0); err != nil {
		t.Fatal(err)
	}
	if after := netlab.SwitchDevices(t, lab); after != before {
		t.Errorf("%d devices after a relay, %d before", after, before)
	}
}
