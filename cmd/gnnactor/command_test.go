package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) {
	leak.Beside(5)
	leak.Main(m)
}

// invoke runs one command line in this process.
func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// mustInvoke fails the test when the command does.
func mustInvoke(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, out, errs := invoke(t, args...)
	if code != exitDone {
		t.Fatalf("gnnactor %s: exit %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out, errs
}

// lastLine decodes the last line of a command's standard output.
func lastLine(t *testing.T, stdout string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	var v map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil {
		t.Fatalf("the last line is no object: %v\n%s", err, stdout)
	}
	return v
}

func keys(v map[string]any) []string {
	var names []string
	for k := range v {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// twoRings is a data set of two rings of 60 nodes each, with a bridge. A node's
// class is its ring, which the first feature tells and the second does not.
func twoRings(t *testing.T) *graph.Dataset {
	t.Helper()
	const ring, n = 60, 120
	var src, dst []uint32
	edge := func(u, v int) {
		src, dst = append(src, uint32(u), uint32(v)), append(dst, uint32(v), uint32(u))
	}
	x := make([]float32, 2*n)
	class := make([]int32, n)
	ds := &graph.Dataset{Name: "rings"}
	for v := range n {
		edge(v, v/ring*ring+(v+1)%ring)
		class[v] = int32(v / ring)
		x[2*v], x[2*v+1] = float32(2*(v/ring)-1), float32(v%7)/7
		split := &ds.Train
		switch v % 4 {
		case 2:
			split = &ds.Valid
		case 3:
			split = &ds.Test
		}
		*split = append(*split, uint32(v))
	}
	edge(0, ring)
	g, err := graph.FromEdges(n, src, dst, nil)
	if err != nil {
		t.Fatal(err)
	}
	ds.Graph, ds.NodeFeatures, ds.Labels = g, graph.NewFeatures(n, 2, x), &graph.Labels{NumClasses: 2, Class: class}
	return ds
}

// storeOf writes ds as a store.
func storeOf(t *testing.T, ds *graph.Dataset) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), dir, ds); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What the command line, the environment, a config file and the data can have
// wrong: each has its exit code, and one line that says what and where.
func TestUnhappy(t *testing.T) {
	store := storeOf(t, twoRings(t))
	noTrain := twoRings(t)
	noTrain.Train = nil
	empty := storeOf(t, noTrain)
	bare := storeOf(t, &graph.Dataset{Name: "bare", Graph: noTrain.Graph})
	file := writeTemp(t, "file", "nothing")
	badKey := writeTemp(t, "c.yaml", "hiden: 7\n")
	params := savedParams(t)
	device := filepath.Join(t.TempDir(), "device") // through a link: one that is replaced is missed by nobody
	if err := os.Symlink(os.DevNull, device); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args string
		env  string
		code int
		want string
	}{
		{"unknown command", "trian", "", exitUsage, `unknown command "trian" for "gnnactor"; Did you mean this? train (see gnnactor --help)`},
		{"ids and a split", "embed --data " + store + " --params " + params + " --ids 1 --split test", "", exitUsage, "give one of them"},
		{"unknown flag", "train --hiden 7", "", exitUsage, "unknown flag: --hiden"},
		{"unknown output", "train --output xml", "", exitUsage, "must be text or json"},
		{"no number", "train --hidden many", "", exitUsage, "must be a whole number"},
		{"no value", "train --hidden", "", exitUsage, "needs an argument"},
		{"extra argument", "train now", "", exitUsage, `"now"`},
		{"too few arguments", "import x", "", exitUsage, `1 argument: give SRC and STORE, or --edges FILE and STORE`},
		{"unknown model", "train --model transformer", "", exitUsage, `model: "transformer" is not one of`},
		{"unknown sampler", "train --sampler best", "", exitUsage, `sampler: "best" is not one of`},
		{"unknown format", "train --format papyrus", "", exitUsage, `format: "papyrus" is not one of`},
		{"fan-out 0", "train --fanouts 10,0", "", exitUsage, "fanouts: number 2 is 0"},
		{"fan-outs at odds with layers", "train --layers 3 --fanouts 10,5", "", exitUsage, "fanouts: 2 given for 3 layers"},
		{"layers 0", "train --layers 0", "", exitUsage, "layers: 0"},
		{"two problems", "train --layers 0 --hidden 0", "", exitUsage, "hidden: 0"},
		{"fan-outs of the whole graph", "train --sampler full --fanouts 5,5", "", exitUsage, "fanouts (--fanouts): the sampler full has none; --layers"},
		{"momentum of adam", "train --momentum 0.5", "", exitUsage, "momentum (--momentum): adam has none of its own"},
		{"a factor of nothing", "train --schedule-factor 0.5 --layers 0", "GNNACTOR_AUDIT=0.5", exitUsage, "schedule-factor (--schedule-factor): the constant schedule does not fall by steps; set schedule to step or plateau, or leave it out; audit (GNNACTOR_AUDIT): there is no other node"},
		{"and what else is wrong", "train --schedule-epochs 5 --layers 0", "", exitUsage, "layers: 0"},
		{"resume from nowhere", "train --resume", "", exitUsage, "resume: needs checkpoint"},
		{"unknown YAML key", "train --config " + badKey, "", exitUsage, "hiden: there is no such setting"},
		{"missing config file", "train --config " + file + ".none", "", exitUsage, "no such file"},
		{"bad environment", "train", "GNNACTOR_BATCH_SIZE=many", exitUsage, `GNNACTOR_BATCH_SIZE="many"`},
		{"unknown plot format", "train --plot curves.pdf", "", exitUsage, "must end in .svg or .png or .csv"},
		{"plot into nowhere", "train --plot " + file + "/c.svg", "", exitUsage, "not a directory"},
		{"save below a file", "train --save " + file + "/dir/m.safetensors", "", exitUsage, "not a directory; name another"},
		{"save onto a directory", "train --save " + store, "", exitUsage, "that is a directory"},
		{"a trace in the place of a device", "train --trace " + device, "", exitUsage, "that is a device or a pipe; name a file"},
		{"parameters in the place of a device", "train --save " + device, "", exitUsage, "that is a device or a pipe; name a file"},
		{"save where no file can be made", "train --save " + strings.Repeat("m", 250), "", exitUsage, "file name too long"},
		{"two outputs in one file", "train --save " + file + ".svg --plot " + filepath.Dir(file) + "/./file.svg", "", exitUsage, "--save and --plot are both"},
		{"an empty value", "train --save=", "", exitUsage, "--save is empty; give it a value, or leave it out"},
		{"an empty directory", "train --data=", "", exitUsage, "--data is empty"},
		{"a map of no parameters", "train --map " + file, "", exitUsage, "map (--map): it is of the names in --params, and there are none"},
		{"a flag that is no setting", "train --config " + writeTemp(t, "s.yaml", "save: x\n"), "", exitUsage, "save: it is no setting, and given as --save alone"},
		{"save into a store", "train --save " + filepath.Join(store, "indices.bin"), "", exitUsage, "is a store"},
		{"an option without a name", "train --sampler-options =3", "", exitUsage, "NAME=VALUE"},
		{"missing data", "train --data " + file + ".none", "", exitFailed, "no such file"},
		{"data that cannot be read", "train --data " + file + "/x", "", exitFailed, "not a directory"},
		{"data of no known format", "train --data " + filepath.Dir(badKey), "", exitFailed, "looked for"},
		{"empty training set", "train --data " + empty, "", exitFailed, "the training set of rings is empty"},
		{"flags of a cluster without one", "train --shards foo --wait-for 3", "", exitUsage, "--wait-for, --shards: for a cluster only"},
		{"no features", "train --data " + bare, "", exitFailed, "has no node features; add them to the data, such as features.npy"},
		{"missing parameters", "eval --data " + store + " --params " + file + ".none", "", exitFailed, "no such file"},
		{"no parameters named", "eval --data " + store, "", exitUsage, "--params"},
		{"parameters for other data", "eval --data " + store + " --params " + params, "", exitUsage, "number of features is 2, and the model's 4"},
		{"no safetensors", "eval --data " + store + " --params " + file, "", exitFailed, file},
		{"missing store", "inspect " + file + ".none", "", exitFailed, "no such file"},
		{"inspect of no store", "inspect " + badKey, "", exitFailed, "not a known format"},
		{"import of nothing", "import " + file + ".none " + file + ".out", "", exitFailed, "no such file"},
		{"import onto a file", "import " + store + " " + file, "", exitFailed, file},
		{"import onto a store", "import " + store + " " + store, "", exitFailed, "--overwrite"},
		{"import of an unknown format", "import --format papyrus a b", "", exitUsage, "is not one of"},
		{"several samplers and no statistics", "sample --sampler neighbor,labor", "", exitUsage, "several are compared by --stats"},
		{"unknown command of clusters", "cluster leave", "", exitUsage, "there is no cluster leave: only certs, start"},
		{"precision", "train --precision fp8", "", exitUsage, `"fp8" is not one of float32, tf32, bf16`},
		{"negative batches", "sample --batches -1", "", exitUsage, "--batches -1"},
		{"generate what", "generate papyrus out", "", exitUsage, "(see gnnactor generate --help)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if k, v, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(k, v)
			}
			code, stdout, stderr := invoke(t, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			if stdout != "" {
				t.Errorf("printed %q", stdout)
			}
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "gnnactor: ") || !strings.Contains(last, c.want) {
				t.Errorf("said %q, want one line with %q", stderr, c.want)
			}
			for _, line := range lines { // no usage dump
				if !strings.HasPrefix(line, "gnnactor: ") {
					t.Errorf("a line that is no message: %q", line)
				}
			}
		})
	}
}

