package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/compute"
)

// Whatever is measured, a run stays within what its plan counted as the peak.
func TestRefineStaysWithinThePeak(t *testing.T) {
	const second = time.Second
	loads := sizes()
	loads.Source, loads.RowBytes, loads.Inputs = "disk", 512, 100_000
	measured := []Measured{
		{Batches: 10, Wall: 10 * second, Sample: 2 * second, Load: 0, Compute: 10 * second},            // compute holds up
		{Batches: 10, Wall: 10 * second, Sample: 80 * second, Load: 0, Compute: 5 * second},            // sampling does
		{Batches: 10, Wall: 10 * second, Sample: 4 * second, Load: 10 * second, Compute: 5 * second},   // load does
		{Batches: 10, Wall: 10 * second, Sample: 8 * second, Load: 5 * second, Compute: 7 * second},    // nobody does
		{Batches: 10, Wall: 10 * second, Sample: second / 10, Load: second / 10, Compute: 10 * second}, // compute alone
	}
	for _, s := range []Sizes{sizes(), loads} {
		for _, r := range []Request{{Threads: 8}, {Threads: 2}, {Threads: 5, Reorder: 7}, {Threads: 8, Loaders: 1}, {Threads: 8, Credits: 3}, {Threads: 8, Samplers: 3}, {Threads: 4, Loaders: 3}, {Threads: 4, Cached: true, Gather: "fused"}, {Threads: 8, tight: settled}} {
			p := Build(s, r)
			changes := 0
			for order := range 625 { // any four measurements in a row, ten times over
				now, tuner := p.Tuning(), p.NewTuner(r)
				for range 10 {
					for k, n := 0, order; k < 4; k, n = k+1, n/5 {
						next, why := tuner.Next(measured[n%5])
						if next != now {
							changes++
						}
						if next != now && len(why) == 0 {
							t.Fatalf("%+v becomes %+v without a reason", now, next)
						}
						now = next
						if now.Cache > p.CacheRoom || now.Threads > p.Threads || now.Threads < 1 || now.Copied && r.Gather == "fused" {
							t.Fatalf("%+v: %+v exceeds %d rows cached or %d threads, or copies what is to be read where it lies", r, now, p.CacheRoom, p.Threads)
						}
						if now.Samplers*now.Credits > p.MaxBatches || now.Samplers > p.MaxSamplers || now.Ahead > p.MaxAhead || now.Loaders > p.MaxLoaders {
							t.Fatalf("%+v: %+v exceeds %d batches, %d samplers, %d ahead, %d loaders", r, now, p.MaxBatches, p.MaxSamplers, p.MaxAhead, p.MaxLoaders)
						}
					}
				}
			}
			if changes == 0 {
				t.Errorf("%+v: nothing was ever changed", r)
			}
		}
	}
}

// The peak counts the slab's limit, and what is kept beside the data.
func TestPeakCountsWhatIsKept(t *testing.T) {
	base := sizes()
	base.Source, base.RowBytes, base.Inputs, base.NewRows = "disk", 512, 100_000, 50_000
	p := Build(base, Request{Threads: 2})
	slab := int64(0)
	for _, m := range p.Memory {
		if strings.HasPrefix(m.What, "slab") {
			slab = m.Bytes
		}
	}
	if slab < p.SlabLimit*base.RowBytes || p.SlabLimit < p.SlabRows {
		t.Errorf("the slab may grow to %d rows, and counts %d bytes", p.SlabLimit, slab)
	}
	for what, change := range map[string]func(*Sizes){
		"tables":   func(s *Sizes) { s.SamplerShared = 1 << 20 },
		"samplers": func(s *Sizes) { s.SamplerOwn = 1 << 20 },
		"copy":     func(s *Sizes) { s.FeaturesCopy = true },
		"away":     func(s *Sizes) { s.FeaturesAway = true },
	} {
		s := base
		change(&s)
		if q := Build(s, Request{Threads: 2}); q.PeakBytes < p.PeakBytes+1<<20 {
			t.Errorf("%s: %d bytes, without %d", what, q.PeakBytes, p.PeakBytes)
		}
	}
	base.SamplerOwn = 1 << 20
	p = Build(base, Request{Threads: 2})
	base.Audits = true // with a sampler of their own
	if q := Build(base, Request{Threads: 2}); q.PeakBytes < p.PeakBytes+1<<20 {
		t.Errorf("audits: %d bytes, without %d", q.PeakBytes, p.PeakBytes)
	}
}

// The batches of samplers that choose their seeds are counted; a temporal batch
// has a node once for every seed, and the slab it once; bounds do not overflow.
func TestSizesOfOtherSamplers(t *testing.T) {
	s := sizes()
	s.Sampler, s.Fanouts, s.Batches = "cluster", nil, 17
	if p := Build(s, Request{Threads: 2}); p.Batches != 17 {
		t.Errorf("%d batches, want 17", p.Batches)
	}
	s = sizes()
	s.Sampler, s.Fanouts, s.Temporal, s.Source, s.RowBytes = "khop", nil, true, "disk", 512
	s.BatchSize, s.Nodes, s.Edges = 1<<14, 1<<31, 1<<38
	p := Build(s, Request{Threads: 2})
	if p.SlabLimit != s.Nodes {
		t.Errorf("the slab may have %d slots for %d nodes", p.SlabLimit, s.Nodes)
	}
	for _, m := range p.Memory {
		if m.Bytes < 0 {
			t.Errorf("%s: %d bytes", m.What, m.Bytes)
		}
	}
	if p.PeakBytes != enough {
		t.Errorf("peak %d", p.PeakBytes)
	}
	s.Temporal = false
	if q := Build(s, Request{Threads: 2}); q.PeakBytes >= p.PeakBytes {
		t.Errorf("peak %d, temporal %d", q.PeakBytes, p.PeakBytes)
	}
}

// Credit that does not do for a window is raised, and the plan says so.
func TestRaisedCreditsAreReported(t *testing.T) {
	p := Build(sizes(), Request{Threads: 2, Samplers: 1, Credits: 1, Reorder: 8})
	if p.Credits < 9 || !strings.Contains(p.Raised, "in place of 1") || !strings.Contains(p.String(), p.Raised) {
		t.Errorf("%d credits: %q", p.Credits, p.Raised)
	}
	if p := Build(sizes(), Request{Threads: 2, Samplers: 1, Credits: 20, Reorder: 8}); p.Credits != 20 || p.Raised != "" {
		t.Errorf("%d credits: %q", p.Credits, p.Raised)
	}
}

// A graph of one node has all entries in its row.
func TestChunkRowOfOneNode(t *testing.T) {
	s := Sizes{Nodes: 1, Edges: 100, Inference: []compute.InferenceSize{{Row: 7, Entry: 3}}}
	if got := s.chunkRow(); got != 307 {
		t.Errorf("%d bytes", got)
	}
}
