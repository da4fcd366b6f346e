package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// How long a node takes to end that is fenced, or cannot hand over. What it does is
// void, or in its checkpoint; files are whole or not there.
const (
	fencedLimit = 4 * time.Second
	stuckLimit  = 2 * time.Second
)

// withdrawing is how long the store may take to hear that the run failed.
const withdrawing = 4 * time.Second

// begin makes what training runs under: an interrupt does not end it, but makes the node drain.
func (s *Session) begin(ctx context.Context) {
	s.ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.watch = make(chan struct{})
	s.over = func() {}
	if s.team != nil { // who attends looks by itself, and pieces are agreed on anew
		s.ctx, s.over = s.untilOver(s.ctx)
	}
	go func() {
		defer close(s.watch)
		select {
		case <-s.ctx.Done():
		case <-s.node.Member.Lost():
			s.endAfter(fencedLimit, s.node.Member.Err())
		case <-ctx.Done():
			s.handOverTraining()
		}
	}()
}

// endAfter has the process ended if this node has not left by itself until then.
func (s *Session) endAfter(limit time.Duration, why error) {
	if late := s.o.Late; late != nil {
		s.last = time.AfterFunc(limit, func() {
			late(fmt.Errorf("the node did not end within %v by itself: %w", limit, why))
		})
	}
}

// handOverTraining drains the node, and ends training when that leads nowhere.
func (s *Session) handOverTraining() {
	moving, over := s.node.WhileMoving(s.ctx, s.o.Drain)
	defer over()
	if err := s.node.Drain(moving); err != nil && moving.Err() == nil && s.o.Logger != nil {
		s.o.Logger.Warn("the node could not be drained", "error", err)
	}
	select {
	case <-moving.Done():
	case <-s.node.Member.Lost(): // training ends by that
		s.endAfter(fencedLimit, s.node.Member.Err())
		return
	}
	if cause := context.Cause(moving); errors.Is(cause, ErrStuck) {
		s.stuck = cause
		s.endAfter(stuckLimit, cause)
		s.stop(cause)
	}
}

// Leave stops the run here and ends this node's membership, for err, which it returns with what
// goes wrong. What a node that fails holds it hands to the others first.
func (s *Session) Leave(err error) error {
	if s.features != nil && s.features.parts != nil {
		s.features.parts.Interrupt()
	}
	s.node.EndSampling()
	if rt := s.rt.Load(); rt != nil {
		err = errors.Join(err, rt.Stop())
	}
	s.stop(nil)
	if s.watch != nil {
		<-s.watch
		s.over()
	}
	if s.last != nil {
		defer s.last.Stop()
	}
	if s.team != nil {
		s.team.Close()
	}
	ctx := context.Background()
	switch {
	case s.stuck != nil:
		err = fmt.Errorf("%w: %w", s.stuck, err)
		short, cancel := context.WithTimeout(ctx, stuckLimit/2)
		defer cancel()
		ctx = short
	case runOver(err):
		err = errors.Join(err, s.node.forgetRun())
	case s.fails(err) && s.withdraw(err):
	case s.features != nil && !s.given:
		err = errors.Join(err, s.handOver())
	}
	return errors.Join(err, s.node.Leave(ctx))
}

// fails reports whether err is a failure of this node's, which trained the run or began it: not that it was told to
// end, or is no member any more.
func (s *Session) fails(err error) bool {
	n := s.node
	n.mu.Lock()
	r := n.run
	n.mu.Unlock()
	mine := r != nil && (s.team != nil || r.Node == n.Plane.Node() && r.Epoch == n.Member.Epoch())
	return mine && err != nil && n.Member.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrDrained)
}

// withdraw withdraws the run, for err, if nobody else trains for it.
func (s *Session) withdraw(why error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawing)
	defer cancel()
	done, err := s.node.Withdraw(ctx, why)
	switch {
	case err != nil:
		s.node.log.Warn("the run could not be withdrawn: it stays the cluster's until nobody takes part in it", "error", err)
	case done:
		s.node.log.Info("the run is withdrawn, as nobody else trains: the next one may be another")
	}
	return done
}

// handing is how long a node that failed stays for the others to take its shards.
const handing = 30 * time.Second

// handOver gives the shards that lie here to the others.
func (s *Session) handOver() error {
	ctx, over := s.node.WhileMoving(context.Background(), handing)
	defer over()
	// It trains no more: the others must not wait for it while shards move.
	err := s.node.Member.Announce(ctx, func(i *membership.Info) { i.Drain = true })
	if err == nil {
		err = s.features.keeper.Drain(ctx)
	}
	switch {
	case errors.Is(err, membership.ErrFenced):
		return nil // it has nothing any more
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
