package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/leak"
)

const asWorker = "ATTACK_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) == "1" {
		Serve(fragile)
	}
	leak.Main(m)
}

var spun int

// fragile is a command that goes wrong in every way that there is: by what the
// file that it reads begins with.
func fragile(ctx context.Context, args []string, stdout, stderr *Output) int {
	b, err := os.ReadFile(args[0])
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	out := ""
	if len(args) > 1 {
		out = args[1]
	}
	switch {
	case bytes.HasPrefix(b, []byte("panic")):
		go panic("as asked")
		select {}
	case bytes.HasPrefix(b, []byte("nil")):
		var p *int
		*p = 1
	case bytes.HasPrefix(b, []byte("hidden")):
		fmt.Fprintln(stderr, "sampler: panic: runtime error: index out of range")
		return 1
	case bytes.HasPrefix(b, []byte("spin")):
		for i := 0; ; i++ {
			spun = i
		}
	case bytes.HasPrefix(b, []byte("block")):
		time.Sleep(time.Hour)
	case bytes.HasPrefix(b, []byte("memory")):
		big := make([]byte, 512<<20)
		for i := 0; i < len(big); i += 4096 {
			big[i] = 1
		}
		fmt.Fprintln(stdout, len(big))
		return 0
	case bytes.HasPrefix(b, []byte("huge")):
		big := make([]byte, 1<<40)
		fmt.Fprintln(stdout, big[len(b)])
	case bytes.HasPrefix(b, []byte("leave")):
		os.WriteFile(filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".tmp"), b, 0o600)
		return 1
	case bytes.HasPrefix(b, []byte("write")):
		if err := os.WriteFile(args[1], bytes.Repeat([]byte("x"), 10000), 0o600); err != nil {
			fmt.Fprintln(stderr, err)
			return map[bool]int{errors.Is(err, syscall.EFBIG): 3, errors.Is(err, syscall.ENOSPC): 4}[true]
		}
	case bytes.HasPrefix(b, []byte("three")):
		for i := range 3 {
			st, err := os.Stat(args[0])
			fmt.Fprintf(stdout, "line %d, %d bytes, %v %v\n", i, st.Size(), err, ctx.Err())
		}
	case !bytes.HasPrefix(b, []byte("good")):
		return 1
	}
	fmt.Fprintf(stdout, "{\"read\": %q, \"seconds\": %d}\n", b[:min(4, len(b))], time.Now().UnixNano())
	return 0
}

func newWorker(t *testing.T) *Worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorker(self, asWorker+"=1")
	t.Cleanup(w.Close)
	return w
}

// A worker tells every way apart in which a command may end, and goes on after it.
func TestWorker(t *testing.T) {
	w := newWorker(t)
	file := filepath.Join(t.TempDir(), "file")
	for content, want := range map[string]Outcome{
		"panic": Panic, "nil": Panic, "hidden": Panic, "spin": Hang, "block": Hang, "huge": Memory, "good": Same, "bad": Same,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		spinning, blocked := w.spinning, w.blocked
		if want == Hang { // others may be kept waiting by a busy machine
			w.spinning, w.blocked = time.Second, time.Second
		}
		r, err := w.Run(Request{Args: []string{file}})
		w.spinning, w.blocked = spinning, blocked
		if err != nil {
			t.Fatal(err)
		}
		if got := Crashed(r); got != want {
			t.Errorf("%s: %v, want %v: %+v", content, got, want, r)
		}
		if want == Same && (r.Code == 0) != (content == "good") {
			t.Errorf("%s: exit %d", content, r.Code)
		}
	}
}

// A limit, a disk and a shortened file are those of one command alone.
func TestConditions(t *testing.T) {
	w := newWorker(t)
	dir := t.TempDir()
	file, out := filepath.Join(dir, "file"), filepath.Join(dir, "out", "f")
	do := func(content string, q Request) Reply {
		t.Helper()
		if err := errors.Join(os.RemoveAll(filepath.Dir(out)), os.Mkdir(filepath.Dir(out), 0o755), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		q.Args = []string{file, out}
		r, err := w.Run(q)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		q    Request
		code int
	}{{Request{FileSize: 9999}, 3}, {Request{FileSize: 10000}, 0}, {Request{}, 0}} {
		if r := do("write", c.q); r.Code != c.code {
			t.Errorf("%+v: exit %d, want %d: %s", c.q, r.Code, c.code, r.Stderr)
		}
	}
	if r := do("write", Request{Disk: filepath.Dir(out), DiskBytes: 8192}); r.Broken != "" {
		t.Logf("no small disk: %s", r.Broken)
	} else if r.Code != 4 || len(r.Files["f"]) != 8192 {
		t.Errorf("a small disk: exit %d, %d bytes are on it: %s", r.Code, len(r.Files["f"]), r.Stderr)
	}
	three := do("three", Request{})
	if three.Events != 4 || three.Looks != 3 {
		t.Errorf("%d lines and %d looks", three.Events, three.Looks)
	}
	for event, want := range map[int]string{2: "5 5 2", -1: "5 2 2"} {
		r := do("three", Request{Shorten: file, ShortenTo: 2, Event: event})
		var sizes []string
		for _, line := range strings.Split(r.Stdout, "\n")[:3] {
			sizes = append(sizes, strings.Fields(line)[2])
		}
		if got := strings.Join(sizes, " "); got != want {
			t.Errorf("shortened at event %d: sizes %s, want %s", event, got, want)
		}
	}
}

// A campaign finds what a command makes of damage that it does not see, and does
// so again for the same seed.
func TestCampaign(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("good, and more of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found []string
	c := &Campaign{
		Dir: dir, Scratch: t.TempDir(), Seed: 3, Workers: []*Worker{newWorker(t)}, Volatile: []string{"seconds"},
		Kinds: []Kind{{Name: "sealed", Files: []string{"file"}, Commands: []Command{{Name: "read", Args: []string{"$DIR/file"}}}}},
		Report: func(r Result) {
			if r.Bad {
				found = append(found, fmt.Sprint(r.Case, r.Outcome))
			}
		},
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(40); err != nil {
		t.Fatal(err)
	}
	if c.Tally.Total() != 40 || c.Tally.Of("sealed", Same) == 0 || c.Tally.Of("sealed", Refused) == 0 || len(found) != 0 {
		t.Errorf("it finds %q\n%s", found, &c.Tally)
	}
	first := c.Tally.String()
	if c.Tally = (Tally{}); c.Run(40) != nil || c.Tally.String() != first {
		t.Errorf("another time\n%s\nand not\n%s", &c.Tally, first)
	}
	// A command that does not look at all: whatever it gives is another result.
	for content, want := range map[string]Outcome{"memory": Memory, "three": Other, "leave": Left, "nil": Panic} {
		one := draw(c.Seed, &c.Kinds[0], []string{"file"}, 0)
		one.Command.Args, one.Command.Out = []string{"$DIR/file", "$DIR/out"}, "out"
		if err := os.WriteFile(filepath.Join(c.copy(0), "file"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := c.run(0, c.Workers[0], one.Command, Request{})
		if err != nil {
			t.Fatal(err)
		}
		if want == Other {
			one.Command.Out = ""
		}
		if o, text, err := c.judge(0, c.Workers[0], one, r); err != nil || o != want {
			t.Errorf("%s: %v, want %v: %s, %v", content, o, want, text, err)
		}
	}
}
