package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An edge list becomes a store that verifies; a flipped byte is found.
func TestImportInspectVerify(t *testing.T) {
	src := writeTemp(t, "edges.csv", "0,1\n1,2\n2,3\n")
	store := filepath.Join(t.TempDir(), "store")
	text, _ := mustInvoke(t, "import", src, store, "--undirected", "--num-nodes", "5", "--name", "path")
	if !strings.Contains(text, "path: 5 nodes, 6 edges") {
		t.Errorf("got\n%s", text)
	}
	out, _ := mustInvoke(t, "inspect", store, "--verify", "--output", "json")
	if v := lastLine(t, out); v["nodes"] != 5.0 || v["edges"] != 6.0 || v["verified"] != true || v["name"] != "path" {
		t.Errorf("got %v", v)
	}
	if table, _ := mustInvoke(t, "inspect", store); !strings.Contains(table, "isolated nodes") || strings.Contains(table, "verified") {
		t.Errorf("got\n%s", table)
	}
	if code, _, errs := invoke(t, "import", src, store); code != exitFailed || !strings.Contains(errs, store) {
		t.Errorf("exit %d, said %q; want the store that is there kept", code, errs)
	}
	mustInvoke(t, "import", src, store, "--overwrite", "--output", "json")

	files, err := filepath.Glob(filepath.Join(store, "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	largest := slices.MaxFunc(files, func(a, b string) int { return int(size(t, a) - size(t, b)) })
	content, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(largest, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := invoke(t, "inspect", store, "--verify"); code != exitFailed || !strings.Contains(errs, filepath.Base(largest)) {
		t.Errorf("exit %d, said %q; want the flipped byte in %s found", code, errs, filepath.Base(largest))
	}
}

func size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Bad input names file and line, and leaves nothing behind.
func TestImportOfBadData(t *testing.T) {
	src := writeTemp(t, "edges.csv", "0,1\n1,\n")
	store := filepath.Join(t.TempDir(), "store")
	code, _, errs := invoke(t, "import", src, store)
	if code != exitFailed || !strings.Contains(errs, "edges.csv") || !strings.Contains(errs, "line 2") {
		t.Errorf("exit %d, said %q", code, errs)
	}
	if left, err := os.ReadDir(filepath.Dir(store)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
