package importer

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// limitResources keeps the process from much more memory than it has and from
// long files, so that a test that fails does no harm.
func limitResources(t testing.TB) {
	var pages uint64
	b, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(b), &pages)
	}
	if err != nil {
		t.Fatal(err)
	}
	for what, most := range map[int]uint64{
		unix.RLIMIT_AS:    pages*uint64(os.Getpagesize()) + 4<<30,
		unix.RLIMIT_FSIZE: 1 << 30,
	} {
		var old unix.Rlimit
		if err := unix.Getrlimit(what, &old); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: min(most, old.Max), Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Setrlimit(what, &old); err != nil {
				t.Error(err)
			}
		})
	}
}
