package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/training"
)

// A node that trains alone, and keeps its checkpoints on its own disk, lets
// another node keep copies of them; see training.Archive.

// copyLimit is how long a run that has ended waits for its last checkpoint to be
// copied.
const copyLimit = 30 * time.Second

// Replicator copies checkpoints to another node, one at a time, the newest next,
// while training goes on.
type Replicator struct {
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

// NewReplicator returns one; the caller must End it.
func NewReplicator(team training.Archive, log *slog.Logger) *Replicator {
	g := &Replicator{team: team, log: log}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Add has the checkpoint of a run at path copied, in place of one that waits.
func (g *Replicator) Add(run [32]byte, step int64, path string) error {
	f, err := os.Open(path) // it stays readable when newer ones take its place
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		_ = g.next.file.Close() // it was only read
	}
	g.next = &pendingReplica{run, step, f}
	if g.busy == nil {
		g.busy = make(chan struct{})
		go g.work()
	}
	return nil
}

func (g *Replicator) work() {
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

func (g *Replicator) copy(c *pendingReplica) {
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

// End waits for what is being copied.
func (g *Replicator) End() {
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
