package actors

import (
	"context"
	"sync"

	"github.com/gnnactor/gnnactor/messages"
)

// outbox is where actors leave what a plain goroutine takes.
type outbox struct {
	mu     sync.Mutex
	items  []any
	signal chan struct{} // holds a token while items is not empty
}

func newOutbox() *outbox { return &outbox{signal: make(chan struct{}, 1)} }

func (o *outbox) put(x any) {
	o.mu.Lock()
	o.items = append(o.items, x)
	o.mu.Unlock()
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// take returns the oldest item; it waits for one until ctx ends.
func (o *outbox) take(ctx context.Context) (any, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o.mu.Lock()
		if len(o.items) > 0 {
			x := o.items[0]
			o.items[0] = nil
			o.items = o.items[1:]
			o.mu.Unlock()
			return x, nil
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-o.signal:
		}
	}
}

// rest takes everything that is there.
func (o *outbox) rest() []any {
	o.mu.Lock()
	defer o.mu.Unlock()
	items := o.items
	o.items = nil
	return items
}

// progress passes on what a run's owner wants to know. What it holds is
// bounded: between two epochs the run waits for its owner.
type progress struct {
	base
	out *outbox
}

func (p *progress) receive(m any) {
	switch m := m.(type) {
	case *messages.Applied:
		p.out.put(m)
	case *messages.Failed:
		p.out.put(m)
	}
}
