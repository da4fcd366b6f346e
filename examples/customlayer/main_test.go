package main

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	own, builtin, err := run(context.Background(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if own < 0.85 || builtin < 0.85 || !strings.Contains(out.String(), "gated layer") {
		t.Errorf("accuracies %v and %v; said %q", own, builtin, out.String())
	}
}
