package main

import (
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// The stage after load mends the features, the one after sample takes edges out, and the
// model learns the better for it.
func TestRun(t *testing.T) {
	var out strings.Builder
	r, err := run(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if r[1].accuracy < r[0].accuracy+0.1 || r[2].accuracy < r[0].accuracy+0.1 {
		t.Errorf("the stages mend nothing:\n%s", &out)
	}
	if r[1].edges != r[0].edges || float64(r[2].edges) > 0.7*float64(r[0].edges) {
		t.Errorf("the edges:\n%s", &out)
	}
}
