package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/runtime"
)

// someSpans is a pipeline of 20 batches in each of 2 epochs, in which a batch is
// sampled and loaded, two at a time, and copied to a device, while others are computed.
func someSpans() []runtime.Span {
	var spans []runtime.Span
	ms := time.Millisecond
	for e := range 2 {
		for b := range 20 {
			name, t := fmt.Sprintf("train/e%d/b%d", e, b), time.Duration(e*1000+b*10)*ms
			spans = append(spans,
				runtime.Span{Stage: "sample", Name: name, Begin: t, Wall: 8 * ms},
				runtime.Span{Stage: "match", Name: name, Begin: t + 8*ms, Wall: ms},
				runtime.Span{Stage: "load", Lane: b % 2, Name: name, Begin: t + 9*ms, Wall: 15 * ms},
				runtime.Span{Stage: "copy", Name: "12 rows, 480 bytes", Begin: t + 10*ms, Wall: 2 * ms},
				runtime.Span{Stage: "compute", Name: name, Begin: t + 25*ms, Wall: 9 * ms},
				runtime.Span{Stage: "update", Name: name, Begin: t + 34*ms, Wall: ms / 10})
		}
	}
	return spans
}

// The time line shows batches in the middle of the last epoch, each stage on rows of
// its own, in the order in which batches pass through them.
func TestTimeline(t *testing.T) {
	line := newTimeline(someSpans())
	if want := []string{"sample", "match", "load", "load 2", "copy", "compute", "update"}; !slices.Equal(line.rows, want) {
		t.Errorf("rows %v, want %v", line.rows, want)
	}
	if line.first != "train/e1/b4" || line.last != "train/e1/b15" {
		t.Errorf("it shows %s to %s", line.first, line.last)
	}
	for _, b := range line.bars {
		if b.begin < 0 || b.end > line.width || b.end < b.begin || epochOf(b.batch) != "e1" && line.rows[b.row] != "copy" {
			t.Errorf("bar %+v in [0, %v]", b, line.width)
		}
	}
	if newTimeline(nil) != nil {
		t.Error("a time line of nothing")
	}
	for _, name := range []string{"line.svg", "line.png"} {
		file := filepath.Join(t.TempDir(), name)
		if err := someCurves(3).save(file, line); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(file); err != nil || st.Size() < 1000 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

func TestBatchNames(t *testing.T) {
	for name, want := range map[string][2]string{"train/e3/b17": {"e3", "17"}, "train/e0/b2/m1": {"e0", "2.1"}, "cache": {"", ""}} {
		if e, b := epochOf(name), batchOf(name); e != want[0] || b != want[1] {
			t.Errorf("%s: epoch %q, batch %q; want %q", name, e, b, want)
		}
	}
}
