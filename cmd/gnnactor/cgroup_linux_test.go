package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
)

// argumentsVariable makes TestAsCommand run a command line, in a process of its
// own.
const argumentsVariable = "GNNACTOR_TEST_ARGUMENTS"

// TestAsCommand is not a test, but the command in a process that a test starts.
func TestAsCommand(t *testing.T) {
	text := os.Getenv(argumentsVariable)
	if text == "" {
		t.Skip("nobody asks for a command in a process of its own")
	}
	if code := run(t.Context(), strings.Split(text, "\n"), os.Stdout, os.Stderr); code != exitDone {
		t.Fatalf("exit %d", code)
	}
}

// memoryGroup makes a control group that limits memory, the page cache included,
// and returns the file that processes join it by and the one with its peak.
func memoryGroup(t *testing.T, limit int64) (procs, peak string) {
	t.Helper()
	write := func(file, text string) error { return os.WriteFile(file, []byte(text), 0o644) }
	name := fmt.Sprintf("gnnactor-test-%d", os.Getpid())
	for _, v := range []struct{ root, limit, peak, swap string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", ""},
		{"/sys/fs/cgroup", "memory.max", "memory.peak", "memory.swap.max"},
	} {
		dir := filepath.Join(v.root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // its processes have ended
		if err := write(filepath.Join(dir, v.limit), strconv.FormatInt(limit, 10)); err != nil {
			continue
		}
		if v.swap != "" {
			_ = write(filepath.Join(dir, v.swap), "0") // not every kernel has it
		}
		procs = filepath.Join(dir, "cgroup.procs")
		if exec.Command("/bin/sh", "-c", `echo $$ > "$0"`, procs).Run() != nil {
			continue // a group that nobody may join
		}
		return procs, filepath.Join(dir, v.peak)
	}
	t.Skip("there is no memory controller here that this user may use: mount cgroups and run as root")
	return "", ""
}

// forget writes the files of a store to disk and drops them from the page cache:
// what is cached already is not charged to a group that reads it.
func forget(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// inGroup runs a command line in a process of a control group.
func inGroup(procs string, args []string, env ...string) (out, errs string, err error) {
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0" && exec "$1" -test.run '^TestAsCommand$'`, procs, os.Args[0])
	cmd.Env = append(append(os.Environ(), argumentsVariable+"="+strings.Join(args, "\n")), env...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// In a control group the plan fits its limit and names the file that sets it, or
// the command fails with both figures; GOMEMLIMIT counts where it is less.
func TestPlanInGroup(t *testing.T) {
	procs, _ := memoryGroup(t, 200<<20)
	group := filepath.Dir(procs)
	plan := []string{"plan", "--threads", "8"}
	out, errs, err := inGroup(procs, plan)
	if err != nil || !strings.Contains(out, "200.0 MiB  the limit: "+group+"/memory.") || strings.Contains(out, "to fit") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
	out, errs, err = inGroup(procs, plan, "GOMEMLIMIT=29MiB")
	if err != nil || !strings.Contains(out, "29.0 MiB  the limit: GOMEMLIMIT") || !strings.Contains(out, "to fit 29.0 MiB (GOMEMLIMIT)") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
	out, errs, err = inGroup(procs, []string{"train", "--hidden", "60000", "--layers", "3"})
	if err == nil || !strings.Contains(errs, "allows 200.0 MiB") || !strings.Contains(errs, "parameters take") || strings.Contains(errs, "goroutine") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

// A graph whose features take three times the memory that the process may use
// trains from disk, to the same bits as in memory, and stays within the limit.
func TestLargerThanMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 240 MB")
	}
	const limit = 80 << 20
	procs, peak := memoryGroup(t, limit)
	const cols = 1024 // 256 MiB
	ds, err := generate.RMAT(t.Context(), generate.RMATOptions{Scale: 16, Edges: 120_000, Classes: 4, FeatureDim: 1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	nodes := ds.Graph.NumNodes()
	x := make([]float32, nodes*cols)
	for i := range x {
		x[i] = float32(i*2654435761%1000) / 1000
	}
	ds.NodeFeatures = graph.NewFeatures(nodes, cols, x)
	ds.Train, ds.Valid, ds.Test = ds.Train[:640], nil, ds.Test[:10]
	if got := int64(len(ds.NodeFeatures.Data)); got < 3*limit {
		t.Fatalf("the features have %d bytes, and the limit is %d", got, limit)
	}
	dir := filepath.Join(t.TempDir(), "store")
	ds.Fingerprint = ""
	if err := store.Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	x, ds = nil, nil
	common := []string{"train", "--data", dir, "--output", "json", "--epochs", "2", "--batch-size", "64", "--fanouts", "3,3", "--hidden", "8", "--eval-every", "0", "--eval-chunk", "64"}
	want, _ := mustInvoke(t, append(common, "--features", "ram")...)
	forget(t, dir)

	out, errs, err := inGroup(procs, append(common, "--features", "disk"), "GOMEMLIMIT=40MiB")
	if err != nil {
		t.Fatalf("within %d bytes: %v\n%s%s", limit, err, out, errs)
	}
	var got map[string]any
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := got["parameters_sha256"], lastLine(t, want)["parameters_sha256"]; a == nil || a != b {
		t.Errorf("parameters %v from disk, %v in memory", a, b)
	}
	if rows, ok := got["rows"].(map[string]any); !ok || rows["loaded"] == 0.0 {
		t.Errorf("no rows were loaded: %v", got["rows"])
	}
	if b, err := os.ReadFile(peak); err == nil { // older kernels do not tell
		if used, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err != nil || used > limit+1<<16 { // pages are charged in batches
			t.Errorf("it used %s bytes of %d", strings.TrimSpace(string(b)), limit)
		} else {
			t.Logf("used %d MiB of %d", used>>20, limit>>20)
		}
	}
}
