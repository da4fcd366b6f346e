package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Serve is a worker's side: it runs commands until there are no more, and exits.
// run is called with the arguments of one.
func Serve(run func(ctx context.Context, args []string, stdout, stderr *Output) int) {
	replies := json.NewEncoder(os.NewFile(3, "replies"))
	requests := json.NewDecoder(os.Stdin)
	// Without it a file that reaches its limit ends the process.
	signal.Ignore(syscall.SIGXFSZ)
	err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: addressSpace, Max: addressSpace})
	for err == nil {
		var q Request
		if err = requests.Decode(&q); err == nil {
			err = replies.Encode(serve(&q, run))
		}
	}
	fmt.Println(err)
	os.Exit(0)
}

// Output collects what a command writes.
type Output struct {
	hook *hook
	bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.hook.line(bytes.Count(b, []byte("\n")))
	return o.Buffer.Write(b)
}

// hook shortens a file at the event that was asked for.
type hook struct {
	q           *Request
	mu          sync.Mutex
	lines, look int
}

func (h *hook) line(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.lines
	h.lines += n
	if h.q.Event > before && h.q.Event <= h.lines {
		h.shorten()
	}
}

func (h *hook) looked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.look++; h.look == -h.q.Event {
		h.shorten()
	}
}

func (h *hook) shorten() {
	if err := os.Truncate(h.q.Shorten, h.q.ShortenTo); err != nil {
		panic(err)
	}
}

// watched is a context that knows how often it was looked at.
type watched struct {
	context.Context
	hook *hook
}

func (w *watched) Err() error {
	w.hook.looked()
	return w.Context.Err()
}

func (w *watched) Done() <-chan struct{} {
	w.hook.looked()
	return w.Context.Done()
}

func serve(q *Request, run func(ctx context.Context, args []string, stdout, stderr *Output) int) (r Reply) {
	limit := int64(largestFile)
	if q.FileSize > 0 {
		limit = q.FileSize
	}
	if q.Disk != "" {
		end, err := smallDisk(q.Disk, q.DiskBytes)
		if err != nil {
			return Reply{Broken: err.Error()}
		}
		defer func() { r.Files, err = end(); r.Broken = text(err) }()
	}
	setFileSize(limit)
	defer setFileSize(-1)
	giveBack()
	h := &hook{q: q}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stdout, stderr := &Output{hook: h}, &Output{hook: h}
	r.Code = run(&watched{ctx, h}, q.Args, stdout, stderr)
	r.Peak = status("VmHWM:")
	r.Stdout, r.Stderr = stdout.String(), stderr.String()
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Events, r.Looks = h.lines, h.look
	return r
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// setFileSize limits files' sizes; -1: no limit. Only the soft limit moves.
func setFileSize(n int64) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		panic(err)
	}
	l.Cur = min(uint64(n), l.Max)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		panic(err)
	}
}

// idle is what a worker may have resident before a command without its memory
// being given back first: a collection for every case would cost more than most.
const idle = 64 << 20

// giveBack makes VmHWM that of the next command.
func giveBack() {
	if status("VmRSS:") > idle {
		debug.FreeOSMemory()
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		panic(err)
	}
}

// status returns a field of /proc/self/status in bytes.
func status(field string) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(b), field)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return kib << 10
}

// smallDisk lays a file system of size bytes over dir, with what dir holds. end
// takes it away, and returns the files on it.
func smallDisk(dir string, size int64) (end func() (map[string][]byte, error), err error) {
	before, err := Contents(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return nil, fmt.Errorf("attack: mount: %w", err)
	}
	for name, content := range before {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, fmt.Errorf("attack: %d bytes are too few for what was there before: %w", size, err)
		}
	}
	return func() (map[string][]byte, error) {
		after, err := Contents(dir)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return nil, err
		}
		return after, err
	}, nil
}

// contents returns the files below dir.
func Contents(dir string) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		all[name], err = os.ReadFile(path)
		return err
	})
	return all, err
}
