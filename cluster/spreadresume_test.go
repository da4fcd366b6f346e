package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/runtime"
)

// Checkpoints of global batches go on on other numbers of nodes and other placements, to the bits of a run that was not interrupted: nodes without
// one, and those whose newest is older or damaged, get the state from one that has it.
func TestSpreadResumes(t *testing.T) {
	t.Parallel()
	cfg := spreadConfig(dividedBlocks(t, blocks(t), "contiguous", 4), "gin")
	cfg.Training.Epochs, cfg.Training.Optimizer, cfg.Checkpoint.Keep = 6, "adam", 3
	cfg.Model.Hidden = 64 // a state has more bytes than 65,536, which are counted in two numbers
	want, err := computeSet(t.Context(), cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := func(p *dataplane.Plane, c *runtime.Config) {
		c.Checkpoint.Dir, c.Checkpoint.Resume = filepath.Join(dir, p.Node()), true
	}
	done := 0
	for turn, placed := range [][]string{{"a", "b", "b", "a"}, {"c", "a", "b", "d"}, {"b", "b", "d", "d"}} {
		cfg.Training.Epochs = 2 * (turn + 1)
		results, _, errs := spreadOver(t, cfg, placed, in)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if !slices.Equal(r.losses, want.losses[done:cfg.Training.Epochs]) {
				t.Errorf("over %v, node %d made the losses %v; want %v", placed, i, r.losses, want.losses[done:cfg.Training.Epochs])
			}
			if turn == 2 && (r.params != want.params || r.valid != want.valid) {
				t.Errorf("over %v, node %d has the parameters %.8s and %+v; want %.8s and %+v", placed, i, r.params, r.valid, want.params, want.valid)
			}
		}
		done = cfg.Training.Epochs
		if turn == 1 { // what d kept last is damaged: it goes on from the step before, and hears of the newest
			if err := os.Truncate(filepath.Join(dir, "d", fmt.Sprintf("step-%012d.safetensors", done)), 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}
