package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Request is what a worker is to run, and under which conditions.
type Request struct {
	Args []string
	// FileSize, if positive, is the size at which files end: writing on fails.
	FileSize int64
	// Disk, if not empty, is a directory on which lies, during the command, a
	// file system of DiskBytes that holds what the directory holds. It takes
	// root. What is on it afterwards is in Reply.Files.
	Disk      string
	DiskBytes int64
	// Shorten is a file that becomes ShortenTo bytes long when the command writes
	// its Event-th line, or, with Event negative, at its -Event-th look at
	// whether it was cancelled. 0: not at all.
	Shorten   string
	ShortenTo int64
	Event     int
}

// Reply is what came of a request.
type Reply struct {
	Code           int
	Stdout, Stderr string
	Peak           int64             // resident bytes, at most, since the request began
	Events         int               // lines written
	Looks          int               // at whether it was cancelled
	Files          map[string][]byte // of Request.Disk: content
	Broken         string            // the conditions could not be made

	Died bool // the process did; Stderr has its last words
	Hung bool
}

// limits of a worker: what tiny inputs may ask for before they are refused.
const (
	addressSpace = 6 << 30
	largestFile  = 1 << 30
)

// large is the memory of a command after which the process makes room for a new one.
const large = 256 << 20

// A process that waits for nothing spends some time on that, too.
const (
	nothing     = 100 * time.Millisecond
	tickSeconds = 100 // of /proc/PID/stat
)

// Worker runs commands one after the other in a process of its own, which is
// started again when it ended.
type Worker struct {
	path    string
	env     []string
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies *json.Decoder
	out     *os.File
	stderr  *lastWords

	// A command hangs when it has computed for spinning, or not at all for
	// blocked: on a machine that is busy with other things it may take long.
	spinning, blocked time.Duration
}

// NewWorker returns a worker that runs the program path, which must call Serve,
// with env added to this process's environment.
func NewWorker(path string, env ...string) *Worker {
	return &Worker{path: path, env: env, spinning: time.Minute, blocked: 20 * time.Second}
}

func (w *Worker) start() error {
	// With the right to it, its mounts are its own.
	err := w.startWith(syscall.CLONE_NEWNS)
	if errors.Is(err, syscall.EPERM) {
		err = w.startWith(0)
	}
	return err
}

func (w *Worker) startWith(unshare uintptr) error {
	r, out, err := os.Pipe()
	if err != nil {
		return err
	}
	w.stderr = new(lastWords)
	w.cmd = exec.Command(w.path)
	w.cmd.Env = append(os.Environ(), w.env...)
	w.cmd.ExtraFiles = []*os.File{out}
	w.cmd.Stdout, w.cmd.Stderr = w.stderr, w.stderr
	// No Pdeathsig: it follows the thread that starts it. It ends with its input.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unshare}
	if w.in, err = w.cmd.StdinPipe(); err == nil {
		err = w.cmd.Start()
	}
	out.Close()
	if err != nil {
		r.Close()
		w.cmd = nil
		return fmt.Errorf("attack: worker: %w", err)
	}
	w.out, w.replies = r, json.NewDecoder(r)
	return nil
}

// Run runs one command. The error says that there can be no worker.
func (w *Worker) Run(q Request) (Reply, error) {
	if w.cmd == nil {
		if err := w.start(); err != nil {
			return Reply{}, err
		}
	}
	w.stderr.reset()
	type answer struct {
		reply Reply
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		if a.err = json.NewEncoder(w.in).Encode(q); a.err == nil {
			a.err = w.replies.Decode(&a.reply)
		}
		answered <- a
	}()
	began := cpuTime(w.cmd.Process.Pid)
	seen, since := began, time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case a := <-answered:
			if a.err == nil {
				if a.reply.Peak > large {
					w.end() // not all of it comes back
				}
				return a.reply, nil
			}
			return Reply{Code: -1, Died: true, Stderr: w.end()}, nil
		case <-tick.C:
			now := cpuTime(w.cmd.Process.Pid)
			if now-seen > nothing {
				seen, since = now, time.Now()
			}
			if now-began > w.spinning || time.Since(since) > w.blocked {
				w.cmd.Process.Signal(syscall.SIGQUIT) // it says where it stands
				select {
				case <-answered:
				case <-time.After(5 * time.Second):
					w.cmd.Process.Kill()
					<-answered
				}
				return Reply{Code: -1, Hung: true, Stderr: w.end()}, nil
			}
		}
	}
}

// end waits for a process that is ending, and returns what it said.
func (w *Worker) end() string {
	w.in.Close()
	err := w.cmd.Wait()
	w.out.Close()
	w.cmd = nil
	return fmt.Sprintf("%s\n(%v)", w.stderr, err)
}

// Close ends the process.
func (w *Worker) Close() {
	if w.cmd != nil {
		w.end()
	}
}

// cpuTime returns what a process has computed so far; 0 when it is gone.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * (time.Second / tickSeconds)
}

// lastWords keeps the first and the last of what a process writes: a trace
// begins with what happened.
type lastWords struct {
	mu          sync.Mutex
	first, last []byte
}

const words = 4 << 10

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(b), words-len(l.first))
	l.first = append(l.first, b[:n]...)
	l.last = append(l.last, b[n:]...)
	l.last = l.last[max(0, len(l.last)-words):]
	return len(b), nil
}

func (l *lastWords) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.last = nil, nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.first) + string(l.last)
}
