// Package checkpoint is the state of a run on a disk, or on its way to another node: what it
// is of (Identity), what it has come to (State), and what it is checked for before a run goes
// on from it (Expected).
package checkpoint

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
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// State is that of a run after Step applied batches. As a file, or on
// its way to another node, it is safetensors data with checksums over all of it.
type State struct {
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
	Kept     *Kept           `json:"kept,omitempty"` // what training ends with, if it ended here; nil: the parameters
	Plateau  compute.Plateau `json:"plateau"`
	Sum      string          `json:"sha256,omitempty"` // version 0: over parameters and moments
	Chain    LineageHash     `json:"lineage_sha256"`
	Lineage  []training.Run  `json:"lineage,omitempty"` // the steps by who made them; group 0: one process
	// Unaudited: the audits of what led to it had not come back.
	Unaudited bool `json:"unaudited,omitempty"`

	Params, M, V []float32         `json:"-"` // the parameters, and the optimiser's moments
	About        map[string]string `json:"-"` // metadata of the file, by which a saved model is known; nil: there is none
}

// Kept are the parameters that are best by validation.
type Kept struct {
	Epochs int       `json:"epochs"` // after which they were made
	Figure float64   `json:"figure"` // the validation accuracy
	Params []float32 `json:"-"`
}

// Keep copies the parameters after so many epochs, which are the best.
func (c *State) Keep(epochs int, figure float64, params []float32) {
	if c.Kept == nil {
		c.Kept = &Kept{Params: make([]float32, len(params))}
	}
	c.Kept.Epochs, c.Kept.Figure = epochs, figure
	copy(c.Kept.Params, params)
}

// BestEpoch returns after how many epochs what is kept was made; 0: nothing is.
func (c *State) BestEpoch() int {
	if c.Kept == nil {
		return 0
	}
	return c.Kept.Epochs
}

// Scale is what the plateau schedule multiplies the learning rate by.
func (c *State) Scale() float64 {
	if c.Plateau.Scale == 0 {
		return 1
	}
	return c.Plateau.Scale
}

const (
	Version = 2 // the newest

	Key    = "gnnactor.checkpoint"
	Prefix = "step-"
	Suffix = ".safetensors"
)

func Path(dir string, step int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%012d%s", Prefix, step, Suffix))
}

// Save writes c to dir, atomically, and keeps the newest keep checkpoints.
func (c *State) Save(dir string, keep int, l *compute.Layout) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	path := Path(dir, c.Step)
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error { return c.Write(w, l) })
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return Prune(dir, path, keep)
}

// Prune leaves the newest keep checkpoints, of which path is one, and of those that several groups wrote of a step the newest group's.
func Prune(dir, path string, keep int) error {
	all, err := List(dir)
	if err != nil {
		return err
	}
	// Newer ones are damaged: the run was resumed from an older one.
	all = all[max(slices.Index(all, path), 0):]
	left, last := 0, ""
	for _, old := range all {
		step, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(old), Suffix), "-g")
		again := step == last
		if last = step; !again && left < keep {
			left++
			continue
		}
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("checkpoint: an old one: %w", err)
		}
	}
	return nil
}

// Write writes what Expected reads.
func (c *State) Write(w io.Writer, l *compute.Layout) error {
	c.Version, c.Sum = 1, ""
	if c.Identity.Keep != "" {
		c.Version = 2
	}
	meta, err := json.Marshal(c)
	if err != nil {
		return err
	}
	tensors := slices.Concat(l.Pack("param.", c.Params), l.Pack("adam.m.", c.M), l.Pack("adam.v.", c.V))
	if c.Kept != nil {
		tensors = append(tensors, l.Pack("best.", c.Kept.Params)...)
	}
	about := map[string]string{Key: string(meta)}
	maps.Copy(about, c.About)
	return compute.WriteSafetensors(w, tensors, about)
}

// Writable makes dir, finds out whether checkpoints can be written to it, and,
// unless others write there, too, removes what a killed process left half
// written.
func Writable(dir string, shared bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	if !shared {
		if err := atomicfile.Clean(dir, Prefix); err != nil {
			return fmt.Errorf("checkpoint directory: %w", err)
		}
	}
	f, err := atomicfile.Create(filepath.Join(dir, Prefix), 0o644)
	if err == nil {
		err = f.Abort()
	}
	if err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	return nil
}

// List lists the checkpoint files of dir, newest first.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, Prefix) && strings.HasSuffix(n, Suffix) {
			paths = append(paths, filepath.Join(dir, n))
		}
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths, nil
}

// Book books a step with the statistics of its targets; ends: the last of its epoch.
func (c *State) Book(id sampling.ID, of compute.Stats, ends bool) {
	a := messages.Applied{ID: id, Step: c.Step, Stats: messages.Stats{Loss: of.Loss, Weight: of.Weight, Correct: of.Correct, Count: of.Count}, Last: ends}
	c.Chain.Extend(&a)
	c.Lineage = training.Extend(c.Lineage, 0, a.Step)
	c.Step++
	if c.Epoch.Add(a.Stats); ends {
		c.Ended, c.Last, c.LastLoss, c.Epoch = id.Epoch+1, c.Epoch, c.Epoch.Loss/c.Epoch.Weight, messages.Stats{}
	}
}
