package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "as of one process alone: true\n"); n != len(names) {
		t.Errorf("%d of %d nodes have the parameters of one process\n%s", n, len(names), out.String())
	}
}
