package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run that is refused leaves no empty --steps and --metrics, and files that were there as they were; a node without a class that is
// probable enough has a line all the same.
func TestNothingToWrite(t *testing.T) {
	dir := t.TempDir()
	steps, metrics := filepath.Join(dir, "steps.jsonl"), filepath.Join(dir, "metrics.csv")
	if err := os.WriteFile(metrics, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := invoke(t, "train", "--steps", steps, "--metrics", metrics, "--class-weights", "1,2"); code == exitDone {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, err := os.Stat(steps); !os.IsNotExist(err) {
		t.Errorf("a refused run left its steps: %v", err)
	}
	if _, err := os.Stat(metrics); err != nil {
		t.Errorf("a file that was there: %v", err)
	}
	model, out := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "p.csv")
	mustInvoke(t, "train", "--epochs", "0", "--save", model)
	mustInvoke(t, "predict", "--params", model, "--ids", "5,6", "--threshold", "0.99", "--out", out)
	if b, err := os.ReadFile(out); err != nil || strings.ReplaceAll(string(b), "\r", "") != "id,class,probability\n5,,\n6,,\n" {
		t.Errorf("%q, %v", b, err)
	}
}
