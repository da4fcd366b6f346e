package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stepLines reads what --steps wrote.
func stepLines(t *testing.T, name string) (all []stepLine) {
	t.Helper()
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var l stepLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			if !strings.HasSuffix(line, "\n") {
				break // its writer was killed
			}
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, l)
	}
	return all
}

// Every step has its line, with its staleness where there can be one.
func TestSteps(t *testing.T) {
	name := filepath.Join(t.TempDir(), "steps")
	out, _ := mustInvoke(t, "train", "--sync", "ssp:2", "--trainers", "3", "--epochs", "2", "--batch-size", "64", "--steps", name, "--output", "json")
	m := lastLine(t, out)
	counts := make([]float64, 3)
	lines := stepLines(t, name)
	seen := map[[2]int]bool{}
	for i, l := range lines {
		if l.Applied != int64(i+1) || l.Time.IsZero() || l.Staleness == nil || *l.Staleness < 0 || *l.Staleness > 2 {
			t.Fatalf("line %d: %+v", i, l)
		}
		counts[*l.Staleness]++
		seen[[2]int{l.Epoch, l.Batch}] = true
	}
	if n := m["batches"].(float64); len(lines) != int(n) || len(seen) != int(n) {
		t.Errorf("%d lines of %d batches, for %v", len(lines), len(seen), n)
	}
	for i, n := range m["staleness"].([]any) {
		if counts[i] != n.(float64) {
			t.Errorf("%v lines are %d steps late; the result says %v", counts[i], i, n)
		}
	}
	mustInvoke(t, "train", "--epochs", "1", "--batch-size", "64", "--steps", name)
	more := stepLines(t, name)
	if len(more) <= len(lines) || more[len(more)-1].Staleness != nil {
		t.Errorf("a synchronous run made %d lines more, the last %+v", len(more)-len(lines), more[len(more)-1])
	}
	if code, _, _ := invoke(t, "train", "--steps", filepath.Join(name, "x", "y")); code != 2 {
		t.Errorf("a file in no directory: exit %d", code)
	}
}
