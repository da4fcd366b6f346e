package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Links are trained, evaluated and embedded from the command line; the saved file
// says what it is for.
func TestLinkCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.safetensors")
	out, _ := mustInvoke(t, "train", "--task", "link", "--epochs", "1", "--dropout", "0", "--hidden", "16", "--save", file)
	if !strings.Contains(out, "hits@10") || strings.Contains(out, "accuracy") {
		t.Errorf("train prints\n%s", out)
	}
	out, errs := mustInvoke(t, "train", "--task", "link", "--epochs", "1", "--dropout", "0", "--hidden", "16", "--output", "json")
	if m := lastLine(t, out); m["test_accuracy"] != nil || m["valid_accuracy"] != nil || !(m["test_auc"].(float64) > 0.5) || !(m["valid_auc"].(float64) > 0.5) {
		t.Errorf("train prints\n%s", out)
	}
	if !strings.Contains(errs, "valid AUC ") || !strings.Contains(errs, "train accuracy ") {
		t.Errorf("train shows\n%s", errs)
	}
	out, _ = mustInvoke(t, "eval", "--params", file, "--output", "json")
	for split, v := range lastLine(t, out) {
		m := v.(map[string]any)
		if auc := m["auc"].(float64); auc < 0.55 || auc > 1 || m["average_precision"].(float64) < 0.55 || m["average_precision"].(float64) == auc || m["mrr"].(float64) <= 0 || m["links"].(float64) < 100 {
			t.Errorf("%s: %v", split, m)
		}
	}
	out, _ = mustInvoke(t, "embed", "--params", file, "--ids", "0,7")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || len(strings.Split(lines[1], "\t")) != 17 {
		t.Errorf("embed prints\n%s", out)
	}
	for _, args := range [][]string{
		{"predict", "--params", file, "--ids", "0"},
		{"train", "--task", "link", "--sampler", "frontier"},
		{"train", "--negatives", "3"},
	} {
		if code, _, errs := invoke(t, args...); code == exitDone || !strings.Contains(errs, "link") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
