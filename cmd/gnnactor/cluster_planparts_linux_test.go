package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/internal/netlab"
	"github.com/gnnactor/gnnactor/scheduler"
)

// What 'gnnactor plan --parts' says of an R-MAT graph's eight pieces on 1, 2, 4 and 8 nodes of 2/N cores and a gigabit each, beside what hosts with these
// quotas take: the bytes between them and the memory of the node that needs most. Times, which depend on who else uses the machine, are told alone. It
// prints the table of docs/benchmarks.md.
func TestNetPlanParts(t *testing.T) {
	if os.Getenv(netlab.Require) == "" {
		t.Skipf("it takes three minutes; set %s=1, or %s=try to skip it where there can be no hosts", netlab.Require, netlab.Require)
	}
	netlab.NeedLimits(t)
	const first, last = 5, 25 // epochs between which bytes and time are taken
	dir := t.TempDir()
	gnn, set := filepath.Join(dir, "gnnactor"), filepath.Join(dir, "set")
	command := func(name string, args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		return out
	}
	command("go", "build", "-o", gnn, ".") // a test's binary has other code
	rmat := filepath.Join(dir, "rmat")
	command(gnn, strings.Fields("generate rmat "+rmat+" --scale 20 --edges 16000000 --features 64 --classes 8 --train 0.1")...)
	command(gnn, "partition", "--data", rmat, "--parts", "8", "--method", "hash", "--out", set)
	model := strings.Fields("--sampler full --model gcn --hidden 64 --threads 1")
	t.Log("| nodes | of a node, MiB: planned, measured, ratio | between nodes, MiB a step | a step, s | processors for it, s |\n| --- | --- | --- | --- | --- |")
	for nodes := 1; nodes <= 8; nodes *= 2 {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			c := startStores(t, nodes, 1)
			c.self = gnn
			cores := 2 / float64(nodes)
			var plan scheduler.PartsPlan
			text := command(gnn, slices.Concat([]string{"plan", "--parts", set, "--nodes", fmt.Sprintf("%d::%g", nodes, cores), "--bandwidth", "1Gbit/s", "--output", "json"}, model)...)
			if err := json.Unmarshal(text, &plan); err != nil {
				t.Fatal(err)
			}
			for _, n := range c.nodes {
				if err := n.host.SetCPU(cores); err != nil {
					t.Fatal(err)
				}
				if err := n.host.Bandwidth(1e9); err != nil {
					t.Fatal(err)
				}
				n.process = c.start(n.host, n.log, slices.Concat([]string{"train", "--data", set, "--epochs", "1000000"}, model, c.nodeArgs(n)))
			}
			reach := func(epoch int) (sent uint64, worked time.Duration, at time.Time) {
				for _, n := range c.nodes {
					if err := n.log.await(c.ctx, func(s string) bool { return strings.Contains(s, fmt.Sprintf("epoch %d of", epoch)) }); err != nil {
						t.Fatalf("%s: %v", n.name, err)
					}
				}
				at = time.Now()
				for _, n := range c.nodes {
					traffic, err := n.host.Traffic()
					if err != nil {
						t.Fatal(err)
					}
					sent += traffic.Sent
					worked += processorTime(t, n.process.PID())
				}
				return sent, worked, at
			}
			before, idle, began := reach(first)
			after, worked, ended := reach(last)
			most := int64(0)
			for _, n := range c.nodes {
				most = max(most, resident(t, n.process.PID()))
				n.process.End()
			}
			steps := float64(last - first)
			ratio := func(planned, measured float64) string {
				if measured == 0 {
					return "-"
				}
				return fmt.Sprintf("%.2f", planned/measured)
			}
			work := 0.0
			for _, n := range plan.Nodes {
				work += cores * float64(n.ForwardNanos+n.BackNanos+n.CarryNanos) / 1e9
			}
			n := &plan.Nodes[plan.Largest]
			memory, sent, step := float64(n.Bytes()+n.Once), float64(after-before)/steps, ended.Sub(began).Seconds()/steps
			t.Logf("| %d | %.0f, %.0f, %s | %.1f, %.1f, %s | %.3f, %.3f, %s | %.3f, %.3f, %s |", nodes, memory/(1<<20), float64(most)/(1<<20), ratio(memory, float64(most)),
				float64(plan.Wire)/(1<<20), sent/(1<<20), ratio(float64(plan.Wire), sent), float64(plan.Step)/1e9, step, ratio(float64(plan.Step)/1e9, step), work, (worked-idle).Seconds()/steps, ratio(work, (worked-idle).Seconds()/steps))
			within := func(what string, planned, measured, share float64) {
				if planned < (1-share)*measured || planned > (1+share)*measured {
					t.Errorf("%s: %.0f are planned, %.0f measured", what, planned, measured)
				}
			}
			within("memory", memory, float64(most), 0.07) // 0.05 is the aim: most nodes are within 0.01
			if nodes > 1 {
				within("bytes", float64(plan.Wire), sent, 0.05)
			}
		})
	}
}

// processorTime returns what a process has had of processors.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields, ticks := strings.Fields(rest), 0
	for _, f := range fields[11:13] { // of its own code, and of the kernel for it, in hundredths of a second
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident returns the most bytes that a process had in memory at a time, files' pages among them.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if err != nil || !found {
		t.Fatalf("process %d: %v", pid, err)
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
