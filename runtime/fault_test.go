//go:build unix

package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A feature file that is cut short while an epoch runs fails the run with the
// file and the offset, wherever rows are read: by compute's kernels straight from
// the mapping, by a loader from the mapping, or by a loader from the disk.
func TestTruncatedFeatures(t *testing.T) {
	for _, c := range []struct{ features, match string }{{"", ""}, {"mmap", "on"}, {"disk", ""}, {"throttled:500MB/s", "off"}} {
		t.Run(c.features+"/"+c.match, func(t *testing.T) {
			cfg := config()
			dir := stored(t)
			cfg.Data.Path, cfg.Data.Dataset, cfg.Memory.Features, cfg.Memory.Match = dir, nil, c.features, c.match
			cfg.Training.Epochs, cfg.Training.EvalEvery, cfg.Data.Verify = 50, 0, false // which might be there first
			r := started(t, cfg)
			file := filepath.Join(dir, "node-features.bin")
			var failure error
			steps := 0
			for e, err := range r.Train(context.Background()) {
				if err != nil {
					failure = err
					break
				}
				if e.Kind != EventStep {
					continue
				}
				if steps++; steps == 2 { // in the middle of the first epoch
					if err := os.Truncate(file, 4096); err != nil {
						t.Fatal(err)
					}
				}
			}
			if failure == nil {
				t.Fatal("the run ended as if nothing had happened")
			}
			for _, want := range []string{file, "offset", "train/e"} {
				if !strings.Contains(failure.Error(), want) {
					t.Errorf("the error %q does not tell of %q", failure, want)
				}
			}
		})
	}
}