// Sampling alone takes the options that samplers of subgraphs cannot do without.
func TestSampleTakesSamplerOptions(t *testing.T) {
	out, _ := mustInvoke(t, "sample", "--sampler", "node", "--sampler-options", "budget=300", "--batches", "2", "--output", "json")
	if n, ok := lastLine(t, out)["mean_input_nodes"].(float64); !ok || n < 1 || n > 300 {
		t.Errorf("mean_input_nodes is %v, want 1 to 300", n)
	}
	text, _ := mustInvoke(t, "sample", "--sampler", "node", "--sampler-options", "budget=300", "--epoch-subgraphs", "3")
	if got := strings.Fields(text); len(got) < 2 || got[1] != "3" {
		t.Errorf("an epoch of 3 subgraphs:\n%s", text)
	}
}

// An error of several lines is told in one, with what to do about the disk.
func TestReportIsOneLineWithARemedy(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "disk/x", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		want string
		code int
	}{
		{errors.New("errors:\n\none\n\tis it?\n\tthis\n"), "errors: one; is it? this", exitFailed},
		{fmt.Errorf("saving: %w", full), "saving: write disk/x: no space left on device; free some space there, or write to another file system", exitDiskFull},
		{fmt.Errorf("%w; free some space", full), "write disk/x: no space left on device; free some space", exitDiskFull},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, "open x: permission denied; change its permissions, or choose another place", exitFailed},
	} {
		var stderr bytes.Buffer
		if code := report(t.Context(), &stderr, "", c.err); code != c.code || stderr.String() != "gnnactor: "+c.want+"\n" {
			t.Errorf("exit %d, said %q, want %q", code, stderr.String(), c.want)
		}
	}
}

