package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a program on a host, through all its restarts.
type Process struct {
	host *Host
	what Command
	quit chan struct{} // closed: no more restarts
	done chan struct{} // closed: no process is left, nor will be

	mu      sync.Mutex
	pid     int // 0 while it is down
	starts  int
	started chan struct{}    // closed and replaced at each start
	leaving bool             // quit is closed
	last    *os.ProcessState // of the last exit
	err     error            // why it was not restarted
}

// Start runs a program on the host. The process leads a process group of its
// own; what is left of the group is killed when it ends.
func (h *Host) Start(c Command) (*Process, error) {
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	if h.lab.closed {
		return nil, fmt.Errorf("netlab: start %s on %s: the lab is closed", c.Path, h.Name())
	}
	p := &Process{host: h, what: c, quit: make(chan struct{}), done: make(chan struct{}), started: make(chan struct{})}
	run, err := p.launch()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.processes = append(h.processes, p)
	h.mu.Unlock()
	go p.supervise(run)
	return p, nil
}

// run is one life of a process.
type run struct {
	cmd    *exec.Cmd
	log    *os.File // the end of the pipe that is read; nil without one
	copied chan struct{}
}

// errLeft says that a process must not be restarted any more.
var errLeft = errors.New("netlab: stopped")

// launch starts the program once.
func (p *Process) launch() (*run, error) {
	c := p.what
	r := &run{cmd: exec.Command(c.Path, c.Args...)}
	r.cmd.Dir = c.Dir
	r.cmd.Env = append(os.Environ(), c.Env...)
	var write *os.File
	switch log := c.Log.(type) {
	case nil:
	case *os.File:
		r.cmd.Stdout, r.cmd.Stderr = log, log
	default:
		var err error
		if r.log, write, err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("netlab: %w", err)
		}
		r.cmd.Stdout, r.cmd.Stderr = write, write
	}
	// Holding the lock, so that nobody sees a start without its process.
	p.mu.Lock()
	err := errLeft
	if !p.leaving {
		err = p.start(r.cmd)
	}
	if err == nil {
		p.pid = r.cmd.Process.Pid
		p.starts++
		close(p.started)
		p.started = make(chan struct{})
	}
	p.mu.Unlock()
	if write != nil {
		write.Close()
	}
	if err != nil {
		if r.log != nil {
			r.log.Close()
		}
		return nil, err
	}
	if r.log != nil {
		r.copied = make(chan struct{})
		go func() {
			defer close(r.copied)
			// A writer that fails must not block the process on a full pipe.
			if _, err := io.Copy(c.Log, r.log); err != nil {
				_, _ = io.Copy(io.Discard, r.log)
			}
		}()
	}
	return r, nil
}

// start starts cmd on the host, within the host's bounds.
func (p *Process) start(cmd *exec.Cmd) error {
	if err := p.host.lab.starter.start(p.host.ns, cmd); err != nil {
		return err
	}
	p.host.mu.Lock()
	err := p.host.gather()
	p.host.mu.Unlock()
	if err != nil {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // with how it was killed
	}
	return err
}

// supervise waits for each life's end and begins the next.
func (p *Process) supervise(r *run) {
	defer close(p.done)
	for {
		state, err := p.reap(r)
		p.mu.Lock()
		p.last = state
		again := err == nil && !p.leaving && p.what.Restart > 0 && failed(state)
		p.err = err
		p.mu.Unlock()
		if !again {
			return
		}
		timer := time.NewTimer(p.what.Restart)
		select {
		case <-timer.C:
		case <-p.quit:
			timer.Stop()
			return
		}
		if r, err = p.launch(); err != nil {
			if !errors.Is(err, errLeft) {
				p.mu.Lock()
				p.err = err
				p.mu.Unlock()
			}
			return
		}
	}
}

// reap waits for one life's end, kills what is left of its group and collects
// its status and the rest of its output.
func (p *Process) reap(r *run) (*os.ProcessState, error) {
	// Not collected yet, a dead leader keeps its id: no signal goes astray.
	pid := r.cmd.Process.Pid
	if err := p.await(pid, unix.WEXITED); err != nil {
		return nil, err
	}
	p.mu.Lock()
	_ = unix.Kill(-pid, unix.SIGKILL) // fails if the leader was alone
	p.pid = 0
	p.mu.Unlock()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("netlab: waiting for %s: %w", p.what.Path, err)
	}
	if r.log != nil {
		// A child that left the group may hold the pipe open.
		_ = r.log.SetReadDeadline(time.Now().Add(time.Second))
		<-r.copied
		r.log.Close()
	}
	return r.cmd.ProcessState, nil
}

// failed tells whether systemd's on-failure would restart a process that ended so.
func failed(state *os.ProcessState) bool {
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		switch status.Signal() {
		case unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE:
			return false
		}
		return true
	}
	return status.ExitStatus() != 0
}

// PID returns the process's id, 0 while it is down.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Starts returns how often the program was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Signal sends sig to the process and its children. After SIGSTOP it returns when
// the process stands still. It fails with os.ErrProcessDone, wrapped, while the
// process is down.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return fmt.Errorf("netlab: %v to %s on %s: %w", sig, p.what.Path, p.host.Name(), os.ErrProcessDone)
	}
	if err := unix.Kill(-p.pid, sig); err != nil {
		return fmt.Errorf("netlab: %v to %s on %s: %w", sig, p.what.Path, p.host.Name(), err)
	}
	if sig != unix.SIGSTOP {
		return nil
	}
	return p.await(p.pid, unix.WSTOPPED|unix.WEXITED)
}

// await waits for a change of a child's state and leaves it to be collected.
func (p *Process) await(pid, changes int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, changes|unix.WNOWAIT, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("netlab: waiting for %s on %s: %w", p.what.Path, p.host.Name(), err)
		}
	}
}

// Kill is Signal with SIGKILL: a crash, after which the process is restarted if
// its command says so.
func (p *Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Await waits until the program has been started n times. It fails if ctx or the
// process ends before.
func (p *Process) Await(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		starts, started := p.starts, p.started
		p.mu.Unlock()
		if starts >= n {
			return nil
		}
		select {
		case <-started:
		case <-p.done:
			return errors.Join(fmt.Errorf("netlab: %s on %s ended for good after %d starts; waited for %d", p.what.Path, p.host.Name(), p.Starts(), n), p.failure())
		case <-ctx.Done():
			return fmt.Errorf("netlab: start %d of %s on %s: %w", n, p.what.Path, p.host.Name(), ctx.Err())
		}
	}
}

// failure returns why the process was not restarted, if that failed.
func (p *Process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Wait waits until the process has ended and will not be restarted, and returns
// how it ended the last time. All its output is in the log by then.
func (p *Process) Wait(ctx context.Context) (*os.ProcessState, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("netlab: waiting for %s on %s: %w", p.what.Path, p.host.Name(), ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.err
}

// Stop ends the process as systemctl stop would: no more restarts, SIGTERM and,
// when ctx ends, SIGKILL to what is left. It returns how the process ended; that
// ctx ended is seen from the status.
func (p *Process) Stop(ctx context.Context) (*os.ProcessState, error) {
	p.leave()
	if err := p.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.End()
		<-p.done
	}
	return p.Wait(context.WithoutCancel(ctx))
}

// leave forbids further restarts.
func (p *Process) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leaving {
		p.leaving = true
		close(p.quit)
	}
}

// End kills the process and forbids its restart.
func (p *Process) End() {
	p.leave()
	_ = p.Kill() // fails if it has ended
}
