package main

import (
	"context"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

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
