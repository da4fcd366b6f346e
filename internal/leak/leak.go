// Package leak ends a package's tests with a search for goroutines that they
// left behind.
package leak

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that were told to end may take to. goleak
// alone looks for less than half a second, which on a machine that is busy with
// other things is not enough for a connection's goroutines to be scheduled.
const patience = time.Minute

// Main runs the tests of a package and exits. Where they pass and goroutines are
// left that do not end, it says which and exits with 1. TestMain calls it.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(patience, options...); err != nil {
			fmt.Fprintf(os.Stderr, "leak: the tests passed, and left goroutines behind: %v\n", err)
			code = 1
		}
	}
	if err := os.RemoveAll(dir); err != nil { // "" is nothing
		fmt.Fprintln(os.Stderr, "leak:", err)
		code = 1
	}
	os.Exit(code)
}

var dir string

// Dir returns a directory for what tests of a package make once for all of them, which Main removes.
var Dir = sync.OnceValue(func() string {
	var err error
	if dir, err = os.MkdirTemp("", "gnnactor-test-"); err != nil {
		panic(err)
	}
	return dir
})

// Beside has n tests that call t.Parallel run at once, however few processors there are: those that mostly wait, for leases
// that end and processes that start, wait beside each other. go test's -parallel goes before it. TestMain calls it before Main.
func Beside(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// find returns nil as soon as no goroutine is left.
func find(limit time.Duration, options ...goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(began) > limit {
			return err
		}
	}
}
