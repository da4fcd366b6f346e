package actors

import (
	"context"
	"errors"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/messages"
)

// ErrStopped is returned by asks to a pipeline that has stopped.
var ErrStopped = errors.New("actors: the pipeline has stopped")

// asks turns a request and its reply into a call. The library's futures race
// between a late reply and their time-out; here a reply finds its channel by
// number or is dropped.
type asks struct {
	mu     sync.Mutex
	last   uint64
	open   map[uint64]chan any
	closed chan struct{}
}

func newAsks() *asks {
	return &asks{open: map[uint64]chan any{}, closed: make(chan struct{})}
}

// Receive implements actor.Actor.
func (a *asks) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.Drained:
		a.answer(m.Ask, m)
	case *messages.State:
		a.answer(m.Ask, m)
	}
}

func (a *asks) answer(id uint64, m any) {
	a.mu.Lock()
	reply, ok := a.open[id]
	delete(a.open, id)
	a.mu.Unlock()
	if ok {
		reply <- m // it has room for one
	}
}

// ask calls send with the number of a new request and waits for its reply.
func (a *asks) ask(ctx context.Context, send func(id uint64)) (any, error) {
	reply := make(chan any, 1)
	a.mu.Lock()
	a.last++
	id := a.last
	a.open[id] = reply
	a.mu.Unlock()
	send(id)
	select {
	case m := <-reply:
		return m, nil
	case <-ctx.Done():
	case <-a.closed:
	}
	a.mu.Lock()
	delete(a.open, id)
	a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, ErrStopped
}
