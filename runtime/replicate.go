package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/training"
	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// A node that trains alone, and keeps its checkpoints on its own disk, lets
// another node keep copies of them; see training.Archive.

// copyLimit is how long a run that has ended waits for its last checkpoint to be
// copied.
const copyLimit = 30 * time.Second

// replicator copies checkpoints to another node, one at a time, the newest next,
// while training goes on.
type replicator struct {
	team   training.Archive
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	next   *pendingReplica
	busy   chan struct{} // closed when nothing is left to copy; nil: nothing is
	warned bool          // that nobody keeps replicas
}

type pendingReplica struct {
	run  [32]byte
	step int64
	file *os.File
}

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
	f, err := os.Open(path) // it stays readable when newer ones take its place
	if err != nil {
		return fmt.Errorf("runtime: checkpoint: %w", err)
	}
	if t.replicator == nil {
		t.replicator = &replicator{team: team, log: t.r.log}
		t.replicator.ctx, t.replicator.cancel = context.WithCancel(context.Background())
	}
	g := t.replicator
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		_ = g.next.file.Close() // it was only read
	}
	g.next = &pendingReplica{run, t.state.Step, f}
	if g.busy == nil {
		g.busy = make(chan struct{})
		go g.work()
	}
	return nil
}

func (g *replicator) work() {
	for {
		g.mu.Lock()
		c := g.next
		g.next = nil
		if c == nil {
			close(g.busy)
			g.busy = nil
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		g.copy(c)
	}
}

func (g *replicator) copy(c *pendingReplica) {
	defer c.file.Close()
	node, err := g.team.Replicate(g.ctx, c.run, c.step, c.file)
	switch {
	case err == nil:
		g.warned = false
		g.log.Info("a copy of the checkpoint is kept", "step", c.step, "node", node)
	case g.warned:
	default:
		g.warned = true
		hint := ""
		if errors.Is(err, training.ErrNoCopies) {
			hint = "start one more node, or 'gnnactor cluster join --copies-only', on another machine"
		}
		g.log.Warn("no other node has a copy of the checkpoint", "step", c.step, "because", err, "remedy", hint)
	}
}

// end waits for what is being copied.
func (g *replicator) end() {
	if g == nil {
		return
	}
	defer g.cancel()
	g.mu.Lock()
	busy := g.busy
	g.mu.Unlock()
	if busy == nil {
		return
	}
	limit := time.NewTimer(copyLimit)
	defer limit.Stop()
	select {
	case <-busy:
		return
	case <-limit.C:
		g.log.Warn("the copy of the last checkpoint is left behind", "after", copyLimit)
	}
	g.cancel()
	<-busy
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
