package netlab

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// starter owns the thread from which all processes of a lab are forked. A child
// is born into its parent thread's namespace, and its death signal
// (PR_SET_PDEATHSIG) is sent when that thread ends, not the process: a thread
// that Go might retire would take its children along.
type starter struct {
	jobs chan startJob
	done chan struct{}
}

type startJob struct {
	ns     int
	cmd    *exec.Cmd
	result chan error
}

func newStarter() *starter {
	s := &starter{make(chan startJob), make(chan struct{})}
	go s.run()
	return s
}

func (s *starter) run() {
	defer close(s.done)
	runtime.LockOSThread() // for good: the thread ends with this goroutine
	for job := range s.jobs {
		job.result <- inside(job.ns, job.cmd.Start)
	}
}

// start starts cmd in namespace ns, to be killed with this process.
func (s *starter) start(ns int, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	job := startJob{ns, cmd, make(chan error)}
	s.jobs <- job
	if err := <-job.result; err != nil {
		return fmt.Errorf("netlab: cannot start %s: %w", cmd.Path, err)
	}
	return nil
}

func (s *starter) stop() {
	close(s.jobs)
	<-s.done
}
