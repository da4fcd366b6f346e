// Package async trains asynchronously with bounded staleness.
//
// One node has the parameters, with an actor that owns them (Owner). Trainers, in
// its process or on other nodes, are dealt a batch each, and sample it;
// then they read the parameters, compute the batch's gradient and push it. The
// owner applies gradients in the order in which they arrive.
//
// The version of the parameters is the number of steps applied. A gradient's
// staleness is the number of steps that were applied between the version it was
// computed on and itself; it is never above the bound, and so no trainer reads a
// version that is more than the bound ahead of one that another still computes
// on. Two things wait for that: a trainer that would read, while bound + 1
// gradients are being computed; and a gradient after which an older one could not
// be applied in time. The oldest one never waits, so the run always goes on.
//
// Every batch of an epoch is applied once. What was dealt to a trainer that is
// gone is dealt again. A run that stops ends after a prefix of its batches.
// Which gradient is applied when depends on who is how fast: the bits of a run
// cannot be repeated.
package async

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gnnactor/gnnactor/messages"
)

// ErrOver: there is nothing left to compute.
var ErrOver = errors.New("async: every batch is applied")

// ErrClosed: the parameters' owner is closed.
var ErrClosed = errors.New("async: closed")

// Parameters is what a trainer needs of the parameters' owner. All methods block
// until the owner has an answer, or ctx ends; a trainer whose ctx ends is gone.
type Parameters interface {
	// Deal gives the trainer a step to compute. ErrOver: all are applied.
	Deal(ctx context.Context, trainer string) (step int64, err error)
	// Read returns the version to compute a step on, which must be released.
	// ErrOver: the run has stopped, and the step is not wanted.
	Read(ctx context.Context, trainer string, step int64) (*Version, error)
	// Push gives a gradient, and returns when it was applied. The gradient's
	// memory must not be changed before.
	Push(ctx context.Context, trainer string, g Push) error
}

// Name returns what trainer i of a node is called.
func Name(node string, i int) string { return fmt.Sprintf("%s/%d", node, i) }

// Trainers returns a function that tells the trainers of a node.
func Trainers(node string) func(trainer string) bool {
	return func(trainer string) bool { return strings.HasPrefix(trainer, node+"/") }
}

// Version is the parameters after so many steps: read-only, until Release.
type Version struct {
	Number  int64
	Params  []float32
	release func()
}

// Release gives the version's memory back.
func (v *Version) Release() {
	if v.release != nil {
		v.release()
		v.release = nil
	}
}

// Push is the sum of the gradients of a batch's losses.
type Push struct {
	Step    int64
	Version int64 // that it was computed on
	Stats   messages.Stats
	Data    []float32
}

// pendingPush is a gradient on its way to be applied.
type pendingPush struct {
	Push
	trainer string
	reply   chan answer[struct{}]
}

// Step reports a step.
type Step struct {
	Step    int64
	Version int64 // that it made: steps applied
	Stale   int64 // steps applied since the version that it was computed on
	Trainer string
	Stats   messages.Stats
}

// Model is what the owner steps. Its methods are called one at a time.
type Model interface {
	// Params returns the parameters, which Apply changes.
	Params() []float32
	// Apply makes one step with a gradient, which it may overwrite.
	Apply(g *Push) error
}
