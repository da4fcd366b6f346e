package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each epoch has its line in --metrics, as JSON or CSV, whose header is written once; a run that goes on adds its own. The directory is made.
func TestMetrics(t *testing.T) {
	store, dir := storeOf(t, twoRings(t)), filepath.Join(t.TempDir(), "new", "directory")
	train := func(file, epochs string, more ...string) {
		mustInvoke(t, append([]string{"train", "--data", store, "--batch-size", "20", "--keep", "best", "--eval-every", "2", "--epochs", epochs, "--metrics", filepath.Join(dir, file)}, more...)...)
	}
	lines := func(file string) []string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	run := filepath.Join(dir, "run")
	train("m.csv", "3", "--checkpoint", run)
	train("m.csv", "4", "--checkpoint", run, "--resume")
	all := lines("m.csv")
	if len(all) != 5 || !strings.HasPrefix(all[0], "epoch,steps,seconds,loss,train_accuracy,valid_accuracy,test_accuracy,best_epoch,sample_seconds,") {
		t.Fatalf("got\n%s", strings.Join(all, "\n"))
	}
	for i, line := range all[1:] {
		f := strings.Split(line, ",")
		if f[0] != string(rune('1'+i)) || f[1] != []string{"3", "6", "9", "12"}[i] || (f[5] == "") != (i%2 == 0) || (f[7] == "") != (i == 0) {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
	train("m.jsonl", "2")
	all = lines("m.jsonl")
	var v map[string]any
	if err := json.Unmarshal([]byte(all[len(all)-1]), &v); err != nil || len(all) != 2 || v["epoch"] != 2.0 || v["valid_accuracy"] == nil || v["best_epoch"] != 2.0 || v["loss"] == nil {
		t.Errorf("%v: got\n%s", err, strings.Join(all, "\n"))
	}
	if code, _, errs := invoke(t, "train", "--metrics", filepath.Join(dir, "m.txt")); code != exitUsage || !strings.Contains(errs, ".jsonl") {
		t.Errorf("another ending: exit %d, %s", code, errs)
	}
}

// cutOff is the standard error of a run that is interrupted when it has said something.
type cutOff struct {
	bytes.Buffer
	at     string
	cancel func()
}

func (c *cutOff) Write(b []byte) (int, error) {
	n, err := c.Buffer.Write(b)
	if strings.Contains(c.String(), c.at) {
		c.cancel()
	}
	return n, err
}

// A run that is interrupted writes what was asked for: --save has what it came to, over a partition set, too. One that made no step leaves an older file alone.
func TestInterruptedRunSaves(t *testing.T) {
	store, dir := storeOf(t, twoRings(t)), t.TempDir()
	model, plot := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "c.csv")
	interrupted := func(at string, more ...string) (int, string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		errs := &cutOff{at: at, cancel: cancel}
		code := run(ctx, append([]string{"train", "--data", store, "--batch-size", "20", "--epochs", "1000000", "--save", model, "--plot", plot}, more...), new(bytes.Buffer), errs)
		return code, errs.String()
	}
	code, errs := interrupted("epoch 1/")
	if code != exitInterrupted || !strings.Contains(errs, "parameters saved to "+model) || !strings.Contains(errs, "curves written to "+plot) || strings.Contains(errs, "nothing was kept") {
		t.Errorf("exit %d: %s", code, errs)
	}
	mustInvoke(t, "eval", "--data", store, "--params", model)
	before, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	if code, errs := interrupted("rings: 120 nodes"); code != exitInterrupted || strings.Contains(errs, "parameters saved") {
		t.Errorf("before the first step: exit %d: %s", code, errs)
	}
	if after, err := os.ReadFile(model); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a run without a step has written over the file: %v", err)
	}

	set := filepath.Join(dir, "set")
	mustInvoke(t, "partition", "--data", store, "--parts", "1", "--out", set)
	for at, saves := range map[string]bool{"in 1 pieces": false, "epoch 2 of": true} {
		model := filepath.Join(dir, "pieces.safetensors")
		ctx, cancel := context.WithCancel(t.Context())
		errs := &cutOff{at: at, cancel: cancel}
		args := []string{"train", "--data", set, "--sampler", "khop", "--hybrid", "--batch-size", "20", "--epochs", "1000000", "--save", model}
		code := run(ctx, args, new(bytes.Buffer), errs)
		cancel()
		_, err := os.Stat(model)
		if code != exitInterrupted || strings.Contains(errs.String(), "parameters saved to "+model) != saves || (err == nil) != saves {
			t.Errorf("over a partition set, at %q: exit %d: %s", at, code, errs)
		}
		if saves {
			mustInvoke(t, "eval", "--data", store, "--params", model)
		}
		os.Remove(model)
	}
}

// An output that fails when training has ended keeps no other from being written, and each failure is reported.
func TestFailedOutputsLoseNothing(t *testing.T) {
	store, dir := storeOf(t, twoRings(t)), t.TempDir()
	model, gone := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	errs := &cutOff{at: "rings: 120 nodes", cancel: func() { os.RemoveAll(gone) }}
	var out bytes.Buffer
	code := run(t.Context(), []string{
		"train", "--data", store, "--epochs", "1", "--save", model, "--plot", filepath.Join(gone, "c.svg"), "--trace", filepath.Join(gone, "t.json"), "--output", "json",
	}, &out, errs)
	if code != exitFailed || !strings.Contains(errs.String(), "--plot: ") || !strings.Contains(errs.String(), "trace: ") || !strings.Contains(errs.String(), "parameters saved to") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if v := lastLine(t, out.String()); v["epochs"] != 1.0 {
		t.Errorf("the result is %v", v)
	}
	mustInvoke(t, "eval", "--data", store, "--params", model)
	if code, _, errs := invoke(t, "train", "--data", store, "--steps", filepath.Join(model, "s"), "--metrics", filepath.Join(model, "m.csv")); code != exitUsage || !strings.Contains(errs, "--steps") || !strings.Contains(errs, "--metrics") {
		t.Errorf("outputs that cannot be: exit %d, %s", code, errs)
	}
}
