package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A column of numbers as labels is learnt, measured and predicted as numbers, in the ways that classes are.
func TestRegressionCommands(t *testing.T) {
	dir := t.TempDir()
	store, model := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors")
	mustInvoke(t, "import", tablesOf(t, 60, false), store, "--label", "size:number", "--feature", "section", "--split", "random:60/20/20")
	if text, _ := mustInvoke(t, "inspect", store); !strings.Contains(text, "numbers") {
		t.Errorf("inspect says\n%s", text)
	}
	out, said := mustInvoke(t, "train", "--data", store, "--epochs", "3", "--fanouts", "5,5", "--loss", "huber", "--keep", "best", "--metrics", filepath.Join(dir, "m.csv"), "--save", model, "--output", "json")
	if r := lastLine(t, out); r["test_accuracy"] != nil || r["test_rmse"].(float64) <= 0 || r["valid_rmse"] == nil || !strings.Contains(said, "valid RMSE ") || strings.Contains(said, "train NaN") {
		t.Errorf("trained: %v\n%s", r, said)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "m.csv")); err != nil || !strings.Contains(string(b), "valid_rmse,test_rmse") {
		t.Errorf("metrics: %s, %v", b, err)
	}
	measured, _ := mustInvoke(t, "eval", "--data", store, "--params", model, "--output", "json")
	if test := lastLine(t, measured)["test"].(map[string]any); test["rmse"].(float64) < test["mae"].(float64) || test["nodes"] != 12.0 || test["r2"] == nil {
		t.Errorf("measured: %v", test)
	}
	line, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "pkg7")
	name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
	js, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "pkg7", "--output", "json")
	if name != "pkg7" || !strings.Contains(js, `{"id":"pkg7","value":`+value+"}") {
		t.Errorf("predicted %q, and %s", line, js)
	}
	for file, want := range map[string]string{"p.csv": "id,value\npkg7," + value + "\n", "p.jsonl": `{"id":"pkg7","value":` + value + "}\n", "p.npy": "'shape': (1, 1)"} {
		file = filepath.Join(dir, file)
		mustInvoke(t, "predict", "--data", store, "--params", model, "--ids", "pkg7", "--out", file)
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %q, %v; want %q", file, b, err, want)
		}
	}
	for args, says := range map[string]string{"--top 2": "the model predicts numbers", "--probabilities --out " + filepath.Join(dir, "x.csv"): "the model predicts numbers"} {
		if code, _, errs := invoke(t, append([]string{"predict", "--data", store, "--params", model}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := invoke(t, "partition", "--data", store, "--out", filepath.Join(dir, "set"), "--parts", "2", "--method", "contiguous"); code == exitDone || !strings.Contains(errs, "the labels are numbers") {
		t.Errorf("divided: exit %d, %s", code, errs)
	}
}
