package features

import (
	"context"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/internal/interrupt/interrupttest"
)

// A copy of many rows ends when its context does, and gives its memory back.
func TestCopyIsInterrupted(t *testing.T) {
	n := 4 * interrupt.Every
	f := graph.NewFeatures(n, 1, make([]float32, n))
	interrupttest.Check(t, 5, func(ctx context.Context) error {
		_, free, err := Copy(ctx, f)
		if err != nil {
			return err
		}
		return free()
	})
}
