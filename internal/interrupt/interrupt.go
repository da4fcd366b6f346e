// Package interrupt lets long loops over nodes and edges end soon when a context does.
package interrupt

import (
	"context"
	"iter"
)

// Every is how many turns of a loop there are between two questions to the context: so many
// are a matter of microseconds to milliseconds, and asking costs nothing beside them.
const Every = 1 << 12

// Poll asks a context now and then whether it has ended. It is for one goroutine. A nil
// Poll never ends.
type Poll struct {
	ctx   context.Context
	turns int
	ended bool
}

// New returns a Poll of ctx.
func New(ctx context.Context) *Poll { return &Poll{ctx: ctx} }

// Ended reports, once per turn of a loop, whether to leave it: it asks the first time, and
// then every so many.
func (p *Poll) Ended() bool {
	if p == nil {
		return false
	}
	if p.turns--; p.turns < 0 {
		p.turns = Every - 1
		p.ended = p.ended || p.ctx.Err() != nil
	}
	return p.ended
}

// Pieces cuts [0, n) into ranges [from, to) of at most Every, asks before each, and ends
// early when the context has ended: Err tells.
func (p *Poll) Pieces(n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := 0; from < n && p.Err() == nil; from += Every {
			if !yield(from, min(from+Every, n)) {
				return
			}
		}
	}
}

// Context returns what New was given.
func (p *Poll) Context() context.Context { return p.ctx }

// Err asks at once, and returns the context's cause if it has ended. What a loop that was
// left has made is void.
func (p *Poll) Err() error {
	if p == nil || p.ctx.Err() == nil {
		return nil
	}
	return context.Cause(p.ctx)
}
