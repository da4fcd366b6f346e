package netlab_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// TestCPU shows that two busy threads of a host get the cores that it is held to:
// never more of the time that passed, and in each period that ended in the quota
// not less than the quota; both hold beside any other load.
func TestCPU(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 2)
	netlab.NeedLimits(t)
	host := lab.Host(0)
	held := func(cores float64) {
		t.Helper()
		if err := host.SetCPU(cores); err != nil {
			t.Fatal(err)
		}
	}
	held(1.5) // before it starts
	netlab.Favour(t, host)
	out := newLog()
	p, err := host.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=spin"}, Log: out})
	if err != nil {
		t.Fatal(err)
	}
	out.await(ctx, t, "spinning")
	in := dial(ctx, t, lab.Host(1), host, "1ms")
	in.hear("used")

	const period, slice = 20 * time.Millisecond, 5 * time.Millisecond // the kernel deals quotas out to processors in slices
	for _, cores := range []float64{0.5, 0.125, 0.5} {
		held(cores)
		quota := time.Duration(cores * float64(period))
		began, before, throttled := time.Now(), used(t, p), netlab.Throttled(t, host)
		in.say(fmt.Sprint(20 * quota))
		in.hear("used")
		throttled = netlab.Throttled(t, host) - throttled // a count that ends before the time does
		got := used(t, p) - before
		periods := time.Since(began)/period + 2
		t.Logf("%v cores: %v in %v, %.3f; %d periods used up", cores, got, time.Since(began), got.Seconds()/time.Since(began).Seconds(), throttled)
		if most := periods*quota + 2*slice; got > most {
			t.Errorf("two threads used %v of processor in %d periods at %v cores; want at most %v", got, periods, cores, most)
		}
		if least := time.Duration(throttled-2)*quota - 2*slice; throttled == 0 || got < least {
			t.Errorf("two threads used %v of processor in %d periods that they used up, at %v cores; want at least %v", got, throttled, cores, least)
		}
	}
	held(0)
	throttled := netlab.Throttled(t, host)
	in.say("50ms")
	in.hear("used")
	if now := netlab.Throttled(t, host); now != throttled {
		t.Errorf("a host without a bound was throttled in %d periods", now-throttled)
	}
	for _, cores := range []float64{-1, 0.049, 1025, math.NaN(), math.Inf(1)} {
		if err := host.SetCPU(cores); err == nil {
			t.Errorf("%v cores were taken", cores)
		}
	}
}

// used returns the processor time that a process has used.
func used(t *testing.T, p *netlab.Process) time.Duration {
	t.Helper()
	const cpuClock = 2 // CPUCLOCK_SCHED: clock_getcpuclockid(3)
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^p.PID()<<3|cpuClock), &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// TestMemory shows that a process which takes more memory than its host has is
// killed, and not where the bound is gone.
func TestMemory(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	host := netlab.ForTest(t, 1).Host(0)
	netlab.NeedLimits(t)
	for _, test := range []struct {
		bytes int64
		fits  bool
	}{{32 << 20, false}, {256 << 20, true}, {0, true}} {
		if err := host.SetMemory(test.bytes); err != nil {
			t.Fatal(err)
		}
		p, err := host.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=hoard", "NETLAB_GROUP=" + host.Name()}})
		if err != nil {
			t.Fatal(err)
		}
		state, err := p.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if killed := state.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL; killed == test.fits || state.Success() != test.fits {
			t.Errorf("64 MiB on a host of %d bytes: %v", test.bytes, state)
		}
	}
	for _, bytes := range []int64{-1, 1 << 10} {
		if err := host.SetMemory(bytes); err == nil {
			t.Errorf("%d bytes of memory were taken", bytes)
		}
	}
}

// TestGroups shows that bounds hold for all processes of a host, those that run
// already, their children and those that start later, for no others, and that
// nothing of them is left.
func TestGroups(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 2)
	netlab.NeedLimits(t)
	host, other := lab.Host(0), lab.Host(1)
	out := newLog()
	start := func(h *netlab.Host, role string) string {
		t.Helper()
		p, err := h.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=" + role}, Log: out, Restart: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(p.PID())
	}
	bounded := []string{start(host, "family"), out.await(ctx, t, "child"), out.await(ctx, t, "runaway")}
	free := start(other, "stubborn")
	if err := host.SetCPU(1); err != nil {
		t.Fatal(err)
	}
	if err := host.SetMemory(1 << 30); err != nil {
		t.Fatal(err)
	}
	groups := func(pid string) string {
		t.Helper()
		text, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	within := func(pids ...string) {
		t.Helper()
		for _, pid := range pids {
			v1, v2 := strings.Count(groups(pid), ":/"+host.Name()+"\n"), strings.Contains(groups(pid), "0::/"+host.Name()+"\n")
			if v1 != 2 && !v2 {
				t.Errorf("process %s of a bounded host is in\n%s", pid, groups(pid))
			}
		}
	}
	within(bounded...)
	within(start(host, "stubborn"))
	if got := groups(free); strings.Contains(got, "gnnlab") {
		t.Errorf("a process of another host is in\n%s", got)
	}
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	noGroups(t, host.Name())
	if err := host.SetCPU(1); err == nil {
		t.Error("a closed lab bounds a host")
	}
}

// noGroups checks that a host has no control groups any more.
func noGroups(t *testing.T, name string) {
	t.Helper()
	for _, folder := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		if found, err := filepath.Glob(folder + name); err != nil || found != nil {
			t.Errorf("control groups %v, %v; want them gone", found, err)
		}
	}
}
