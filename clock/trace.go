package clock

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// event is one entry of the Chrome trace event format: a complete event ("X",
// times in microseconds) or metadata ("M").
type event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Start *float64       `json:"ts,omitempty"`
	Dur   *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// lanesPerStage separates the thread ids of two stages.
const lanesPerStage = 1000

// WriteTrace writes the spans that were kept as a Chrome trace, which Perfetto
// and chrome://tracing open: a row per stage and lane, a slice per span, named
// after its batch.
func (r *Recorder) WriteTrace(w io.Writer) error {
	spans, dropped := r.Spans()
	slices.SortStableFunc(spans, func(a, b Interval) int { return int(a.Begin - b.Begin) })
	out := bufio.NewWriter(w)
	first := true
	put := func(e event) error {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		sep := ",\n"
		if first {
			sep, first = "", false
		}
		_, err = fmt.Fprintf(out, "%s%s", sep, b)
		return err
	}
	if _, err := fmt.Fprintf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_spans\":%d},\"traceEvents\":[\n", dropped); err != nil {
		return err
	}
	if err := put(event{Name: "process_name", Phase: "M", PID: 1, Args: map[string]any{"name": "gnnactor"}}); err != nil {
		return err
	}
	rows := map[int]bool{}
	for _, s := range spans {
		tid := int(s.Stage)*lanesPerStage + min(s.Lane, lanesPerStage-1)
		if !rows[tid] {
			rows[tid] = true
			name := r.Name(s.Stage)
			if s.Lane > 0 {
				name = fmt.Sprintf("%s %d", name, s.Lane+1)
			}
			if err := put(event{Name: "thread_name", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"name": name}}); err != nil {
				return err
			}
			if err := put(event{Name: "thread_sort_index", Phase: "M", PID: 1, TID: tid, Args: map[string]any{"sort_index": tid}}); err != nil {
				return err
			}
		}
		begin, dur := microseconds(s.Begin), microseconds(s.Wall)
		e := event{Name: s.Name, Cat: r.Name(s.Stage), Phase: "X", Start: &begin, Dur: &dur, PID: 1, TID: tid}
		if s.CPU > 0 {
			e.Args = map[string]any{"cpu_ms": float64(s.CPU) / float64(time.Millisecond)}
		}
		if err := put(e); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, "\n]}\n"); err != nil {
		return err
	}
	return out.Flush()
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
