package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster"
)

// transcript is what a command writes, and can be waited for.
type transcript struct {
	held  string        // who has written this waits, if it is not ""
	gate  chan struct{} // until this is closed
	mu    sync.Mutex
	b     bytes.Buffer
	wrote chan struct{}
}

func newTranscript() *transcript {
	return &transcript{gate: make(chan struct{}), wrote: make(chan struct{})}
}

func (o *transcript) Write(b []byte) (int, error) {
	o.mu.Lock()
	o.b.Write(b)
	close(o.wrote)
	o.wrote = make(chan struct{})
	o.mu.Unlock()
	if o.held != "" && strings.Contains(string(b), o.held) {
		<-o.gate
	}
	return len(b), nil
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits until what was written holds part.
func (o *transcript) await(t *testing.T, ctx context.Context, part string) string {
	t.Helper()
	for {
		o.mu.Lock()
		s, wrote := o.b.String(), o.wrote
		o.mu.Unlock()
		if strings.Contains(s, part) {
			return s
		}
		select {
		case <-wrote:
		case <-ctx.Done():
			t.Fatalf("%q was not written: %v\n%s", part, context.Cause(ctx), s)
		}
	}
}

// command is one that runs in this process.
type command struct {
	out, log  *transcript
	interrupt context.CancelFunc
	goOn      func() // if it was held
	code      chan int
}

func begin(t *testing.T, args ...string) *command {
	t.Helper()
	return beginHeld(t, "", args...)
}

// beginHeld begins a command that has logged line and does no more until it is told to go on, so that a run lasts for
// as long as a test needs it, and no processor does.
func beginHeld(t *testing.T, line string, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &command{out: newTranscript(), log: newTranscript(), interrupt: cancel, code: make(chan int, 1)}
	c.log.held = line
	c.goOn = sync.OnceFunc(func() { close(c.log.gate) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.code <- run(ctx, args, c.out, c.log)
	}()
	t.Cleanup(func() { cancel(); c.goOn(); <-done })
	return c
}

// wait returns what the command printed; it must end with code 0.
func (c *command) wait(t *testing.T, ctx context.Context) string {
	t.Helper()
	select {
	case code := <-c.code:
		if code != exitDone {
			t.Fatalf("exit %d\n%s", code, c.log)
		}
	case <-ctx.Done():
		t.Fatalf("it does not end: %v\n%s", context.Cause(ctx), c.log)
	}
	return c.out.String()
}

// A node with the data begins a run, one without copies the topology; others
// join, drain, and are interrupted, the one with the data too. Every one that
// hands over ends in order with nothing left. The last one, which cannot, leaves a
// checkpoint, and one process that goes on from it comes to the bits of one
// process that did it all.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	data, kept := filepath.Join(dir, "data"), filepath.Join(dir, "kept")
	mustInvoke(t, "generate", "sbm", data, "--nodes", "3000", "--features", "16")
	mustInvoke(t, "partition", "--data", data, "--parts", "6", "--method", "metis")
	const perEpoch = 15 // of 900 training nodes
	run := []string{"--data", data, "--micro-batches", "6", "--batch-size", "60", "--eval-every", "0", "--fanouts", "3,3", "--hidden", "16",
		"--threads", "1", "--output", "json"}

	store := begin(t, "cluster", "start", "--node", "s", "--dir", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0", "--peers", "127.0.0.1:0")
	log := store.log.await(t, ctx, "train with --cluster")
	_, at, _ := strings.Cut(log, "serves at ")
	at, _, _ = strings.Cut(at, ";")
	place := func(name string) []string {
		return []string{"--node", name, "--node-dir", filepath.Join(dir, name), "--lease", "60s"}
	}
	join := func(name string, args ...string) *command {
		return begin(t, slices.Concat([]string{"cluster", "join", at, "--threads", "1", "--output", "json"}, place(name), args)...)
	}
	const steps = "the group made its first step"
	a := begin(t, slices.Concat([]string{"train", "--cluster", at, "--shards", "6", "--wait-for", "2", "--epochs", "1000000", "--baseline=false"}, run, place("a"))...)
	b := join("b")
	a.log.await(t, ctx, steps)

	code, _, errs := invoke(t, slices.Concat([]string{"train", "--cluster", at, "--fanouts", "3,4"}, place("x"))...)
	if code != exitUsage || !strings.Contains(errs, `fanouts is "3,3", and "3,4" here`) {
		t.Errorf("a setting that contradicts the run: exit %d, %s", code, errs)
	}
	c := join("c")
	c.log.await(t, ctx, steps)
	var status clusterStatus
	placed := func() bool { // the leader's table follows what it hears
		rows := 0
		for i, h := range status.ShardsAt {
			rows += h.Rows
			if h.ID != i || !slices.Contains(h.Nodes, h.Node) || h.Bytes != int64(h.Rows)*16*4 {
				return false
			}
		}
		p := status.Parameters
		return p != nil && p.Step > 0 && p.Group > 0 && rows == 3000
	}
	for status.By == "" || !placed() {
		if ctx.Err() != nil {
			t.Fatalf("the actors are not placed: %+v", status)
		}
		status = clusterStatus{}
		out, _ := mustInvoke(t, "cluster", "status", at, "--node", "x", "--output", "json")
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			t.Fatal(err)
		}
	}
	if len(status.Nodes) != 3 || status.Leader == "" || status.Shards != 6 || slices.ContainsFunc(status.Nodes, func(n cluster.Status) bool {
		return !n.Answered || n.Training.Group == 0 || n.Training.MicroBatches == 0
	}) {
		t.Errorf("status: %+v", status)
	}
	if text, _ := mustInvoke(t, "cluster", "status", at, "--node", "x"); !strings.Contains(text, "leader") || !strings.Contains(text, "at step ") {
		t.Errorf("status:\n%s", text)
	}
	d := join("d", "--checkpoint", kept)
	d.log.await(t, ctx, steps)
	for _, e := range []struct {
		name string
		end  func()
		of   *command
	}{
		{"b is told to drain", func() { mustInvoke(t, "cluster", "drain", at, "b", "--node", "x") }, b},
		{"a, which has the data, is interrupted", a.interrupt, a},
		{"c is interrupted", c.interrupt, c},
	} {
		e.end()
		var r drainResult
		out := e.of.wait(t, ctx)
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%s: %v in %s", e.name, err, out)
		}
		if !r.Drained || r.ShardsLeft != 0 || r.ShardsGiven == 0 || r.Cluster.MicroBatches == 0 {
			t.Errorf("%s: %s", e.name, out)
		}
	}
	if code, _, errs := invoke(t, "cluster", "drain", at, "d", "--node", "x"); code != exitFailed || !strings.Contains(errs, "the last that trains") {
		t.Errorf("the last one was drained: exit %d, %s", code, errs)
	}
	d.interrupt()
	select {
	case code := <-d.code:
		if code != exitInterrupted {
			t.Errorf("the last node: exit %d\n%s", code, d.log)
		}
	case <-ctx.Done():
		t.Fatalf("the last node does not end\n%s", d.log)
	}
	files, err := filepath.Glob(filepath.Join(kept, "step-*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the last node kept nothing: %v", err)
	}
	slices.Sort(files)
	var step int
	if _, err := fmt.Sscanf(filepath.Base(files[len(files)-1]), "step-%d.safetensors", &step); err != nil {
		t.Fatal(err)
	}
	epochs := []string{"--epochs", fmt.Sprint(step/perEpoch + 1), "--baseline=false"}
	all, _ := mustInvoke(t, slices.Concat([]string{"train"}, run, epochs)...)
	rest, _ := mustInvoke(t, slices.Concat([]string{"train", "--checkpoint", kept, "--resume"}, run, epochs)...)
	if got, want := resultSHA(t, rest), resultSHA(t, all); got != want {
		t.Errorf("after %d steps in the cluster the parameters come to %s, not to those of one process, %s", step, got, want)
	}
	store.interrupt()
	store.wait(t, ctx)
}

func resultSHA(t *testing.T, out string) string {
	t.Helper()
	var r trainResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, out))
	}
	return r.ParametersSHA256
}
