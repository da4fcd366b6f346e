package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// In a directory that the nodes of a cluster share, the first trainer of a group
// writes for all. Its files carry the group's number, so that one that was
// frozen and goes on writes over nobody's; which of them is the newest is in the
// cluster's store, where only the newest group's first trainer can put it.

// shared reports whether other nodes write to the checkpoint directory.
func (r *Runtime) shared() bool { return r.cfg.Checkpoint.Shared && r.cfg.Cluster.Peers != nil }

const publishLimit = 10 * time.Second

// saveShared writes and publishes a checkpoint, if that is this node's part.
func (t *trainCall) saveShared() error {
	group := t.group
	if group == nil || !group.First() {
		return nil
	}
	if t.unshared = !group.MayDecide(); t.unshared {
		t.r.log.Warn("a checkpoint was not published: the store is away; the next one will be", "step", t.state.Step)
		return nil
	}
	dir, l := t.r.cfg.Checkpoint.Dir, t.r.model.Layout()
	if err := checkpoint.Sweep(dir, group.Number()); err != nil {
		return err
	}
	path := checkpoint.SharedPath(dir, t.state.Step, group.Number())
	sum := sha256.New()
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error { return t.state.Write(io.MultiWriter(w, sum), l) })
	if err != nil {
		return fmt.Errorf("runtime: checkpoint: %w", err)
	}
	// An interrupted run's last one is published, too.
	ctx, cancel := context.WithTimeout(context.Background(), publishLimit)
	defer cancel()
	err = group.Publish(ctx, training.Published{File: filepath.Base(path), SHA256: hex.EncodeToString(sum.Sum(nil)), Step: t.state.Step})
	switch {
	case errors.Is(err, training.ErrStaleGroup): // the newer group's first trainer writes its own (late)
		t.r.log.Info("a checkpoint was not published", "step", t.state.Step, "because", err)
		return os.Remove(path)
	case errors.Is(err, training.ErrAway):
		t.unshared = true
		t.r.log.Warn("a checkpoint was not published; the next one will be", "step", t.state.Step, "because", err)
		return os.Remove(path)
	case err != nil:
		return fmt.Errorf("runtime: checkpoint: %w", err)
	}
	return checkpoint.Prune(dir, path, t.r.cfg.Checkpoint.Keep)
}

// shareLast publishes what could not be while the store was away, when the run's last step
// was made.
func (t *trainCall) shareLast(ctx context.Context) error {
	if !t.unshared {
		return nil
	}
	if err := t.group.Decides(ctx); err != nil {
		return err
	}
	return t.save()
}

// late writes a checkpoint that no group got to publish before it ended.
func (t *trainCall) late(ctx context.Context) error {
	if !t.r.shared() || t.r.cfg.Checkpoint.Dir == "" || t.due == 0 {
		return nil
	}
	if p, ok := t.r.cfg.Cluster.Peers.Published(); ok && p.Step >= t.due {
		return nil
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	return t.save()
}

// published reads the checkpoint that the cluster's store names; nil: it names
// none that is here and whole.
func (r *Runtime) published(e *checkpoint.Expected) (*checkpoint.State, error) {
	p, ok := r.cfg.Cluster.Peers.Published()
	if !ok || p.File != filepath.Base(p.File) || !strings.HasPrefix(p.File, checkpoint.Prefix) {
		return nil, nil
	}
	path := filepath.Join(r.cfg.Checkpoint.Dir, p.File)
	var c *checkpoint.State
	sum, err := checkpoint.SHA256(path)
	if err == nil && sum != p.SHA256 {
		err = fmt.Errorf("its SHA-256 is %s, and %s was published", sum, p.SHA256)
	}
	if err == nil {
		c, err = e.Read(path)
	}
	if errors.Is(err, ErrIdentity) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		r.log.Warn("the newest checkpoint of the cluster is not to be had; looking for another", "file", path, "error", err)
		return nil, nil
	}
	return c, nil
}
