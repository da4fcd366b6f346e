package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tablesOf writes edges and nodes of n packages: a section, which says what licence one has, a size, and the licence unless unlabelled.
func tablesOf(t *testing.T, n int, unlabelled bool) string {
	t.Helper()
	dir := t.TempDir()
	nodes, edges := "name,section,size,licence\n", "from,to\n"
	if unlabelled {
		nodes = "name,size,section\n"
	}
	sections, licences := []string{"libs", "games", "editors"}, []string{"MIT", "GPL", "BSD"}
	for v := range n {
		k := v % 3
		if unlabelled {
			section := sections[k]
			if v == 0 {
				section = "unheard-of"
			}
			nodes += fmt.Sprintf("pkg%d,%d,%s\n", v, v%5, section)
		} else {
			nodes += fmt.Sprintf("pkg%d,%s,%d,%s\n", v, sections[k], v%5, licences[k])
		}
		edges += fmt.Sprintf("pkg%d,pkg%d\npkg%[1]d,pkg%[3]d\n", v, (v+3)%n, (v+1)%n)
	}
	for name, text := range map[string]string{"nodes.csv": nodes, "edges.csv": edges} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A model goes with its recipe: tables of other nodes, without labels and with the columns in another order, are
// made to features as those of its training, and predictions have the names of its classes. A directory of checkpoints
// is as good, and inspect shows both.
func TestModelOnOtherTables(t *testing.T) {
	dir := t.TempDir()
	store, model, run := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "run")
	mustInvoke(t, "import", tablesOf(t, 60, false), store, "--label", "licence", "--feature", "section", "--feature", "size", "--split", "random:60/20/20", "--scale", "standard")
	out, _ := mustInvoke(t, "train", "--data", store, "--epochs", "30", "--fanouts", "5,5", "--hidden", "16", "--dropout", "0", "--batch-size", "36", "--keep", "best", "--save", model, "--checkpoint", run, "--output", "json")
	trained := lastLine(t, out)
	if trained["best_epoch"] == nil || trained["epochs"] != 30.0 {
		t.Errorf("trained: %v", trained)
	}
	other := tablesOf(t, 30, true)
	predicted, _ := mustInvoke(t, "predict", "--data", other, "--params", model)
	lines := strings.Split(strings.TrimSpace(predicted), "\n")
	if len(lines) != 30 {
		t.Fatalf("%d lines of 30 nodes:\n%s", len(lines), predicted)
	}
	right := 0
	for _, line := range lines {
		f := strings.Split(line, "\t")
		var v int
		if _, err := fmt.Sscanf(f[0], "pkg%d", &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if f[1] == []string{"MIT", "GPL", "BSD"}[v%3] {
			right++
		}
	}
	if right < 27 {
		t.Errorf("%d of 30 are right on data that the section alone tells apart:\n%s", right, predicted)
	}
	again, _ := mustInvoke(t, "predict", "--data", other, "--params", run)
	if again != predicted {
		t.Error("the checkpoints' model predicts otherwise")
	}
	imported := filepath.Join(dir, "imported")
	mustInvoke(t, "import", other, imported, "--recipe", model)
	if by, _ := mustInvoke(t, "predict", "--data", imported, "--params", model); by != predicted {
		t.Errorf("the tables, imported by the model's recipe, are predicted as\n%s\nand opened directly as\n%s", by, predicted)
	}
	if code, _, errs := invoke(t, "eval", "--data", imported, "--params", model); code != exitFailed || !strings.Contains(errs, "has no labels") {
		t.Errorf("measured without labels: exit %d, %s", code, errs)
	}
	empty := t.TempDir() // a column of labels that are all missing
	for file, text := range map[string]string{"edges.csv": "src,dst\npkg1,pkg2\n", "nodes.csv": "id,section,size,licence\npkg1,web,1,\npkg2,web,2,\n"} {
		if err := os.WriteFile(filepath.Join(empty, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := invoke(t, "eval", "--data", empty, "--params", model); code != exitFailed || !strings.Contains(errs, "has a label to compare predictions with") {
		t.Errorf("measured where no label is known: exit %d, %s", code, errs)
	}
	raw := filepath.Join(dir, "raw")
	mustInvoke(t, "import", other, raw, "--feature", "section", "--feature", "size")
	if code, _, errs := invoke(t, "predict", "--data", raw, "--params", model); code == exitDone || !strings.Contains(errs, `the column "section" is another category`) || !strings.Contains(errs, "--recipe "+model) {
		t.Errorf("a store made by another recipe: exit %d, %s", code, errs)
	}
	whole := tablesOf(t, 30, false)
	measured, _ := mustInvoke(t, "eval", "--data", whole, "--params", model, "--output", "json")
	if all := lastLine(t, measured)["all"].(map[string]any); all["nodes"] != 30.0 {
		t.Errorf("labels without splits: %v", all)
	}

	for _, path := range []string{model, run} {
		text, _ := mustInvoke(t, "inspect", path)
		for _, want := range []string{"sage, 2 layers, 16 wide", "section, size", "BSD, GPL, MIT", trained["parameters_sha256"].(string), "verified"} {
			if !strings.Contains(text, want) {
				t.Errorf("inspect %s lacks %q:\n%s", path, want, text)
			}
		}
		if path == run && !strings.Contains(text, fmt.Sprintf("%v  best by validation", trained["best_epoch"])) {
			t.Errorf("inspect does not say which epoch is best, %v:\n%s", trained["best_epoch"], text)
		}
	}
	js, _ := mustInvoke(t, "inspect", run, "--output", "json")
	if c := lastLine(t, js)["checkpoint"].(map[string]any); c["epochs"] != 30.0 || c["best_epoch"] != trained["best_epoch"] {
		t.Errorf("inspect says %v", c)
	}
}
