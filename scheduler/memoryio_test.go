package scheduler

import (
	"slices"
	"strings"
	"testing"
)

// What does not pay is left out, and the plan says why; what is asked for is
// done.
func TestPlanOfMemoryIO(t *testing.T) {
	base := sizes()
	base.RowBytes, base.Source = 512, "ram"
	for name, c := range map[string]struct {
		change  func(*Sizes, *Request)
		load    bool
		matches bool
		says    string
	}{
		"ram":             {func(*Sizes, *Request) {}, false, false, "features lie in the memory that compute reads (ram)"},
		"mmap":            {func(s *Sizes, _ *Request) { s.Source = "mmap" }, false, false, "(mmap)"},
		"disk":            {func(s *Sizes, _ *Request) { s.Source = "disk" }, true, true, "features come from disk"},
		"match":           {func(_ *Sizes, r *Request) { r.Match = "on" }, true, true, "as asked for"},
		"disk, unmatched": {func(s *Sizes, r *Request) { s.Source, r.Match = "disk", "off" }, true, false, "every batch reads all of its rows"},
		"cache":           {func(s *Sizes, _ *Request) { s.Cache, s.CachedRows = "degree:1%", 10486 }, true, true, "degree:1%: 10486 rows"},
		"sparse":          {func(s *Sizes, r *Request) { s.Source, s.SparseInput = "disk", true }, false, false, "the model holds the others"},
		"whole graph":     {func(s *Sizes, r *Request) { s.Source, s.Sampler, s.Fanouts = "disk", "full", nil }, false, false, "every batch is the whole graph"},
		"reorder":         {func(s *Sizes, r *Request) { s.Source, r.Reorder = "disk", 8 }, true, true, "windows of 8 batches"},
	} {
		s, r := base, Request{Threads: 4}
		c.change(&s, &r)
		p := Build(s, r)
		if p.Load != c.load || p.Match != c.matches || !strings.Contains(p.String(), c.says) {
			t.Errorf("%s: load %v, match %v, want %v, %v and %q:\n%s", name, p.Load, p.Match, c.load, c.matches, c.says, p)
		}
		if p.Load && (p.SlabRows < 1 || p.SlabLimit < p.SlabRows || p.Samplers*p.Credits <= p.Ahead) {
			t.Errorf("%s: %d slots up to %d; %d batches for %d ahead", name, p.SlabRows, p.SlabLimit, p.Samplers*p.Credits, p.Ahead)
		}
		if w := p.Reorder; w > 0 && p.Samplers*p.Credits < w+1 {
			t.Errorf("%s: %d credits for windows of %d", name, p.Samplers*p.Credits, w)
		}
	}
}

// What a window's order depends on is planned of all micro-batches, as many as there are; of sketches it is
// no more than their size, and who shares steps has what the others tell, too.
func TestReorderMemory(t *testing.T) {
	for _, c := range []struct {
		micro  int
		sketch int64
		shared bool
		want   int64 // bytes of a batch
	}{
		{1, 0, false, 4*1000 + 10_000/8},
		{4, 0, false, 4*4000 + 10_000/8},
		{40, 0, false, 4*10_000 + 10_000/8}, // all nodes
		{4, 0, true, 4*4000 + 10_000/8 + 12*4000},
		{4, 2048, false, 16 * 2048},
		{4, 300, true, 16*300 + 12*4*300},
	} {
		s := sizes()
		s.Source, s.Nodes, s.Micro, s.BatchSize, s.Fanouts, s.Layers, s.Sketch = "disk", 10_000, c.micro, 100*c.micro, []int{9}, 1, c.sketch
		p := Build(s, Request{Threads: 2, Reorder: 7, Shared: c.shared})
		i := slices.IndexFunc(p.Memory, func(m Memory) bool { return strings.HasPrefix(m.What, "reorder: ") })
		if got := p.Memory[i].Bytes; got != 8*c.want {
			t.Errorf("%+v: %d bytes for a window of 7 and the batch before, not %d", c, got, 8*c.want)
		}
	}
}

// The nodes of a layer-wise sampler are a layer's, and not each node's.
func TestLayerSizesAreNotFanouts(t *testing.T) {
	s := sizes()
	s.Fanouts = []int{512, 512, 512}
	perNode := Build(s, Request{Threads: 2})
	s.Sampler, s.LayerNodes = "ladies", true
	if perLayer := Build(s, Request{Threads: 2}); perLayer.PeakBytes >= perNode.PeakBytes {
		t.Errorf("512 nodes a layer need %d bytes, 512 neighbours a node %d", perLayer.PeakBytes, perNode.PeakBytes)
	}
}
