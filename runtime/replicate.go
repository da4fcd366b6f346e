package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// replicate has a checkpoint at path copied, if no other trainer has its own.
func (t *trainCall) replicate(path string) error {
	team := t.r.cfg.Cluster.Peers
	if team == nil || !team.Alone() {
		return nil
	}
	run, err := t.state.Identity.RunID()
	if err != nil {
		return err
	}
	if t.replicator == nil {
		t.replicator = checkpoint.NewReplicator(team, t.r.log)
	}
	return t.replicator.Add(run, t.state.Step, path)
}

// further is c, the newest checkpoint here, or why there is none, unless another
// node has a copy of one that is further, and no other trains, which would have a
// state that is further than any: then it is that, brought to the checkpoint
// directory, and from is the node.
func (t *trainCall) further(ctx context.Context, e *checkpoint.Expected, c *checkpoint.State, broken error) (_ *checkpoint.State, from string, err error) {
	team := t.r.cfg.Cluster.Peers
	if team == nil || !team.Alone() {
		return c, "", broken
	}
	run, err := t.state.Identity.RunID()
	if err != nil {
		return nil, "", err
	}
	beyond := int64(-1)
	if c != nil {
		beyond = c.Step
	}
	var copied *checkpoint.State
	var other error // a copy is of another run
	from, problems := team.Recover(ctx, run, beyond, func(step int64, fetch func(path string) error) (err error) {
		path := checkpoint.Path(t.r.cfg.Checkpoint.Dir, step)
		if err = fetch(path); err == nil {
			if copied, err = e.Read(path); err != nil && !errors.Is(err, ErrIdentity) {
				err = errors.Join(err, os.Remove(path))
			}
		}
		if errors.Is(err, ErrIdentity) {
			other = fmt.Errorf("%s: %w", path, err)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	if problems != nil {
		t.r.log.Warn("looking for copies of checkpoints", "problems", problems)
	}
	if from == "" {
		return c, "", errors.Join(broken, other)
	}
	return copied, from, nil
}
