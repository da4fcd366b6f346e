package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/training"
)

// Expected is the run that a checkpoint is to be of, to go on with it.
type Expected struct {
	Layout       *compute.Layout
	Identity     Identity
	Steps        int64 // batches of an epoch
	OtherKernels bool
}

// Load reads the newest checkpoint of dir that is whole, or nil when there is
// none. skipped says of newer ones why they are passed over.
func (e *Expected) Load(dir string) (c *State, skipped []error, err error) {
	paths, err := List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		c, err := e.Read(path)
		if err == nil {
			return c, skipped, nil
		}
		if errors.Is(err, ErrIdentity) {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		skipped = append(skipped, err)
	}
	if skipped != nil {
		return nil, nil, fault.Damaged(fmt.Errorf("checkpoint: no checkpoint in %s can be read; restore one from a copy, or remove them to start afresh: %w", dir, errors.Join(skipped...)))
	}
	return nil, nil, nil
}

// Read reads the checkpoint at path, whose name says its step. It reads to the end,
// whatever is told to stop: one that was not read would pass for a damaged one.
func (e *Expected) Read(path string) (*State, error) {
	tensors, meta, err := compute.OpenSafetensors(context.Background(), path)
	if err != nil {
		return nil, err
	}
	c, err := e.Decode(path, tensors, meta)
	if err != nil {
		return nil, err
	}
	if name := filepath.Base(path); name != filepath.Base(Path("", c.Step)) && !strings.HasPrefix(name, fmt.Sprintf("%s%012d-g", Prefix, c.Step)) {
		return nil, fmt.Errorf("checkpoint: %s is of step %d, which is not what its name says; give it back its name, or remove it", path, c.Step)
	}
	return c, nil
}

// Decode checks a checkpoint that was read from name.
func (e *Expected) Decode(name string, tensors []compute.RawTensor, meta map[string]string) (*State, error) {
	c, err := new(State), error(nil)
	if err := json.Unmarshal([]byte(meta[Key]), c); err != nil {
		return nil, fmt.Errorf("checkpoint: %s is not a checkpoint: %w", name, err)
	}
	// The identity comes first: another model's tensors do not fit anyway.
	if err := e.Identity.Same(c.Identity, e.OtherKernels); err != nil {
		return nil, err
	}
	type part struct {
		prefix string
		dst    *[]float32
	}
	parts := []part{{"param.", &c.Params}, {"adam.m.", &c.M}, {"adam.v.", &c.V}}
	if c.Kept != nil {
		parts = append(parts, part{"best.", &c.Kept.Params})
	}
	for _, part := range parts {
		if *part.dst, err = e.Layout.Unpack(part.prefix, tensors); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	_, checked := meta[compute.ChecksumKey]
	switch l := e.Layout; {
	case c.Version >= 1 && c.Version <= Version && !checked:
		err = fmt.Errorf("the metadata %s, its checksums, is gone", compute.ChecksumKey)
	case c.Version == 0 && c.Sum != l.SHA256(c.Params)+l.SHA256(c.M)+l.SHA256(c.V):
		err = errors.New("the checksum of parameters and moments does not match them")
	case c.Version < 0 || c.Version > Version || c.Version == 2 && c.Identity.Keep == "":
		err = fmt.Errorf("version %d; this gnnactor reads versions up to %d", c.Version, Version)
	default:
		err = e.check(c)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", name, err)
	}
	return c, nil
}

// check reports what c says that no run of this identity can have come to.
func (e *Expected) check(c *State) error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	stats := func(name string, s messages.Stats) {
		check(s.Weight >= 0 && s.Correct >= 0 && s.Correct <= s.Count && s.Count <= maxCount, "%s statistics of %d nodes, %d of them right, that weigh %v", name, s.Count, s.Correct, s.Weight)
	}
	check(c.Step >= 0 && c.Step <= maxEpochs*e.Steps, "step %d is not in [0, %d]", c.Step, maxEpochs*e.Steps)
	if bad == nil {
		epoch := c.Step / e.Steps
		check(int64(c.Ended) == epoch || int64(c.Ended) == epoch-1 && c.Step%e.Steps == 0, "%d epochs have ended after step %d, of %d an epoch", c.Ended, c.Step, e.Steps)
		check(c.Step%e.Steps != 0 || c.Epoch == messages.Stats{}, "there are statistics of an epoch that step %d does not begin", c.Step)
		check(len(c.Lineage) == 0 || training.Chained(c.Lineage, c.Step), "the lineage %v does not lead to step %d", c.Lineage[:min(len(c.Lineage), 8)], c.Step)
	}
	check(c.After >= 0 && int64(c.After) < e.Steps, "batch %d, which the order goes on from, is not in [0, %d)", c.After, e.Steps)
	stats("an epoch's", c.Epoch)
	stats("the last epoch's", c.Last)
	best := func(name string, b compute.Best) {
		check(b.Count >= 0 && b.Count <= c.Ended && b.Since >= 0 && b.Since <= b.Count && b.Epoch >= 0 && b.Epoch <= b.Count, "%s of report %d, %d reports ago, of %d in %d epochs", name, b.Epoch, b.Since, b.Count, c.Ended)
	}
	best("the best accuracy", c.Best)
	if k := c.Kept; k != nil {
		check(e.Identity.Keep == "best", "parameters that are best by validation, in a run that keeps the last")
		check(k.Epochs >= 1 && k.Epochs <= c.Ended && k.Figure == c.Best.Figure, "the best parameters are those of epoch %d, with the figure %v, of %d epochs, of which %v is best", k.Epochs, k.Figure, c.Ended, c.Best.Figure)
	} else {
		check(e.Identity.Keep == "" || !(c.Best.Count > c.Best.Since), "the best parameters are not there")
	}
	if p, recipe := &c.Plateau, &e.Identity.Recipe; recipe.Schedule != "plateau" || p.Best.Count == 0 {
		check(*p == compute.Plateau{}, "a plateau where there was none: %+v", *p)
	} else {
		best("the plateau's best accuracy", p.Best)
		check(p.Factor == recipe.Factor && p.Patience == recipe.Every && p.Min == 0, "the plateau's factor %v, patience %d and minimum %v are not the run's", p.Factor, p.Patience, p.Min)
		check(p.Scale >= 0 && p.Scale <= 1, "the plateau's scale %v is not in [0, 1]", p.Scale)
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%s; restore the file from a copy, or remove it", strings.Join(bad, "; "))
}

// maxEpochs bounds the epochs of a run.
const maxEpochs = 1 << 30

// maxCount bounds the nodes of an epoch's statistics, each as often as it was
// drawn.
const maxCount = 1 << 53

// FromPeer reads what another node gives as its state.
func (e *Expected) FromPeer(b []byte) (*State, error) {
	tensors, meta, err := compute.ReadSafetensors(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	c, err := e.Decode("the state of another node", tensors, meta)
	if err == nil && c.Version == 0 {
		err = errors.New("checkpoint: the state of another node has no checksums; run the same version of gnnactor on all nodes")
	}
	return c, err
}
