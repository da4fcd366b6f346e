package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Counts that are beyond their bounds are refused wherever they come from, by
// every command that takes them, as a bad setting.
func TestCountsAreBoundedEverywhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("credits: 1000000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"threads: 100000000 is not in [0, 4096]":    {"train", "--threads", "100000000"},
		"threads: 4097 is not in [0, 4096]":         {"plan", "--threads", "4097"},
		"samplers: 1000000000 is not in [0, 4096]":  {"sample", "--samplers", "1000000000"},
		"credits: 1000000000 is not in [0, 4096]":   {"train", "--config", file},
		"loaders: 9999 is not in [0, 4096]":         {"train", "--features", "throttled:1GB/s", "--loaders", "9999"},
		"layers: 1000000000000 is not in [1, 256]":  {"train", "--layers", "1000000000000"},
		`memory-limit: "lots" is neither a size`:    {"plan", "--memory-limit", "lots"},
		"eval-chunk: -1 is not in [0, 4294967295]":  {"train", "--eval-chunk", "-1"},
		"negatives: 100000000000 is not in [0, 655": {"train", "--task", "link", "--negatives", "100000000000"},
	} {
		if code, _, errs := invoke(t, args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s, want %q", args, code, errs, want)
		}
	}
	t.Setenv("GNNACTOR_SAMPLERS", "77777777")
	if code, _, errs := invoke(t, "train"); code != exitUsage || !strings.Contains(errs, "samplers: 77777777 is not in") {
		t.Errorf("from the environment: exit %d, %s", code, errs)
	}
}
