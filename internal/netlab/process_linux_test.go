package netlab_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
)

// TestSignals shows that a host's process is the test's own child: it stops and
// goes on, dies with its children, and tells how it died.
func TestSignals(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 2)
	a, b := lab.Host(0), lab.Host(1)
	p := server(ctx, t, a)
	conn := dial(ctx, t, b, a, "echo")
	conn.say("one")
	conn.hear("one")

	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	conn.say("two")
	conn.silence(100 * time.Millisecond)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	conn.hear("two")

	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	state, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status := state.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v; want killed", state)
	}
	if err := p.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killing it again: %v; want os.ErrProcessDone", err)
	}
	if p.PID() != 0 || p.Starts() != 1 {
		t.Errorf("id %d after %d starts; want 0 after 1", p.PID(), p.Starts())
	}
}

// TestKillTakesChildren shows that a process's children die with it.
func TestKillTakesChildren(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 1)
	out := newLog()
	p, err := lab.Host(0).Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=family"}, Log: out})
	if err != nil {
		t.Fatal(err)
	}
	child := watch(t, out.await(ctx, t, "child"))
	// Only the leader is told, the rest follows.
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(ctx, t, child)
}

// TestRestart shows a process that is killed, then fails, then ends well: it is
// started again, in its directory, after each failure and no more.
func TestRestart(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	lab := netlab.ForTest(t, 1)
	dir, out := t.TempDir(), newLog()
	const delay = 50 * time.Millisecond
	p, err := lab.Host(0).Start(netlab.Command{Path: os.Args[0], Dir: dir, Env: []string{"NETLAB_ROLE=note"}, Log: out, Restart: delay})
	if err != nil {
		t.Fatal(err)
	}
	out.await(ctx, t, "start 1")
	first, killed := p.PID(), time.Now()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Await(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(killed); waited < delay {
		t.Errorf("it was restarted after %v; want at least %v", waited, delay)
	}
	out.await(ctx, t, "start 2")
	out.await(ctx, t, "start 3")
	state, err := p.Wait(ctx)
	if err != nil || !state.Success() {
		t.Fatalf("it ended with %v, %v; want success", state, err)
	}
	if p.Starts() != 3 {
		t.Errorf("%d starts; want 3", p.Starts())
	}
	if err := p.Await(ctx, 4); err == nil {
		t.Error("waited for a start that never comes")
	}
	text, err := os.ReadFile(filepath.Join(dir, "starts"))
	if err != nil || bytes.Count(text, []byte("\n")) != 3 {
		t.Errorf("the process's file has %q, %v; want three lines", text, err)
	}
	if first == 0 {
		t.Error("a running process has no id")
	}
}

// TestExitStatus shows that a program's status arrives, and a missing program is
// an error.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	host := netlab.ForTest(t, 1).Host(0)
	p, err := host.Start(netlab.Command{Path: "/bin/sh", Args: []string{"-c", "exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(ctx); err != nil || state.ExitCode() != 7 {
		t.Errorf("%v, %v; want status 7", state, err)
	}
	if _, err := host.Start(netlab.Command{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
	gone := netlab.Command{Path: "/bin/true", Dir: filepath.Join(t.TempDir(), "missing")}
	if _, err := host.Start(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

// TestStop shows that Stop asks first, insists when its context ends, and allows
// no restart.
func TestStop(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	host := netlab.ForTest(t, 1).Host(0)
	for _, test := range []struct {
		role    string
		patient bool
		want    syscall.Signal // 0: it exits with status 5
	}{
		{"polite", true, 0},
		{"hold", true, syscall.SIGTERM},
		{"stubborn", false, syscall.SIGKILL},
	} {
		out := newLog()
		p, err := host.Start(netlab.Command{Path: os.Args[0], Env: []string{"NETLAB_ROLE=" + test.role}, Log: out, Restart: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		out.await(ctx, t, "holding")
		wait, cancel := ctx, context.CancelFunc(func() {})
		if !test.patient {
			wait, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
		}
		state, err := p.Stop(wait)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		status := state.Sys().(syscall.WaitStatus)
		if test.want == 0 && status.ExitStatus() != 5 || test.want != 0 && (!status.Signaled() || status.Signal() != test.want) {
			t.Errorf("%s: %v; want %v", test.role, state, test.want)
		}
		if p.Starts() != 1 {
			t.Errorf("%s: %d starts; want 1", test.role, p.Starts())
		}
	}
}
