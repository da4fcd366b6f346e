// Package drawn is for tests whose cases are drawn: at each run other ones, which a
// seed brings back.
package drawn

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seed = flag.Uint64("seed", 0, "of the cases that tests draw; 0: another one at each run")

// Cases returns what a test draws its cases from. A test that fails says how to draw
// the same ones again.
func Cases(t testing.TB) *rand.Rand {
	t.Helper()
	s := *seed
	for s == 0 {
		s = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the same cases again: go test -run '^%s$' -seed %d", t.Name(), s)
		}
	})
	return rand.New(rand.NewPCG(s, 0))
}
