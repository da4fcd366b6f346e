package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Half-written files of older groups are swept, those of this one and newer
// ones, and of other tools, are not.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".step-000000000012-g000000000003.safetensors.123", ".step-000000000012-g000000000007.safetensors.9", ".step-1", "step-000000000001-g000000000003.safetensors", "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir, 7); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 || slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() == ".step-000000000012-g000000000003.safetensors.123" }) {
		t.Errorf("left: %v, %v", left, err)
	}
}
