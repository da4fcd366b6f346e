// Package interrupttest makes contexts that end after so many questions, to test that what
// takes long asks often enough, and ends.
package interrupttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// ErrEnough is the cause of a Context that has ended.
var ErrEnough = errors.New("enough")

// Never is more questions than any test asks.
const Never = 1 << 30

// Context ends when it is asked for its error for the n-th time.
type Context struct {
	context.Context
	cancel context.CancelCauseFunc
	left   atomic.Int32
}

// New returns a Context of n questions.
func New(t *testing.T, n int) *Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	c := &Context{Context: ctx, cancel: cancel}
	c.left.Store(int32(n))
	return c
}

// Err implements context.Context.
func (c *Context) Err() error {
	if c.left.Add(-1) == 0 {
		c.Cancel()
	}
	return c.Context.Err()
}

// Cancel ends it now.
func (c *Context) Cancel() { c.cancel(ErrEnough) }

// Asked returns how often a Context of Never questions has been asked.
func (c *Context) Asked() int { return Never - int(c.left.Load()) }

// Check runs f with contexts that end at each question that f asks, as far apart as
// leaves some ten of them: each has to return an error that wraps ErrEnough. Not ended,
// f has to succeed, and to ask at least so often.
func Check(t *testing.T, least int, f func(ctx context.Context) error) {
	t.Helper()
	whole := New(t, Never)
	if err := f(whole); err != nil {
		t.Fatal(err)
	}
	asked := whole.Asked()
	if t.Logf("asks %d times", asked); asked < least {
		t.Errorf("it asks its context %d times, and there are loops for %d", asked, least)
	}
	for n := 1; n <= asked; n += max(1, asked/10) {
		if err := f(New(t, n)); !errors.Is(err, ErrEnough) {
			t.Errorf("told to stop at question %d of %d: %v", n, asked, err)
		}
	}
}
