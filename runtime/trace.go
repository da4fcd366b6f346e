package runtime

import (
	"fmt"
	"io"
	"time"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// Span is work that a stage did.
type Span struct {
	Stage string        // sample, reorder, match, load, cache, compute, update, or the name of one of Config.Stages
	Lane  int           // spans of a stage that overlap have different ones
	Name  string        // of the batch: "train/e3/b17"
	Begin time.Duration // since the first span
	Wall  time.Duration
	CPU   time.Duration // of the thread that did it; without what it had others do
}

// traceSpans is how many spans a trace holds at most.
const traceSpans = 1 << 20

// trace keeps the spans of a run that ended with err, and writes its trace, unless it was refused before any stage did something.
func (t *trainCall) trace(err error) error {
	if !t.clock.Keeping() {
		return nil
	}
	kept, dropped := t.clock.Spans()
	spans := make([]Span, len(kept))
	for i, s := range kept {
		spans[i] = Span{t.clock.Name(s.Stage), s.Lane, s.Name, s.Begin, s.Wall, s.CPU}
	}
	t.r.mu.Lock()
	t.r.spans = spans
	t.r.mu.Unlock()
	path := t.r.cfg.Execution.Trace
	if path == "" || err != nil && len(spans) == 0 {
		return nil
	}
	if dropped > 0 {
		t.r.log.Warn("the trace holds the first spans only", "left out", dropped)
	}
	if err := atomicfile.Write(path, 0o644, func(w io.Writer) error { return t.clock.WriteTrace(w) }); err != nil {
		return fmt.Errorf("runtime: trace: %w", err)
	}
	return nil
}

// Spans returns what the stages of the last Train did, in the order in which it
// ended; empty unless Config.Execution.Spans or Trace asks for it.
func (r *Runtime) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans
}
