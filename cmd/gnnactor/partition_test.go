package main

import (
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
)

// A partition is saved, listed, used by the cluster sampler, and trained on.
func TestPartition(t *testing.T) {
	store := storeOf(t, generate.Builtin())
	out, _ := mustInvoke(t, "partition", "--data", store, "--parts", "20", "--output", "json")
	v := lastLine(t, out)
	if v["clusters"].(float64) < 15 || v["cut_share"].(float64) <= 0 || v["cut_share"].(float64) > 0.9 {
		t.Errorf("got %v", v)
	}
	text, _ := mustInvoke(t, "partition", "--data", store, "--parts", "8", "--method", "contiguous")
	if !strings.Contains(text, "edges cut") || !strings.Contains(text, "500") {
		t.Errorf("got\n%s", text)
	}
	text, _ = mustInvoke(t, "inspect", store, "--verify")
	if !strings.Contains(text, "metis, 20 parts") || !strings.Contains(text, "contiguous, 8 parts") {
		t.Errorf("inspect does not list the partitions:\n%s", text)
	}
	out, _ = mustInvoke(t, "sample", "--data", store, "--sampler", "cluster", "--sampler-options", "partition-by=contiguous", "--output", "json")
	if n := lastLine(t, out)["mean_input_nodes"]; n != 500.0 {
		t.Errorf("clusters of 500 nodes made batches of %v", n)
	}
	// Every cluster once an epoch: 20 in batches of 3.
	out, _ = mustInvoke(t, "train", "--data", store, "--sampler", "cluster", "--sampler-options", "clusters=20,per-batch=3", "--epochs", "2", "--output", "json")
	if v := lastLine(t, out); v["batches"] != 14.0 {
		t.Errorf("%v batches in 2 epochs, want 14", v["batches"])
	}
}

func TestPartitionRefuses(t *testing.T) {
	store := storeOf(t, twoRings(t))
	for want, args := range map[string][]string{
		"--data: say":      {"--parts", "3"},
		"--parts 0":        {"--data", store},
		"of 120 nodes":     {"--data", store, "--parts", "121"},
		"--method: \"luck": {"--data", store, "--parts", "3", "--method", "luck"},
	} {
		code, _, stderr := invoke(t, append([]string{"partition"}, args...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
	if code, _, stderr := invoke(t, "partition", "--data", t.TempDir(), "--parts", "2"); code != 1 || !strings.Contains(stderr, "not a known format") {
		t.Errorf("an empty directory: %d, %s", code, stderr)
	}
}
