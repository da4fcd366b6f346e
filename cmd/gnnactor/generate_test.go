package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A graph that no machine holds is refused with both figures before anything of it
// is made.
func TestGenerateMoreThanFits(t *testing.T) {
	for _, args := range [][]string{
		{"generate", "rmat", "--scale", "31", "--features", "1000"},
		{"generate", "rmat", "--edges", "1099511627776"},
		{"generate", "sbm", "--nodes", "4000000000", "--degree", "1000000"},
	} {
		dir := filepath.Join(t.TempDir(), "store")
		code, _, errs := invoke(t, append(args, dir)...)
		if code != 2 || !strings.Contains(errs, "MiB while it is made") || !strings.Contains(errs, "fewer nodes") {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) > 0 {
			t.Errorf("%v: left %v, %v", args, entries, err)
		}
	}
	if code, _, errs := invoke(t, "generate", "rmat", "--scale", "40", filepath.Join(t.TempDir(), "store")); code != 2 || !strings.Contains(errs, "out of range [0, 31]") {
		t.Errorf("scale 40: code %d, %s", code, errs)
	}
}
