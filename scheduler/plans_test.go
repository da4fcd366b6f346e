package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
)

// small is a job whose plan one can compute by hand: the blocks of 10 seeds have at most 40
// and 150 edges, and 50 and 200 sources.
func small() Sizes {
	return Sizes{
		Nodes: 1000, Edges: 8000, FeatureBytes: 20_000, TrainNodes: 95, InDim: 5, OutDim: 3, Hidden: 4, Layers: 2,
		Sampler: "neighbor", Fanouts: []int{4, 3}, BatchSize: 10, Micro: 1, Parameters: 100, Kernels: "go", Optimizer: "sgd",
		Source: "ram", RowBytes: 20,
	}
}

// exact is all that a plan says, in bytes.
func exact(p *Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "threads %d, samplers %d to %d, together %t, trainers %d, credits %d, batches %d of %d, chunk %d\n",
		p.Threads, p.Samplers, p.MaxSamplers, p.Together, p.Trainers, p.Credits, p.MaxBatches, p.Batches, p.EvalChunk)
	fmt.Fprintf(&b, "load %t, match %t, window %d, loaders %d to %d, ahead %d to %d, slab %d to %d, cache %d, room %d, copied %t, copies %d\n",
		p.Load, p.Match, p.Reorder, p.Loaders, p.MaxLoaders, p.Ahead, p.MaxAhead, p.SlabRows, p.SlabLimit, p.CacheRows, p.CacheRoom, p.Copied, p.CopyRows)
	fmt.Fprintf(&b, "inferences %d of %d, limit %d %q, fitted %q, raised %q\n", p.Inferences, p.InferenceBytes, p.Limit, p.LimitFrom, p.Fitted, p.Raised)
	for _, s := range p.Stages {
		fmt.Fprintf(&b, "  %s × %d: %s\n", s.Name, s.Actors, s.Why)
	}
	for _, s := range p.LeftOut {
		fmt.Fprintf(&b, "  no %s: %s\n", s.Name, s.Why)
	}
	for _, m := range p.Memory {
		counts := ""
		if m.Mapped || m.When != "" {
			counts = fmt.Sprintf(" (not counted: mapped %t, %s)", m.Mapped, m.When)
		}
		fmt.Fprintf(&b, "  %9d %s%s\n", m.Bytes, m.What, counts)
	}
	fmt.Fprintf(&b, "  %9d\n", p.PeakBytes)
	for _, m := range p.DeviceMemory {
		fmt.Fprintf(&b, "  %9d on the device: %s\n", m.Bytes, m.What)
	}
	if p.DeviceBytes > 0 {
		fmt.Fprintf(&b, "  %9d of %d, %d pinned, %d of it the table\n", p.DevicePeak, p.DeviceBytes, p.Pinned, p.Registered)
	}
	return b.String()
}

