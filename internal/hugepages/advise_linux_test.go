package hugepages

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// The kernel marks what was asked for with hg, and values stay what they are.
func TestAdvise(t *testing.T) {
	for n := range 3 {
		Advise(make([]uint32, n))
	}
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("this kernel has no huge pages to give")
	}
	s := Make[int64](1 << 20)
	middle := uintptr(unsafe.Pointer(&s[len(s)/2]))
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	within, marked := false, false
	for line := range strings.Lines(string(text)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from <= middle && middle < to
		}
		marked = marked || within && strings.HasPrefix(line, "VmFlags:") && strings.Contains(line, " hg")
	}
	if !marked || len(s) != 1<<20 || s[len(s)-1] != 0 {
		t.Errorf("%d values, the last one %d; marked: %t", len(s), s[len(s)-1], marked)
	}
}
