package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrStuck: what this node was to give to the others could not be given.
var ErrStuck = errors.New("cluster: what it did and held could not be handed over")

// How long a node that is on its way out waits for a store that does not answer, and
// while nothing moves: with the two seconds that closing may take, it is gone 10 s
// after it was told to go.
const (
	unanswering = 5 * time.Second
	standing    = 8 * time.Second
)

// moved is what shows that a node which gives away what it does and holds still gets
// somewhere.
type moved struct {
	step, micros int64 // of the training
	flight       int
	held         int // shards
	taken, given int64
	sent         int64 // on the data plane, in parts large enough to be part of a shard
}

// WhileMoving returns a context for what this node does to hand over. It ends, for a
// cause that wraps ErrStuck, after limit, or before when the store does not answer for
// 5 s or nothing has moved for 8 s. over must be called; it waits.
func (n *Node) WhileMoving(ctx context.Context, limit time.Duration) (moving context.Context, over func()) {
	return watched(ctx, func(moving context.Context, end context.CancelCauseFunc) {
		end(untilStuck(moving, limit, n.askStore, n.moved))
	})
}

func (n *Node) askStore(ctx context.Context) error {
	_, _, err := n.store.List(ctx, "ready")
	return err
}

func (n *Node) moved() moved {
	f, t := n.features.Load(), n.trainers.Load()
	p := n.howFar()
	m := moved{step: p.Step, flight: p.InFlight, sent: n.Plane.Stats().Sent >> 16}
	if t != nil {
		m.micros = t.Made()
	}
	if n.computing.Load() { // a step over pieces shows nothing for as long as it takes, and others need it
		m.micros = time.Now().UnixNano()
	}
	if f != nil {
		m.held = f.keeper.Held()
		m.taken, m.given = f.keeper.Moves()
	}
	return m
}

// untilStuck returns why a node that hands over is not to be waited for any longer;
// nil when ctx ended.
func untilStuck(ctx context.Context, limit time.Duration, ask func(context.Context) error, look func() moved) error {
	began := time.Now()
	answered, changed, last := began, began, look()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		sent := time.Now()
		call, cancel := context.WithDeadline(ctx, answered.Add(unanswering))
		err := ask(call)
		cancel()
		if err == nil {
			answered = sent
		}
		now := time.Now()
		if m := look(); m != last {
			changed, last = now, m
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case now.Sub(answered) >= unanswering:
			return fmt.Errorf("%w: the store has not answered for %v: %w", ErrStuck, unanswering, err)
		case now.Sub(changed) >= standing:
			return fmt.Errorf("%w: nothing has moved for %v", ErrStuck, standing)
		case now.Sub(began) >= limit:
			return fmt.Errorf("%w within %v", ErrStuck, limit)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