// What small jobs of every kind are planned to be, to the byte. In testdata/plans.txt the
// terms of the first are those that one computes by hand, and the others differ from it by
// what is changed; GNNACTOR_WRITE_PLANS=1 writes it anew, to be read before it is kept.
func TestPlansToTheByte(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct {
		name   string
		change func(*Sizes, *Request)
	}{
		{"in memory", func(s *Sizes, r *Request) {}},
		{"one thread, ten micro-batches of a batch that is cut short, as asked for", func(s *Sizes, r *Request) {
			s.BatchSize, s.Micro = 95, 10
			*r = Request{Threads: 1, Samplers: 3, Trainers: 2, Credits: 2, EvalChunk: 7, Gather: "copied"}
		}},
		{"mapped, a copy in memory, the fused gather", func(s *Sizes, r *Request) {
			s.FeaturesMap, s.GraphMap, s.FeaturesCopy, s.Source, r.Gather = true, true, true, "mmap", "fused"
		}},
		{"whole graph", func(s *Sizes, r *Request) { s.Sampler, s.Fanouts = "full", nil }},
		{"no features", func(s *Sizes, r *Request) { s.InDim, s.RowBytes, s.FeatureBytes = 0, 0, 0 }},
		{"all neighbours in the second layer", func(s *Sizes, r *Request) { s.Fanouts = []int{4, -1} }},
		{"a layer's nodes", func(s *Sizes, r *Request) {
			s.Sampler, s.Fanouts, s.LayerNodes, s.SamplerShared, s.SamplerOwn = "ladies", []int{20, 30}, true, 777, 55
		}},
		{"more nodes than the graph has", func(s *Sizes, r *Request) { s.Fanouts, s.Nodes, s.Edges = []int{20, 20}, 100, 300 }},
		{"on average, in time, batches of the sampler's own", func(s *Sizes, r *Request) {
			s.OnAverage, s.Temporal, s.Batches, s.Fanouts = true, true, 6, []int{4, 300}
		}},
		{"attention, wide, in bfloat16 that is slow, inductive", func(s *Sizes, r *Request) {
			s.Heads, s.Wide, s.BF16Rate, s.Inductive, s.SeenEdges = 2, 9, 0.5, true, 600
		}},
		{"multiplied before it is aggregated, in bfloat16", func(s *Sizes, r *Request) {
			s.InDim, s.Hidden, s.BF16Rate = 64, 2, 1.5
		}},
		{"values that are not zero", func(s *Sizes, r *Request) { s.SparseInput, s.SparseBytes = true, 333 }},
		{"from disk", func(s *Sizes, r *Request) { s.Source = "disk" }},
		{"from disk, as measured, a window, audited", func(s *Sizes, r *Request) {
			s.Source, s.Inputs, s.NewRows, s.Micro, s.Audits, s.SamplerOwn = "disk", 80, 30, 2, true, 44
			r.Reorder, r.Credits = 3, 1
		}},
		{"from disk, a dynamic cache, nothing matched, loaders fixed", func(s *Sizes, r *Request) {
			s.Source, s.Inputs, s.NewRows, s.Cache, s.CachedRows = "disk", 80, 30, "dynamic:10%", 100
			r.Match, r.Cached, r.Loaders = "off", true, 3
		}},
		{"a cache of another kind, no room measured", func(s *Sizes, r *Request) {
			s.Inputs, s.NewRows, s.Cache, s.CachedRows = 80, 30, "degree:10%", 100
			r.Cached = true
		}},
		{"a cache left out", func(s *Sizes, r *Request) { s.Source, r.Cached = "disk", true }},
		{"matched as asked for, with others", func(s *Sizes, r *Request) { r.Match, r.Shared, r.Loaders, r.Credits = "on", true, 1, 5 }},
		{"a table elsewhere, stages of one's own", func(s *Sizes, r *Request) {
			s.FeaturesAway, s.Source = true, "throttled:1MB/s"
			s.Own = []Own{{"cut", "1", false}, {"scale", "2", true}}
		}},
		{"all threads on one batch", func(s *Sizes, r *Request) {
			s.Nodes, s.Edges, s.TrainNodes, s.BatchSize, s.Parallel, r.Samplers = 1e6, 1e7, 1e5, togetherFrom, true, 1
		}},
		{"gradients that may be late, from disk", func(s *Sizes, r *Request) { s.Source, s.Inputs, s.NewRows, r.Late, r.Samplers = "disk", 80, 30, 3, 7 }},
		{"gradients that may be late, credits given, one thread, in memory", func(s *Sizes, r *Request) { r.Late, r.Credits, r.Threads = 1, 5, 1 }},
		{"wide rows", func(s *Sizes, r *Request) { s.InDim, s.Nodes = 1000, 1e5 }},
		{"one thread, and one of each; a window of two", func(s *Sizes, r *Request) {
			s.Batches, s.InDim, s.RowBytes, s.Heads, s.SamplerShared = 1, 1, 4, 1, 1
			r.Threads, r.Reorder = 1, 2
		}},
		{"one thread, a window of eight", func(s *Sizes, r *Request) { r.Threads, r.Reorder = 1, 8 }},
		{"exact inference of many nodes", func(s *Sizes, r *Request) {
			s.MostEntries = func(rows int64) int64 { return 8 * rows }
			s.Inference = []compute.InferenceSize{{Whole: 400 << 20, Sent: []int64{300 << 20}, Out: 200 << 20}, {Whole: 500 << 20, Out: 200 << 20}}
		}},
		{"exact inference of many nodes, whose second layer does not fit into the places of the first", func(s *Sizes, r *Request) {
			s.MostEntries = func(rows int64) int64 { return 8 * rows }
			s.Inference = []compute.InferenceSize{{Whole: 400 << 20, Sent: []int64{100 << 20}, Out: 200 << 20}, {Whole: 500 << 20, Out: 200 << 20}}
		}},
		{"as batches were sampled", func(s *Sizes, r *Request) {
			s.Sampled = []compute.BlockSize{{Dst: 20, Src: 35, Entries: 60}, {Dst: 8, Src: 20, Entries: 30}}
		}},
		{"a gradient that was measured", func(s *Sizes, r *Request) { s.Gradient = 7777 }},
		{"rows copied together that take what inference does", func(s *Sizes, r *Request) {
			s.MostEntries = func(rows int64) int64 { return 8 * rows }
			s.Inference, r.Gather = []compute.InferenceSize{{Whole: 20 * 200}}, "copied"
		}},
		{"on a device", func(s *Sizes, r *Request) { s.Device, s.DeviceRows, s.Gradient = 1<<30, true, 7777 }},
		{"on a device that samples", func(s *Sizes, r *Request) {
			s.Device, s.SampledByDevice, s.SampledGraph, s.SampledEntry, s.Resident = 1<<30, true, 9999, 12, true
		}},
		{"on a device, from a file", func(s *Sizes, r *Request) { s.Device, s.DeviceRows, s.FeaturesMap, r.Match = 1<<30, true, true, "on" }},
		{"on a device, a byte of a file", func(s *Sizes, r *Request) {
			s.Device, s.DeviceRows, s.FeaturesMap, s.Registrable, s.Pinned, r.Match = 1<<30, true, true, 1, 1<<30, "on"
		}},
		{"very wide rows", func(s *Sizes, r *Request) { s.InDim, s.Nodes = 1e4, 1e5 }},
	} {
		s, r := small(), Request{Threads: 4}
		c.change(&s, &r)
		fmt.Fprintf(&got, "== %s\n%s\n", c.name, exact(Build(s, r)))
	}
	disk := small()
	disk.Source, disk.Nodes = "disk", 100_000
	for _, room := range []int64{55_728_640, 38_612_736, 38_612_735, 24_348_416, 24_348_415, 23_728_640, 20_328_640, 20_228_640} {
		p := Fit(disk, Request{Threads: 4}, Limit{room, "a test"})
		numbers, _, _ := strings.Cut(exact(p), "\n  source")
		fmt.Fprintf(&got, "== from disk in %d bytes: %d\n%s\n\n", room, p.PeakBytes, numbers)
	}
	fmt.Fprintf(&got, "== as it is printed\n%s", Fit(disk, Request{Threads: 4}, Limit{1 << 20, "a test"}))
	there := small()
	there.Device = 1 << 30
	fmt.Fprintf(&got, "== as it is printed, on a device\n%s", Build(there, Request{Threads: 4}))
	parts := fourParts()
	parts.Nodes, parts.Cores = 2, 3.7
	p, err := parts.Plan()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&got, "== as it is printed, of pieces\n%s", p)
	path := filepath.Join("testdata", "plans.txt")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() == string(want) {
		return
	}
	is, was := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	name, shown := "", 0
	for i := range max(len(is), len(was)) {
		a, b := "", ""
		if i < len(is) {
			a = is[i]
		}
		if i < len(was) {
			b = was[i]
		}
		if strings.HasPrefix(a, "== ") {
			name = a
		}
		if a != b && shown < 5 {
			t.Errorf("%s, line %d of %s:\n%s\nwant\n%s", name, i+1, path, a, b)
			shown++
		}
	}
	if t.Failed() && os.Getenv("GNNACTOR_WRITE_PLANS") != "" {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
