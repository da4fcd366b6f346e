package store

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// Verify asks before each block of each array, and says why it ended.
func TestVerifyIsInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := Create(dir, generate.Builtin()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	interrupttest.Check(t, len(s.m.Arrays), func(ctx context.Context) error { return s.Verify(ctx) })
}
