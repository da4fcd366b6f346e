package scheduler

import (
	"errors"
	"strings"
	"testing"
)

// Under any limit the plan takes no more, or says what it would take; it gives up
// no more than it must, and nothing that the user fixed.
func TestFit(t *testing.T) {
	loads := sizes()
	loads.Source, loads.RowBytes, loads.Inputs = "disk", 512, 100_000
	for _, s := range []Sizes{sizes(), loads} {
		for _, r := range []Request{{Threads: 8}, {Threads: 8, Samplers: 3, Credits: 2, Loaders: 4, EvalChunk: 5000}, {Threads: 4, Reorder: 3}} {
			full := Build(s, r)
			if p := Fit(s, r, Limit{}); p.PeakBytes != full.PeakBytes || p.Limit != 0 || p.Check() != nil {
				t.Errorf("without a limit: %d of %d", p.PeakBytes, full.PeakBytes)
			}
			if p := Fit(s, r, Limit{full.PeakBytes, "a"}); p.Fitted != "" || p.PeakBytes != full.PeakBytes || p.LimitFrom != "a" {
				t.Errorf("a limit that is no less: %q, from %s", p.Fitted, p.LimitFrom)
			}
			seen := map[int64]bool{}
			for limit := full.PeakBytes; limit > 1<<20; limit -= full.PeakBytes / 200 {
				p := Fit(s, r, Limit{limit, "/a/memory.max"})
				seen[p.PeakBytes] = true
				err := p.Check()
				if (err == nil) != (p.PeakBytes <= limit) || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), mebibytes(limit)) || !strings.Contains(err.Error(), mebibytes(p.PeakBytes)) || !strings.Contains(err.Error(), "/a/memory.max")) {
					t.Fatalf("limit %d, peak %d: %v", limit, p.PeakBytes, err)
				}
				if p.PeakBytes < full.PeakBytes && (p.Fitted == "" || !strings.Contains(p.String(), p.Fitted)) {
					t.Fatalf("less, and it is not said: %q", p.Fitted)
				}
				if r.Samplers > 0 && (p.Samplers != 3 || p.Credits != full.Credits || p.EvalChunk != 5000 || full.Load && p.Loaders != 4) {
					t.Fatalf("what was fixed is %d samplers, %d credits, %d loaders, %d rows", p.Samplers, p.Credits, p.Loaders, p.EvalChunk)
				}
			}
			if r.Samplers == 0 && len(seen) < 3 {
				t.Errorf("%d different peaks", len(seen))
			}
		}
	}
}
