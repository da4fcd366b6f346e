package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pairs of a file are scored under their names, and the best links of a node are among them.
func TestPredictLinks(t *testing.T) {
	dir := t.TempDir()
	store, model, pairs := filepath.Join(dir, "store"), filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "pairs.csv")
	mustInvoke(t, "import", tablesOf(t, 60, false), store, "--label", "none", "--feature", "section")
	mustInvoke(t, "train", "--data", store, "--task", "link", "--epochs", "1", "--fanouts", "5,5", "--save", model)
	text := "src,dst\n"
	for v := range 60 {
		text += fmt.Sprintf("pkg7,pkg%d\n", v)
	}
	if err := os.WriteFile(pairs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--pairs", pairs)
	top, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg7", "--top", "3")
	lines := strings.Split(strings.TrimSpace(top), "\n")
	if len(lines) != 3 || strings.Count(all, "\n") != 60 {
		t.Fatalf("the best:\n%s\nall:\n%s", top, all)
	}
	for _, line := range lines {
		name := strings.Split(line, "\t")[1]
		if !strings.Contains(all, line+"\n") || name == "pkg7" || name == "pkg8" || name == "pkg10" { // itself, and what it is joined to
			t.Errorf("%q is one of the best", line)
		}
	}
	second, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg9", "--top", "3")
	if both, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg7,pkg9", "--top", "3"); both != top+second || second == "" {
		t.Errorf("of two nodes:\n%s", both)
	}
	header := filepath.Join(dir, "header.csv") // as a program writes it
	if err := os.WriteFile(header, []byte("\ufeffSource,Target\npkg7,pkg8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if one, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--pairs", header); !strings.Contains(all, one) || strings.Count(one, "\n") != 1 {
		t.Errorf("under a header: %q", one)
	}
	none := filepath.Join(dir, "none.csv")
	if err := os.WriteFile(none, []byte("src,dst\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	some := filepath.Join(dir, "some.csv")
	if err := os.WriteFile(some, []byte("id,section\npkg7,x\npkg8,x\npkg20,y\npkg40,x\npkg20,y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	few, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg7", "--among", some)
	for _, line := range strings.Split(strings.TrimSpace(few), "\n") { // neither itself nor what it is joined to
		if name := strings.Split(line, "\t")[1]; !strings.Contains(all, line+"\n") || strings.Count(few, "\n") != 2 || name != "pkg20" && name != "pkg40" {
			t.Errorf("of some:\n%s", few)
		}
	}
	out := filepath.Join(dir, "l.csv")
	if said, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg7", "--joined", "--out", out); !strings.HasSuffix(said, "scores of 10 pairs\n") {
		t.Errorf("it says %q", said)
	}
	if b, err := os.ReadFile(out); err != nil || !strings.HasPrefix(string(b), "src,dst,score,probability\npkg7,pkg") || strings.Count(string(b), "\n") != 11 {
		t.Errorf("%s, %v", b, err)
	}
	js, _ := mustInvoke(t, "predict", "--data", store, "--params", model, "--links", "pkg7", "--output", "json")
	if links := lastLine(t, js)["links"].([]any); len(links) != 10 || links[0].(map[string]any)["src"] != "pkg7" {
		t.Errorf("%v", links)
	}
	if err := os.WriteFile(pairs, []byte("pkg7,pkg8\npkg7,pkg99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pairs+"x", []byte("pkg7\npkg99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"--pairs " + pairs: `line 2: `, "--pairs nowhere.csv": "nowhere.csv", "--pairs " + none: "it names no pair", "--links pkg7,pkg99": `--links: runtime: no such node: no node is called "pkg99"`, "--links pkg7 --threshold 0.5": "--threshold", "": "--pairs FILE",
		"--links pkg7 --pairs " + pairs: "give one", "--among " + some: "--among is of --links", "--links pkg7 --among nowhere.csv": "nowhere.csv", "--links pkg7 --among " + pairs + "x": "pairs.csvx line 2: ",
	} {
		if code, _, errs := invoke(t, append([]string{"predict", "--data", store, "--params", model}, strings.Fields(args)...)...); code == exitDone || !strings.Contains(errs, says) {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
}
