package main

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/runtime"
)

// clockAt returns a clock that reads what the test sets.
func clockAt(now *time.Time) func() time.Time { return func() time.Time { return *now } }

func epochEvent(epoch int) runtime.Event {
	return runtime.Event{Kind: runtime.EventEpoch, Epoch: epoch, Loss: 0.5, TrainAccuracy: 0.75, ValidAccuracy: math.NaN(), TestAccuracy: 0.5, Wall: time.Second}
}

// Elsewhere than on a terminal: whole lines, at most one a second, the first
// and the last always, and nothing that moves a cursor.
func TestProgressLines(t *testing.T) {
	var b strings.Builder
	now := time.Unix(0, 0)
	p := newProgress(&b, 5)
	p.now = clockAt(&now)
	p.event(runtime.Event{Kind: runtime.EventStart, Message: "no checkpoint in x: starting afresh"})
	for epoch, wait := range []time.Duration{0, 400, 400, 400, 0} {
		now = now.Add(wait * time.Millisecond)
		p.event(runtime.Event{Kind: runtime.EventStep, Epoch: epoch, Batches: 1, Loss: 9})
		p.event(epochEvent(epoch))
	}
	p.event(runtime.Event{Kind: runtime.EventDone, Epoch: 4})
	want := `gnnactor: no checkpoint in x: starting afresh
epoch 1/5  loss 0.5000  train 75.0 %  test 50.0 %  1.00 s
epoch 4/5  loss 0.5000  train 75.0 %  test 50.0 %  1.00 s
epoch 5/5  loss 0.5000  train 75.0 %  test 50.0 %  1.00 s
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Where training ends before its last epoch, that epoch has its line, and it is said why.
func TestProgressStopsEarly(t *testing.T) {
	var b strings.Builder
	now := time.Unix(0, 0)
	p := newProgress(&b, 5)
	p.now = clockAt(&now)
	for epoch := range 3 {
		p.event(epochEvent(epoch))
	}
	p.event(runtime.Event{Kind: runtime.EventDone, Epoch: 2, Best: 1})
	want := `epoch 1/5  loss 0.5000  train 75.0 %  test 50.0 %  1.00 s
epoch 3/5  loss 0.5000  train 75.0 %  test 50.0 %  1.00 s
gnnactor: stopped after 3 of 5 epochs: the validation accuracy does not rise any more (--patience)
gnnactor: the parameters are those of epoch 1, the best by validation (--keep last keeps the last)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// On a terminal one line is rewritten, never wider than the terminal, and gone
// in the end.
func TestProgressBar(t *testing.T) {
	for _, width := range []int{20, 40, 80, 200} {
		var b strings.Builder
		now := time.Unix(0, 0)
		p := newProgress(&b, 3)
		p.width, p.now = width, clockAt(&now)
		for epoch := range 3 {
			for batch := range 40 {
				now = now.Add(30 * time.Millisecond)
				p.event(runtime.Event{Kind: runtime.EventStep, Epoch: epoch, Batch: batch, Batches: 40, Loss: 1.25})
			}
			p.event(epochEvent(epoch))
		}
		p.event(runtime.Event{Kind: runtime.EventDone, Epoch: 2})
		if strings.Contains(b.String(), "\n") {
			t.Errorf("width %d: more than one line", width)
		}
		frames := strings.Split(b.String(), "\r")
		if frames[len(frames)-1] != "\x1b[K" {
			t.Errorf("width %d: the line ends with %q", width, frames[len(frames)-1])
		}
		if n := len(frames); n < 20 || n > 45 { // 3.6 s at most 10 times a second
			t.Errorf("width %d: %d frames", width, n)
		}
		for _, f := range frames {
			if n := utf8.RuneCountInString(strings.TrimSuffix(f, "\x1b[K")); n >= width {
				t.Errorf("width %d: %d columns in %q", width, n, f)
			}
		}
	}
}

func TestDrawBar(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  string
	}{{0, "····"}, {0.5, "██··"}, {1, "████"}, {2, "████"}, {-1, "····"}, {9.0 / 32, "█▏··"}} {
		if got := drawBar(c.share, 4); got != c.want {
			t.Errorf("%v: got %q, want %q", c.share, got, c.want)
		}
	}
}
