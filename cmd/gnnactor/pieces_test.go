package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
)

// A store is divided into pieces, which inspect shows and verifies, and which training takes for a graph.
func TestPartitionOut(t *testing.T) {
	store := storeOf(t, generate.Builtin())
	set := filepath.Join(t.TempDir(), "set")
	text, _ := mustInvoke(t, "partition", "--data", store, "--parts", "3", "--method", "fennel", "--out", set)
	for _, want := range []string{"piece", "fennel, edges at target", "edges cut", "of bytes", "copies of a node"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	out, _ := mustInvoke(t, "inspect", set, "--verify", "--output", "json")
	v := lastLine(t, out)
	if len(v["pieces"].([]any)) != 3 || v["verified"] != true || v["nodes"] != 4000.0 {
		t.Errorf("got %v", v)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(report, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	planned := []string{"plan", "--parts", report, "--sampler", "full", "--model", "gcn", "--hidden", "8"}
	for want, args := range map[string][]string{
		"2 ":                              {},
		"global batches over 2 nodes":     {"--nodes", "2", "--bandwidth", "25Gbit", "--memory", "64GiB"},
		"gradients of rows of layer 1":    {"--nodes", "3::0.5", "--parts", set},
		`"sent":`:                         {"--nodes", "2", "--output", "json"},
		"!needs":                          {"--nodes", "3", "--memory", "64KiB"},
		"!4 nodes for 3 pieces":           {"--nodes", "4"},
		"!nodes are alike and do all":     {"--nodes", "1:trainer", "--nodes", "1:sampler"},
		"!is not a size":                  {"--nodes", "1", "--memory", "much"},
		"!nothing is read but":            {"--data", store},
		"!no report of a partition set":   {"--parts", filepath.Join(set, "train")},
		"!make it with 'gnnactor inspect": {"--parts", report + ".none"},
		"!global batches (sampler: full)": {"--sampler", "neighbor"},
	} {
		code, text, stderr := invoke(t, append(slices.Clone(planned), args...)...)
		want, refused := strings.CutPrefix(want, "!")
		if refused != (code != 0) || !strings.Contains(text+stderr, want) {
			t.Errorf("plan %q: exit code %d, no %q in\n%s%s", args, code, want, text, stderr)
		}
	}
	if code, _, stderr := invoke(t, "plan", "--memory", "1GiB"); code != 2 || !strings.Contains(stderr, "--parts") {
		t.Errorf("plan --memory: %d, %s", code, stderr)
	}
	mustInvoke(t, "train", "--data", set, "--epochs", "1")
	for want, args := range map[string][]string{
		"is a partition set, a graph in pieces":                                      {"partition", "--parts", "2"},
		"is a partition set; sampling alone":                                         {"sample"},
		"do not have: patience, keep best, and the plateau schedule; leave that out": {"train", "--sampler", "full", "--patience", "3"},
		"is planned with --parts " + set:                                             {"plan", "--sampler", "khop", "--hybrid"},
		"credits and sample-on, as nothing is sampled; --plot; --shards, which are":  {"train", "--sampler", "full", "--shards", "2", "--credits", "2", "--plot", "x.svg"},
	} {
		if code, _, stderr := invoke(t, append(args, "--data", set)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d, %s", args[0], code, stderr)
		}
	}
	if code, _, stderr := invoke(t, "partition", "--data", store, "--parts", "3", "--out", set); code != 1 || !strings.Contains(stderr, "--overwrite") {
		t.Errorf("a set that is there: %d, %s", code, stderr)
	}
	for want, args := range map[string][]string{
		"--out":               {"--method", "fennel"},
		"--edges is read":     {"--edges", "grid"},
		"is not a size":       {"--memory", "much", "--out", set},
		"is not one of":       {"--edges", "there", "--out", set},
		"--overwrite is read": {"--overwrite"},
	} {
		code, _, stderr := invoke(t, append([]string{"partition", "--data", store, "--parts", "2"}, args...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// A list of edges is divided into the pieces that its store is, and leaves nothing beside them, nor does one that is damaged.
func TestPartitionEdgeList(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for v := range 5000 {
		fmt.Fprintf(&lines, "%d,%d\n", v*v%5000, v)
	}
	list := filepath.Join(dir, "edges.csv")
	if err := os.WriteFile(list, []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	mustInvoke(t, "import", list, filepath.Join(dir, "store"), "--name", "edges.csv")
	divide := func(data, set string) (code int, fingerprint any, stderr string) {
		code, out, stderr := invoke(t, "partition", "--data", data, "--parts", "2", "--method", "hash", "--out", filepath.Join(dir, set), "--output", "json")
		if code == 0 {
			fingerprint = lastLine(t, out)["fingerprint"]
		}
		return code, fingerprint, stderr
	}
	_, want, _ := divide(filepath.Join(dir, "store"), "a")
	if code, got, stderr := divide(list, "b"); code != 0 || got != want {
		t.Errorf("%d, %s: fingerprint %v, want %v", code, stderr, got, want)
	}
	if text, _ := mustInvoke(t, "inspect", filepath.Join(dir, "b")); !strings.Contains(text, "of bytes\n") || strings.Contains(text, "NaN") {
		t.Errorf("a set without training nodes:\n%s", text)
	}
	if code, _, stderr := divide(list, "b"); code == 0 || !strings.Contains(stderr, "--overwrite") {
		t.Errorf("a set that is there: %d, %s", code, stderr)
	}
	if err := os.WriteFile(list, []byte("1,2\n3\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := divide(list, "c"); code != 1 || !strings.Contains(stderr, "line 2") {
		t.Errorf("a damaged list: %d, %s", code, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
