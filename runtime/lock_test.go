//go:build unix

package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Two runs do not share a checkpoint directory; when the first is over, the
// second may have it.
func TestCheckpointDirectoryIsLocked(t *testing.T) {
	c := config()
	c.Checkpoint.Dir, c.Checkpoint.Resume, c.Training.Epochs = t.TempDir(), true, 1
	first, second := started(t, c), started(t, c)
	tried := false
	for e, err := range first.Train(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != EventStart {
			continue
		}
		tried = true
		for _, err := range second.Train(context.Background()) {
			if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), c.Checkpoint.Dir) {
				t.Errorf("a second run: %v", err)
			}
		}
	}
	if !tried {
		t.Fatal("the first run did not start")
	}
	trained(t, second)
}
