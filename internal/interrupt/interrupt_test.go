package interrupt

import (
	"context"
	"errors"
	"testing"
)

// counted ends at the question with the number left.
type counted struct {
	context.Context
	asked, left int
}

func (c *counted) Err() error {
	if c.asked++; c.asked > c.left {
		return context.Canceled
	}
	return nil
}

// A loop asks at its first turn and every so many, and stays ended.
func TestPoll(t *testing.T) {
	c := &counted{Context: t.Context(), left: 3}
	p := New(c)
	turns := 0
	for !p.Ended() {
		turns++
	}
	if turns != 3*Every || c.asked != 4 {
		t.Errorf("%d turns, asked %d times; want %d and 4", turns, c.asked, 3*Every)
	}
	c.left = 1 << 30
	for range 2 * Every {
		if !p.Ended() {
			t.Fatal("it goes on again")
		}
	}
	var none *Poll
	if none.Ended() || none.Err() != nil {
		t.Error("a nil Poll ends")
	}
}

// Pieces are all of a range, each once and in order, until the context ends.
func TestPieces(t *testing.T) {
	for _, n := range []int{0, 1, Every, 2*Every + 5} {
		next := 0
		for from, to := range (*Poll)(nil).Pieces(n) {
			if from != next || to <= from || to-from > Every {
				t.Errorf("%d: [%d, %d) after %d", n, from, to, next)
			}
			next = to
		}
		if next != n {
			t.Errorf("%d: ends at %d", n, next)
		}
	}
	pieces := 0
	for range New(&counted{Context: t.Context(), left: 2}).Pieces(5 * Every) {
		pieces++
	}
	if pieces != 2 {
		t.Errorf("%d pieces of a context that ends at the third question", pieces)
	}
}

var errEnough = errors.New("enough")

func TestErrIsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	p := New(ctx)
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	cancel(errEnough)
	if err := p.Err(); !errors.Is(err, errEnough) {
		t.Error(err)
	}
}
