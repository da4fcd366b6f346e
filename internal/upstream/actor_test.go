package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
}

// deadLetters counts messages that the system reports as not delivered, by the one
// that is asked for.
func deadLetters(s *actor.ActorSystem, which func(message any) bool) *atomic.Int64 {
	var n atomic.Int64
	s.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok && which(d.Message) {
			n.Add(1)
		}
	})
	return &n
}

func isNumber(m any) bool { _, ok := m.(int); return ok }

// meet asks an actor to wait within Receive for the other, and to fill its mailbox.
type meet struct{ peer <-chan *actor.PID }

// fillEachOther lets two actors, both within Receive, send each other one message
// more than their mailboxes hold: nobody can take one before its own Receive ends.
func fillEachOther() error {
	ctx, cancel := limit()
	defer cancel()
	s := newSystem()
	const size = 4
	var sent atomic.Int64
	inside, ended := make(chan struct{}), make(chan struct{}, 2)
	props := actor.PropsFromFunc(func(c actor.Context) {
		m, ok := c.Message().(meet)
		if !ok {
			return
		}
		inside <- struct{}{}
		peer := <-m.peer
		for i := range size + 1 {
			c.Send(peer, i)
			sent.Add(1)
		}
		ended <- struct{}{}
	}, actor.WithMailbox(actor.Bounded(size)))
	var pids [2]*actor.PID
	var peers [2]chan *actor.PID
	for i := range pids {
		pids[i], peers[i] = s.Root.Spawn(props), make(chan *actor.PID, 1)
		s.Root.Send(pids[i], meet{peers[i]})
		<-inside
	}
	peers[0] <- pids[1]
	peers[1] <- pids[0]
	stacks := make([]byte, 1<<20)
	for ctx.Err() == nil && len(ended) == 0 {
		now := string(stacks[:runtime.Stack(stacks, true)])
		if sent.Load() == 2*size && strings.Count(now, "boundedMailboxQueue).Push") == 2 {
			fmt.Printf("%s: both are full, and both senders are in Push\n", seen)
			return nil
		}
	}
	return ctx.Err()
}

// overfill sends ten messages to an actor that is busy and has room for four.
func overfill() error {
	ctx, cancel := limit()
	defer cancel()
	s := newSystem()
	lost := deadLetters(s, isNumber)
	busy, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	var got int
	pid := s.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case string:
			close(busy)
			<-release
		case int:
			if got++; m == 9 {
				ended <- struct{}{}
			}
		}
	}, actor.WithMailbox(actor.BoundedDropping(4))))
	s.Root.Send(pid, "go")
	<-busy
	for i := range 10 {
		s.Root.Send(pid, i)
	}
	close(release)
	if err := await(ctx, ended, 1); err != nil {
		return err
	}
	if int64(got)+lost.Load() < 10 {
		fmt.Printf("%s: of 10 messages %d arrived and %d were reported\n", seen, got, lost.Load())
	}
	return nil
}

// stopFull stops an actor that has ten messages in its queue.
func stopFull() error {
	s := newSystem()
	lost := deadLetters(s, isNumber)
	busy, release := make(chan struct{}), make(chan struct{})
	got := 0
	pid := s.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case string:
			close(busy)
			<-release
		case int:
			got++
		}
	}))
	s.Root.Send(pid, "go")
	<-busy
	for i := range 10 {
		s.Root.Send(pid, i)
	}
	stopped := s.Root.StopFuture(pid)
	close(release)
	if err := stopped.Wait(); err != nil {
		return err
	}
	if int64(got)+lost.Load() < 10 {
		fmt.Printf("%s: of 10 messages %d arrived and %d were reported\n", seen, got, lost.Load())
	}
	return nil
}

// answerLate holds a future's process, as a sender does that has looked it up, and
// sends to it after the time-out.
func answerLate() error {
	s := newSystem()
	f := actor.NewFuture(s, time.Millisecond)
	p, ok := s.ProcessRegistry.GetLocal(f.PID().Id)
	for !ok { // the time-out was sooner
		f = actor.NewFuture(s, time.Millisecond)
		p, ok = s.ProcessRegistry.GetLocal(f.PID().Id)
	}
	before, err := f.Result()
	if before != nil || !errors.Is(err, actor.ErrTimeout) {
		return fmt.Errorf("%v, %w; want a time-out", before, err)
	}
	p.SendUserMessage(f.PID(), "late")
	if after, err := f.Result(); after != nil {
		fmt.Printf("%s: it held a time-out, and now %v, %v\n", seen, after, err)
	}
	return nil
}

// answerInTime answers futures at about the time when they time out.
func answerInTime() error {
	s := newSystem()
	for range 20_000 {
		f := actor.NewFuture(s, 20*time.Microsecond)
		go s.Root.Send(f.PID(), "reply")
		_, _ = f.Result() // whichever comes first
	}
	return nil
}

func shutdownTwice() error {
	s := newSystem()
	s.Shutdown()
	s.Shutdown()
	return nil
}
