package kernels

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What is in the PTX of kernels keeps the promises of device.h: no register is spilled to
// local memory by clang, no float is added atomically, no multiplication or addition may
// be fused, nothing is approximate, and a block needs no more shared memory than every
// device has. Every source has its PTX, with every kernel that it exports.
func TestPTX(t *testing.T) {
	sources, err := fs.Glob(Sources, "*.cu")
	if err != nil || len(sources) == 0 || len(sources) != len(Names()) {
		t.Fatalf("%d sources, %d modules, %v", len(sources), len(Names()), err)
	}
	loose := regexp.MustCompile(`\b(add|sub|mul|fma|div|sqrt|rcp)\.(ftz\.)?f(32|64)\b|\bmad\.[a-z.]*f(32|64)|\.approx|\.ftz|\.local\b|\batom\.[a-z.]*add\.f|\bred\.[a-z.]*add\.f`)
	shared := regexp.MustCompile(`\.shared \.align \d+ \.b8 \w+\[(\d+)\]`)
	exported := regexp.MustCompile(`(?m)^EXPORT\((\w+)\)`)
	for _, source := range sources {
		name := strings.TrimSuffix(source, ".cu")
		ptx, err := PTX(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(ptx)
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, "//")
			if found := loose.FindString(line); found != "" {
				t.Errorf("%s.ptx: %q in %q", name, found, strings.TrimSpace(line))
			}
		}
		entries := strings.Split(text, ".visible .entry ")[1:]
		for _, entry := range entries {
			bytes := 0
			for _, m := range shared.FindAllStringSubmatch(entry, -1) {
				n, _ := strconv.Atoi(m[1])
				bytes += n
			}
			if kernel, _, _ := strings.Cut(entry, "("); bytes > 48<<10 {
				t.Errorf("%s needs %d bytes of shared memory; a block has 48 KiB", kernel, bytes)
			}
		}
		code, err := fs.ReadFile(Sources, source)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exported.FindAllStringSubmatch(string(code), -1) {
			if !strings.Contains(text, ".visible .entry "+m[1]+"(") {
				t.Errorf("%s.ptx has no kernel %s", name, m[1])
			}
		}
	}
}
