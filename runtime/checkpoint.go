package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

// checkpoint is the state of a run after Step applied batches. As a file, or on
// its way to another node, it is safetensors data with checksums over all of it.
type checkpoint struct {
	// Version 1 has checksums over all of it, version 0 one over parameters and
	// moments alone. Version 2 is of runs that keep the best parameters.
	Version  int             `json:"version,omitempty"`
	Identity Identity        `json:"identity"`
	Step     int64           `json:"step"`
	Ended    int             `json:"ended"`          // epochs that were evaluated and saved
	Epoch    messages.Stats  `json:"epoch"`          // of the batches of the epoch that is not finished
	Last     messages.Stats  `json:"last"`           // of the last finished epoch
	LastLoss float64         `json:"last_loss"`      // its mean loss
	After    int             `json:"after"`          // with reordering: the batch that was computed last before the window of Step
	Best     compute.Best    `json:"best"`           // validation accuracy
	Kept     *kept           `json:"kept,omitempty"` // what training ends with, if it ended here; nil: the parameters
	Plateau  compute.Plateau `json:"plateau"`
	Sum      string          `json:"sha256,omitempty"` // version 0: over parameters and moments
	Chain    lineageHash     `json:"lineage_sha256"`
	Lineage  []training.Run  `json:"lineage,omitempty"` // the steps by who made them; group 0: one process
	// Unaudited: the audits of what led to it had not come back.
	Unaudited bool `json:"unaudited,omitempty"`

	params, m, v []float32
	about        map[string]string // metadata of the file, by which OpenModel knows the model; nil: there is none
}

// kept are the parameters that are best by validation.
type kept struct {
	Epochs int     `json:"epochs"` // after which they were made
	Figure float64 `json:"figure"` // the validation accuracy
	params []float32
}

// keep copies the parameters after so many epochs, which are the best.
func (c *checkpoint) keep(epochs int, figure float64, params []float32) {
	if c.Kept == nil {
		c.Kept = &kept{params: make([]float32, len(params))}
	}
	c.Kept.Epochs, c.Kept.Figure = epochs, figure
	copy(c.Kept.params, params)
}

// best returns after how many epochs what is kept was made; 0: nothing is.
func (c *checkpoint) best() int {
	if c.Kept == nil {
		return 0
	}
	return c.Kept.Epochs
}

// scale is what the plateau schedule multiplies the learning rate by.
func (c *checkpoint) scale() float64 {
	if c.Plateau.Scale == 0 {
		return 1
	}
	return c.Plateau.Scale
}

const (
	checkpointVersion = 2 // the newest

	checkpointKey    = "gnnactor.checkpoint"
	checkpointPrefix = "step-"
	checkpointSuffix = ".safetensors"
)

func checkpointPath(dir string, step int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%012d%s", checkpointPrefix, step, checkpointSuffix))
}

// save writes c to dir, atomically, and keeps the newest keep checkpoints.
func (c *checkpoint) save(dir string, keep int, l *compute.Layout) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	path := checkpointPath(dir, c.Step)
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error { return c.write(w, l) })
	if err != nil {
		return fmt.Errorf("runtime: checkpoint: %w", err)
	}
	return prune(dir, path, keep)
}

// prune leaves the newest keep checkpoints, of which path is one.
func prune(dir, path string, keep int) error {
	all, err := checkpoints(dir)
	if err != nil {
		return err
	}
	// Newer ones are damaged: the run was resumed from an older one.
	all = all[max(slices.Index(all, path), 0):]
	for _, old := range all[min(keep, len(all)):] {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("runtime: old checkpoint: %w", err)
		}
	}
	return nil
}

// write writes what decode reads.
func (c *checkpoint) write(w io.Writer, l *compute.Layout) error {
	c.Version, c.Sum = 1, ""
	if c.Identity.Keep != "" {
		c.Version = 2
	}
	meta, err := json.Marshal(c)
	if err != nil {
		return err
	}
	tensors := slices.Concat(l.Pack("param.", c.params), l.Pack("adam.m.", c.m), l.Pack("adam.v.", c.v))
	if c.Kept != nil {
		tensors = append(tensors, l.Pack("best.", c.Kept.params)...)
	}
	about := map[string]string{checkpointKey: string(meta)}
	maps.Copy(about, c.about)
	return compute.WriteSafetensors(w, tensors, about)
}

// writable makes dir, finds out whether checkpoints can be written to it, and,
// unless others write there, too, removes what a killed process left half
// written.
func writable(dir string, shared bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	if !shared {
		if err := atomicfile.Clean(dir, checkpointPrefix); err != nil {
			return fmt.Errorf("runtime: checkpoint directory: %w", err)
		}
	}
	f, err := atomicfile.Create(filepath.Join(dir, checkpointPrefix), 0o644)
	if err == nil {
		err = f.Abort()
	}
	if err != nil {
		return fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	return nil
}

// checkpoints lists the checkpoint files of dir, newest first.
func checkpoints(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("runtime: checkpoint directory: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, checkpointPrefix) && strings.HasSuffix(n, checkpointSuffix) {
			paths = append(paths, filepath.Join(dir, n))
		}
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths, nil
}
