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

// Of the newest steps one file each is left: of a step that two groups wrote the newer group's.
func TestPruneOfGroups(t *testing.T) {
	dir := t.TempDir()
	for _, c := range [][2]int64{{19, 4}, {38, 5}, {38, 6}, {57, 6}, {57, 7}, {57, 9}, {76, 7}} {
		if err := os.WriteFile(SharedPath(dir, c[0], c[1]), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prune(dir, SharedPath(dir, 57, 9), 2); err != nil {
		t.Fatal(err)
	}
	left, err := List(dir)
	if want := []string{SharedPath(dir, 76, 7), SharedPath(dir, 57, 9), SharedPath(dir, 38, 6)}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v", left, err)
	}
}