// A node that is asked for and does not exist is refused.
func TestNodeIDs(t *testing.T) {
	ids, err := parseIDs("3, 0,5-7,9", 10)
	if err != nil || !slices.Equal(ids, []uint32{3, 0, 5, 6, 7, 9}) {
		t.Errorf("got %v, %v", ids, err)
	}
	for _, text := range []string{"10", "-1", "", "a", "7-3", "3-", "5-10", "1,,2", "99999999999"} {
		if ids, err := parseIDs(text, 10); err == nil {
			t.Errorf("%q: got %v, want an error", text, ids)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range []string{"", "help", "--help", "train --help", "completion bash", "version"} {
		if out, errs := mustInvoke(t, strings.Fields(args)...); out == "" || errs != "" {
			t.Errorf("%q: printed %d bytes, said %q", args, len(out), errs)
		}
	}
	out, _ := mustInvoke(t, "version", "--output", "json")
	if v := lastLine(t, out); v["kernels"] == "" || v["go"] == "" || v["platform"] == "" {
		t.Errorf("got %v", v)
	}
	t.Setenv("GNNACTOR_SIMD", "abacus")
	if code, _, errs := invoke(t, "version"); code != exitUsage || !strings.Contains(errs, "abacus") {
		t.Errorf("exit %d, said %q; want a kernel set refused", code, errs)
	}
}

// writerFunc is a writer that a test looks into.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// An interrupted run exits with 130, says how to go on, and goes on to the same
// bits as one that was not interrupted.
func TestInterrupt(t *testing.T) {
	store := storeOf(t, twoRings(t))
	ckpt := filepath.Join(t.TempDir(), "ckpt")
	args := []string{"train", "--data", store, "--batch-size", "16", "--epochs", "40", "--checkpoint", ckpt, "--output", "json"}
	ctx, cancel := context.WithCancel(t.Context())
	var said, out bytes.Buffer
	stop := writerFunc(func(p []byte) (int, error) {
		if strings.HasPrefix(string(p), "epoch 1/") {
			cancel()
		}
		return said.Write(p)
	})
	if code := run(ctx, args, &out, stop); code != exitInterrupted {
		t.Fatalf("exit %d, want %d\n%s", code, exitInterrupted, said.String())
	}
	if out.Len() > 0 || !strings.Contains(said.String(), "go on with --checkpoint "+ckpt+" --resume") {
		t.Errorf("printed %q, said %q", out.String(), said.String())
	}
	resumed, errs := mustInvoke(t, append(args, "--resume")...)
	if !strings.Contains(errs, "resumed after") {
		t.Errorf("said %q", errs)
	}
	whole, _ := mustInvoke(t, append(slices.Clone(args[:len(args)-4]), "--output", "json")...)
	a, b := lastLine(t, resumed), lastLine(t, whole)
	for _, k := range []string{"parameters_sha256", "test_accuracy", "train_loss", "batches"} {
		if fmt.Sprint(a[k]) != fmt.Sprint(b[k]) {
			t.Errorf("%s: %v after resuming, %v in one run", k, a[k], b[k])
		}
	}
	if _, errs := mustInvoke(t, append(args, "--resume", "--epochs", "1")...); !strings.Contains(errs, "more than the 1 that were asked for: nothing is trained") {
		t.Errorf("resumed after more epochs than there are to be: said %q", errs)
	}
	// The same directory with other settings is another run.
	if code, _, errs := invoke(t, append(args, "--resume", "--seed", "2")...); code != exitUsage || !strings.Contains(errs, "seed was 1 and is 2") {
		t.Errorf("exit %d, said %q; want the other seed refused", code, errs)
	}
	if code, _, errs := invoke(t, args...); code != exitUsage || !strings.Contains(errs, ckpt) {
		t.Errorf("exit %d, said %q; want a directory in use refused", code, errs)
	}
}

// A directory without checkpoints is a fresh start, and that is said.
func TestResumeFromNothing(t *testing.T) {
	ckpt := filepath.Join(t.TempDir(), "ckpt")
	_, errs := mustInvoke(t, "train", "--data", storeOf(t, twoRings(t)), "--epochs", "1", "--checkpoint", ckpt, "--resume")
	if !strings.Contains(errs, "starting afresh") {
		t.Errorf("said %q", errs)
	}
	if entries, err := os.ReadDir(ckpt); err != nil || len(entries) == 0 {
		t.Errorf("no checkpoint was written: %v", err)
	}
}

// An interrupt ends the import of what --data names, before the data is described.
func TestInterruptedImport(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	if err := os.WriteFile(filepath.Join(dir, "edges.csv"), []byte("0,1\n1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range []string{"train", "plan", "sample"} {
		var out, errs bytes.Buffer
		if code := run(ctx, []string{command, "--data", dir}, &out, &errs); code != exitInterrupted || strings.Contains(errs.String(), "edges") {
			t.Errorf("%s: exit %d: %s", command, code, errs.String())
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
