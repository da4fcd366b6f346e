package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What planned memory is of what was measured, in the table of docs/benchmarks.md.
const leastPlanned, mostPlanned = 1, 1.3

// What 'gnnactor plan' says a training takes at most, beside what it took: the most anonymous memory that the process had at a time.
// It prints the table of docs/benchmarks.md (.ci/long planned).
func TestPlannedMemory(t *testing.T) {
	if os.Getenv("GNNACTOR_PLANNED") == "" {
		t.Skip("twenty trainings of three minutes in all; GNNACTOR_PLANNED=1 runs them")
	}
	dir := t.TempDir()
	gnn := filepath.Join(dir, "gnnactor")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", gnn, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := func(line string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), gnn, strings.Fields(line)...)
		cmd.Dir = dir
		return cmd
	}
	for _, line := range []string{"sbm small --nodes 20000 --degree 20", "sbm blocks --nodes 100000 --degree 20", "rmat rmat --scale 18 --edges 2000000 --features 64 --classes 16 --train 0.1"} {
		if out, err := command("generate " + line).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Log("| data | settings | planned, MiB | measured, MiB | planned / measured |\n| --- | --- | --- | --- | --- |")
	for _, line := range []string{
		"small", "small --model gcn --sampler khop --batch-size 256", "small --model gat --heads 4", "small --model gin --fanouts 5,5,5", "small --model gcn --sampler full", "small --sampler cluster --sampler-options clusters=50,per-batch=5",
		"blocks", "blocks --fanouts 10,10,5", "blocks --fanouts 10,10,5 --hidden 256 --batch-size 1024", "blocks --model gcn --sampler labor", "blocks --model gat --heads 4 --sampler full --hidden 32", "blocks --model gatv2 --heads 2",
		"blocks --sampler node --sampler-options budget=8000", "blocks --sampler frontier --sampler-options frontier=1000,budget=8000", "blocks --model gin --sampler gns --fanouts 10,10",
		"rmat", "rmat --model gcn --fanouts 15,10,5", "rmat --model mixhop --hops 2 --fanouts 5,5,5,5", "rmat --model sage --sampler ladies --fanouts 512,512", "rmat --features disk --cache degree:5%",
	} {
		data, flags, _ := strings.Cut(line, " ")
		args := " --data " + data + " " + flags + " --threads 2 --memory-limit none --output json"
		text, err := command("plan" + args).Output()
		var planned struct {
			Peak int64 `json:"peak_bytes"`
		}
		if err == nil {
			err = json.Unmarshal(text[bytes.LastIndexByte(bytes.TrimSpace(text), '\n')+1:], &planned)
		}
		if err != nil {
			t.Fatalf("plan %s: %v", line, err)
		}
		run := command("train --epochs 4" + args) // of two, the plan's refinement is still on its way
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()
		most, look := int64(0), time.NewTicker(time.Millisecond)
		for going := true; going; {
			select {
			case err := <-ended:
				if going = false; err != nil {
					t.Errorf("train %s: %v", line, err)
				}
			case <-look.C:
				most = max(most, anonymous(run.Process.Pid))
			}
		}
		look.Stop()
		ratio := float64(planned.Peak) / float64(most)
		if flags = "`" + flags + "`"; flags == "``" {
			flags = "defaults"
		}
		t.Logf("| %s | %s | %d | %d | %.2f |", data, flags, planned.Peak>>20, most>>20, ratio)
		if ratio < leastPlanned || ratio > mostPlanned {
			t.Errorf("%s: the plan has %d MiB, and it took %d", line, planned.Peak>>20, most>>20)
		}
	}
}

// anonymous returns how many bytes of a process are in memory and of no file; 0 when it has ended.
func anonymous(pid int) int64 {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, rest, found := strings.Cut(string(status), "RssAnon:")
	if err != nil || !found {
		return 0
	}
	n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel writes a number
	return n << 10
}
