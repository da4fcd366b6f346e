package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The confusion of the test nodes: a table, JSON, counts as CSV, and a picture with the names of classes.
func TestConfusion(t *testing.T) {
	dir := t.TempDir()
	store, model := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors")
	mustInvoke(t, "import", tablesOf(t, 60, false), store, "--label", "licence", "--feature", "section", "--split", "random:60/20/20")
	mustInvoke(t, "train", "--data", store, "--epochs", "2", "--fanouts", "5,5", "--save", model)
	file := filepath.Join(dir, "c.csv")
	out, _ := mustInvoke(t, "eval", "--data", store, "--params", model, "--confusion", "--plot", file, "--output", "json")
	r := lastLine(t, out)
	c := r["confusion"].(map[string]any)
	all, right := 0.0, 0.0
	for i, row := range c["counts"].([]any) {
		for j, n := range row.([]any) {
			if all += n.(float64); i == j {
				right += n.(float64)
			}
		}
	}
	test := r["test"].(map[string]any)
	if accuracy := right / all; all != 12 || accuracy != test["accuracy"] || test["average_precision"] == nil || len(c["classes"].([]any)) != 3 {
		t.Errorf("%v, of %v nodes %v are right", r, all, right)
	}
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "class,BSD,GPL,MIT\nBSD,") {
		t.Errorf("%s, %v", b, err)
	}
	text, _ := mustInvoke(t, "eval", "--data", store, "--params", model, "--confusion", "--plot", filepath.Join(dir, "c.svg"))
	if !strings.Contains(text, "class \\ predicted") || !strings.Contains(text, "GPL") {
		t.Errorf("the table is\n%s", text)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "c.svg")); err != nil || strings.Count(string(b), ">GPL<") != 2 {
		t.Errorf("the picture names GPL %d times, %v", strings.Count(string(b), ">GPL<"), err)
	}
	if code, _, errs := invoke(t, "eval", "--data", store, "--params", model, "--plot", filepath.Join(dir, "c.txt")); code != exitUsage || !strings.Contains(errs, ".svg or .png or .csv") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
