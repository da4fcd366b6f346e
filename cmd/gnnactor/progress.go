package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/runtime"
)

// progress shows how a training run goes: on a terminal one line that is
// rewritten, elsewhere a line per epoch, at most one a second, and always the
// first and the last.
type progress struct {
	w      io.Writer
	width  int // of the terminal; 0: not a terminal
	epochs int
	figure splitFigure
	now    func() time.Time

	last  time.Time // of the last line written
	line  string    // of the last epoch, where it was not due
	loss  float64   // of the last batch
	valid string    // validation accuracy of the last evaluated epoch, for the bar
	shown bool      // a line stands on the terminal
}

func newProgress(w io.Writer, epochs int) *progress {
	p := &progress{w: w, epochs: epochs, now: time.Now}
	if width, ok := terminal(w); ok {
		p.width = width
	}
	return p
}

// event shows ev.
func (p *progress) event(ev runtime.Event) {
	switch ev.Kind {
	case runtime.EventStart:
		if ev.Message != "" {
			p.clear()
			fmt.Fprintf(p.w, "gnnactor: %s\n", ev.Message)
		}
	case runtime.EventTune:
		p.clear()
		fmt.Fprintf(p.w, "gnnactor: plan: %s\n", ev.Message)
	case runtime.EventStep:
		p.loss = ev.Loss
		if p.width > 0 && p.due(100*time.Millisecond) {
			p.bar(ev.Epoch, ev.Batch+1, ev.Batches)
		}
	case runtime.EventEpoch:
		p.loss, p.line = ev.Loss, ""
		if !math.IsNaN(ev.ValidAccuracy) {
			p.valid = "  valid " + p.figure.prefix() + p.figure.format(ev.ValidAccuracy)
		}
		switch {
		case p.width > 0:
			if p.due(100 * time.Millisecond) {
				p.bar(ev.Epoch+1, 0, 0)
			}
		default:
			p.line = fmt.Sprintf("epoch %d/%d  loss %s%s  %s\n", ev.Epoch+1, p.epochs, formatLoss(ev.Loss), accuracies(ev, p.figure), formatDuration(ev.Wall))
			if ev.Epoch+1 == p.epochs || p.due(time.Second) {
				p.write()
			}
		}
	case runtime.EventDone:
		p.clear()
		p.write()
		if done := ev.Epoch + 1; done > 0 && done < p.epochs {
			does := "rise"
			if p.figure == rmseFigure {
				does = "fall"
			}
			fmt.Fprintf(p.w, "gnnactor: stopped after %d of %d epochs: the validation %s does not %s any more (--patience)\n", done, p.epochs, p.figure.name(), does)
		}
		if ev.Best > 0 {
			fmt.Fprintf(p.w, "gnnactor: the parameters are those of epoch %d, the best by validation (--keep last keeps the last)\n", ev.Best)
		}
	}
}

// write writes the last epoch's line, if it has not been.
func (p *progress) write() {
	fmt.Fprint(p.w, p.line)
	p.line = ""
}

// due reports whether the last line is at least d old, and if so takes now as
// the time of the next one.
func (p *progress) due(d time.Duration) bool {
	now := p.now()
	if !p.last.IsZero() && now.Sub(p.last) < d {
		return false
	}
	p.last = now
	return true
}

// bar rewrites the terminal's line: done epochs, and batch of batches in the
// next one.
func (p *progress) bar(done, batch, batches int) {
	share := float64(done)
	if batches > 0 {
		share += float64(batch) / float64(batches)
	}
	if p.epochs > 0 {
		share /= float64(p.epochs)
	}
	epoch := done
	text := ""
	if batches > 0 {
		epoch++
		text = fmt.Sprintf("  batch %*d/%d", len(fmt.Sprint(batches)), batch, batches)
	}
	head := fmt.Sprintf("epoch %*d/%d ", len(fmt.Sprint(p.epochs)), epoch, p.epochs)
	tail := fmt.Sprintf(" %3.0f %%%s  loss %s%s", 100*share, text, formatLoss(p.loss), p.valid)
	if room := min(p.width-1-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail), 40); room >= 4 {
		head += drawBar(share, room)
	}
	line := []rune(head + tail)
	line = line[:min(len(line), p.width-1)] // a full line would wrap
	fmt.Fprintf(p.w, "\r%s\x1b[K", string(line))
	p.shown = true
}

// clear removes the bar, so that what follows starts on a clean line.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// drawBar draws share of width cells, to an eighth of a cell.
func drawBar(share float64, width int) string {
	eighths := int(max(0, min(share, 1)) * float64(8*width))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return bar + strings.Repeat("·", width-utf8.RuneCountInString(bar))
}

// splitFigure is what an event's figures of valid and test are.
type splitFigure int

const (
	accuracyFigure splitFigure = iota
	aucFigure                  // of task link
	rmseFigure                 // of task regression
)

// figureOf returns that of a run; rt is nil of a node that holds rows alone.
func figureOf(cfg runtime.Config, rt *runtime.Runtime) splitFigure {
	switch {
	case cfg.Model.Task == "link":
		return aucFigure
	case rt != nil && rt.Regression():
		return rmseFigure
	}
	return accuracyFigure
}

func (f splitFigure) name() string { return [...]string{"accuracy", "AUC", "RMSE"}[f] }

// prefix is the name with a blank, unless the figure goes without saying.
func (f splitFigure) prefix() string {
	if f == accuracyFigure {
		return ""
	}
	return f.name() + " "
}

func (f splitFigure) format(x float64) string {
	if f == rmseFigure {
		return formatNumber(x)
	}
	return formatPercent(x)
}

// accuracies writes those of an epoch that were measured.
func accuracies(ev runtime.Event, f splitFigure) string {
	var b strings.Builder
	train := "train"
	if f == aucFigure { // of the batches' pairs
		train = "train accuracy"
	}
	for _, s := range []struct {
		name string
		x    float64
	}{{train, ev.TrainAccuracy}, {"valid " + f.prefix(), ev.ValidAccuracy}, {"test " + f.prefix(), ev.TestAccuracy}} {
		if !math.IsNaN(s.x) {
			fmt.Fprintf(&b, "  %s %s", strings.TrimSpace(s.name), f.format(s.x))
		}
	}
	return b.String()
}
