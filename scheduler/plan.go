// Package scheduler decides how a job runs: which stages, how many actors of
// each, how many credits, and what that costs in memory. None of its choices
// changes a result.
package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute"
)

// Sizes are what the plan is made from.
type Sizes struct {
	Nodes, Edges  int64
	FeatureBytes  int64 // of the stored table
	FeaturesMap   bool  // the table lies in a mapped file
	FeaturesCopy  bool  // training reads a copy of it in memory
	FeaturesAway  bool  // the table lies elsewhere; inference fetches it
	NoInference   bool  // nothing is inferred
	NoTraining    bool  // nothing is trained: batches, gradients and activations take nothing
	GraphMap      bool  // the graph does
	GraphAway     bool  // the graph's rows lie elsewhere
	TrainNodes    int
	InDim, OutDim int
	Hidden        int
	Layers        int // blocks of a batch
	Sampler       string
	Fanouts       []int // from the seeds outward, -1: all; empty: not a neighbour sampler
	LayerNodes    bool  // Fanouts are a layer's nodes, not a node's neighbours
	Parallel      bool  // several threads can sample one batch
	OnAverage     bool  // a node's neighbours are Fanouts on average, not at most
	Temporal      bool  // a batch has a node once for every seed that sees it
	Batches       int   // of an epoch, of a sampler that chooses their seeds itself; 0: as the seeds make them
	Inductive     bool  // training sees TrainNodes alone, and
	SeenEdges     int64 // the edges between them
	BatchSize     int
	Micro         int
	Parameters    int64
	KeepsBest     bool // those that are best by validation are kept, too
	Optimizer     string
	Kernels       string
	// SampledByDevice: batches are drawn on a device, one at a time. WhereSampled says where they
	// are, and why; empty: there is no device.
	SampledByDevice bool
	WhereSampled    string
	SampledGraph    int64   // bytes of the graph in the device's memory, for that
	SampledEntry    int64   // bytes of a block's entry there
	TensorCores     string  // what factors of a device's dense products are rounded to; empty: they are not
	BF16Rate        float64 // of products in bfloat16 over those in float32, as measured here; 0: the run is in float32

	Source        string                  // where feature rows are read from: ram, mmap, disk or throttled:…
	RowBytes      int64                   // of a stored row; 0: there are no features
	SparseInput   bool                    // the model holds the features' non-zero values
	SparseBytes   int64                   // of them
	Heads         int                     // of attention; 0: none
	Wide          int                     // values of a destination that the model keeps besides: of norms, perceptrons, powers
	Inputs        int64                   // the most distinct input nodes of the batches that were sampled beforehand; 0: none were
	NewRows       int64                   // the most of them that the batch before did not have
	CachedRows    int64                   // of the cache; of two generations of it, for gns
	Sampled       []compute.BlockSize     // the largest blocks of those batches, the input layer's first; empty: none were, and bounds count
	Gradient      int64                   // bytes that a trainer holds for the largest of them, as a trial found; 0: there was none, and a bound counts
	Inference     []compute.InferenceSize // of each layer, by a trial; empty: a bound counts
	MostEntries   func(rows int64) int64  // the most entries of so many rows that follow each other; for exact inference
	SamplerShared int64                   // bytes that all samplers keep together: tables, clusters, caches
	SamplerOwn    int64                   // bytes that each keeps before its first batch
	Audits        bool                    // other nodes' batches are sampled here, too
	Sketch        int64                   // of a micro-batch's input nodes, those that the order of batches depends on at the most; 0: all
	Own           []Own                   // the program's own stages, in their order
	Cache         string                  // what is cached, as the user asked for it; empty: nothing

	Resident   bool  // parameters, the optimiser's state and gradients stay in the device's memory
	Devices    int   // that compute; the terms are those of the first, which has the most
	Device     int64 // bytes of memory of the device that computes; 0: the processor does
	DeviceRows bool  // rows for training go to a slab in that memory, where there is one
	Pinned     int64 // bytes of the host's memory that may be pinned to copy to the device; 0: as many as are needed
	Workspace  int64 // bytes that a library of dense products works with on the device, for each that computes there
	// Registrable is how many bytes of the host's memory are pinned if the device may read feature rows where they lie;
	// 0: that cannot be.
	Registrable int64
}

// Own is a stage of the program's own.
type Own struct {
	Name, Version string
	AfterLoad     bool // it makes rows of its own for every batch; else it comes after sample
}

// ownRows reports whether rows are the program's own stages'.
func (s *Sizes) ownRows() bool {
	return slices.ContainsFunc(s.Own, func(o Own) bool { return o.AfterLoad })
}

// Request holds the numbers that the user fixed; 0 leaves one to the plan.
type Request struct {
	Threads, Samplers, Trainers, Credits, EvalChunk int
	Loaders, Reorder                                int
	Match                                           string // on, off; empty: the plan chooses
	Gather                                          string // fused, copied; empty: the plan chooses
	Cached                                          bool   // the user said what is to be cached, nothing included
	FixedThreads                                    bool   // Threads is what the user asked for, for every batch
	Shared                                          bool   // other processes have a part in every step
	Late                                            int    // trainers whose gradients may be late, with a sampler each; nothing is measured then

	tight tightness // set by Fit
}

// Stage is one kind of actor in the plan.
type Stage struct {
	Name   string `json:"name"`
	Actors int    `json:"actors"`
	Why    string `json:"why"`
}

// Memory is one term of the peak.
type Memory struct {
	What   string `json:"what"`
	Bytes  int64  `json:"bytes"`
	Mapped bool   `json:"mapped,omitempty"` // pages that the system may drop; not in the peak
	When   string `json:"when,omitempty"`   // who takes it instead of what training takes; not in the peak
}

// Plan is how a job runs.
type Plan struct {
	Threads  int `json:"threads"`
	Samplers int `json:"samplers"`
	Trainers int `json:"trainers"`
	// MaxSamplers is up to how many samplers a run may go when it measures.
	MaxSamplers int `json:"max_samplers"`
	// Together has all threads sample one large batch together: there is one
	// sampler for them.
	Together bool `json:"together,omitempty"`
	Credits  int  `json:"credits"`
	// MaxBatches, MaxAhead and MaxLoaders are up to what such a run raises the
	// batches under way, those that hold slots, and the reads.
	MaxBatches int      `json:"max_batches"`
	MaxAhead   int      `json:"max_ahead"`
	MaxLoaders int      `json:"max_loaders"`
	EvalChunk  int      `json:"eval_chunk"`
	Load       bool     `json:"load"`                  // rows are brought to a slab; else compute reads them where they lie
	Match      bool     `json:"match"`                 // rows that the slab holds already are not read again
	Reorder    int      `json:"reorder"`               // batches of a window; 0: batches keep their order
	Loaders    int      `json:"loaders"`               // reads under way at once
	Ahead      int      `json:"ahead"`                 // batches that hold slots
	SlabRows   int64    `json:"slab_rows"`             // slots of the slab
	SlabLimit  int64    `json:"slab_limit"`            // slots that it may grow to, for one batch of the largest size
	CacheRows  int64    `json:"cache_rows"`            // of a dynamic cache
	CacheRoom  int64    `json:"cache_room"`            // the same, if measuring adds one
	Copied     bool     `json:"copied"`                // a batch's rows are copied together before the first layer reads them
	CopyRows   int64    `json:"copy_rows"`             // the most that are, now or once that was measured
	DeviceSlab bool     `json:"device_slab,omitempty"` // the slab is in the device's memory
	Raised     string   `json:"raised,omitempty"`      // what was asked for and does not do, and what is done in its place
	Kernels    string   `json:"kernels"`
	Batches    int      `json:"batches_per_epoch"`
	Stages     []Stage  `json:"stages"`
	LeftOut    []Stage  `json:"left_out"`
	Memory     []Memory `json:"memory"`
	PeakBytes  int64    `json:"peak_bytes"` // sum of Memory without mapped pages
	// GCPercent is what the peak takes Go's collector to be set to (runtime/debug.SetGCPercent), as the program gnnactor does unless GOGC is
	// set: it is one setting of the whole process, and so the embedding program's to make. With Go's default of 100 the heap may grow to twice what is in use.
	GCPercent int `json:"gc_percent"`
	// DeviceMemory is what the device that computes has to have room for, DevicePeak its sum and
	// DeviceBytes the memory that it has; 0: the processor computes. Pinned is what of the
	// host's memory is pinned to copy to it.
	DeviceMemory []Memory `json:"device_memory,omitempty"`
	DevicePeak   int64    `json:"device_peak_bytes,omitempty"`
	DeviceBytes  int64    `json:"device_bytes,omitempty"`
	Pinned       int64    `json:"pinned_bytes,omitempty"`
	PinnedLimit  int64    `json:"pinned_limit,omitempty"`      // 0: none
	RowsPinned   int64    `json:"rows_pinned_bytes,omitempty"` // of Pinned: what rows for the slab go through
	Registered   int64    `json:"registered_bytes,omitempty"`  // of Pinned: the table of features, which the device reads if that measures faster
	// Inferences is how many calls compute exact inference at once, others wait: one a
	// thread, as far as the limit leaves room. The peak has one, of InferenceBytes.
	Inferences     int   `json:"inferences"`
	InferenceBytes int64 `json:"inference_bytes"`
	// Limit is the memory that the process may use, and LimitFrom what says so; 0:
	// no limit. Fitted says what was made smaller for it; empty: nothing.
	Limit     int64  `json:"memory_limit,omitempty"`
	LimitFrom string `json:"memory_limit_from,omitempty"`
	Fitted    string `json:"fitted,omitempty"`

	gathers      bool // compute reads rows through lists of them
	unfit        bool // a layer of exact inference does not fit into the places of the one before
	sampledThere bool // a device samples

	inferenceOnDevice int64 // bytes of its memory that exact inference takes, when nothing trains
}

const (
	minChunk = 1 << 10
	maxChunk = 1 << 16
	// A chunk takes no more of a device's memory than a share of it, unless it has no more than deviceChunk rows.
	chunkShare  = 4
	deviceChunk = 1 << 6
	// chunkBytes is what a chunk of exact inference may hold of activations.
	chunkBytes = 64 << 20
	// togetherFrom is of how many seeds a micro-batch is worth to be sampled by
	// several threads.
	togetherFrom = 1 << 14
)

// Build makes the plan for a job of the given sizes.
func Build(s Sizes, r Request) *Plan {
	whySamplers, whyTrainers := "as asked for", "as asked for"
	if r.Late > 0 {
		r.Samplers, r.Trainers, r.tight = r.Late, r.Late, max(r.tight, settled)
		whySamplers, whyTrainers = "one for each trainer", "gradients may be late"
		if r.Credits == 0 {
			r.Credits = 2 // one is computed, and one sampled
		}
	}
	p := &Plan{Threads: max(r.Threads, 1), Samplers: r.Samplers, Trainers: r.Trainers, Credits: r.Credits, EvalChunk: r.EvalChunk, Kernels: s.Kernels}
	whole := s.Sampler == "full"
	p.Batches = (s.TrainNodes + s.BatchSize - 1) / max(s.BatchSize, 1)
	if whole {
		p.Batches = min(s.TrainNodes, 1)
	}
	if s.Batches > 0 {
		p.Batches = s.Batches
	}
	if p.Samplers == 0 {
		switch {
		case whole:
			p.Samplers, whySamplers = 1, "the whole graph is one batch: there is nothing to sample ahead"
		case r.tight >= least:
			p.Samplers, whySamplers = 1, "no more fit the memory"
		case s.SampledByDevice:
			p.Samplers, whySamplers = 1, "a device draws one batch at a time"
		case s.InDim == 0:
			p.Samplers, whySamplers = p.Threads, "one for each thread: without features nothing is computed"
		default:
			p.Samplers = max(1, p.Threads/2)
			whySamplers = fmt.Sprintf("half of %d threads: compute takes the larger share of a step", p.Threads)
		}
	}
	p.sampledThere = s.SampledByDevice
	why := p.memoryIO(&s, r)
	p.DeviceSlab = p.Load && s.DeviceRows
	// A device gathers from its own memory, unless it has neither the table nor a slab.
	p.gathers = s.InDim > 0 && !whole && !s.SparseInput && !s.ownRows() && (s.Device == 0 || r.Gather == "copied" && !p.DeviceSlab)
	p.Copied = p.gathers && r.Gather == "copied"
	p.MaxSamplers = p.Samplers
	if r.Samplers == 0 && !whole && !s.SampledByDevice && r.tight < settled {
		p.MaxSamplers = max(p.Samplers, p.Threads)
	}
	p.Together = p.MaxSamplers == 1 && p.Threads > 1 && !whole && s.Parallel &&
		s.BatchSize/max(s.Micro, 1) >= togetherFrom
	if p.Trainers == 0 {
		p.Trainers, whyTrainers = 1, "its kernels use every thread"
		if n := min(s.Devices, s.Micro); n > 1 {
			p.Trainers, whyTrainers = n, "one for each device"
		}
	}
	if p.Credits == 0 {
		p.Credits = 2
		if whole || r.tight >= least {
			p.Credits = 1
		}
		if p.Load && r.tight < least {
			p.Credits = 1 + share(p.Ahead, p.Samplers) // one that is sampled, and those ahead
		}
	}
	if p.Reorder != 0 {
		need := share((p.Reorder+1)*s.Micro+p.Ahead, p.Samplers)
		if r.Credits > 0 && r.Credits < need {
			p.Raised = fmt.Sprintf("%d credits in place of %d: windows of %d batches need them", need, r.Credits, p.Reorder)
		}
		p.Credits = max(p.Credits, need)
	}
	p.bounds(r)
	if p.EvalChunk == 0 {
		p.EvalChunk = int(min(max(chunkBytes/s.chunkRow(), minChunk), maxChunk))
		if r.tight >= narrow {
			p.EvalChunk = minChunk
		}
		for s.Device > 0 && p.EvalChunk > deviceChunk && s.chunkOnDevice(int64(p.EvalChunk), s.widest()) > s.Device/chunkShare {
			p.EvalChunk = max(p.EvalChunk/2, deviceChunk)
		}
	}
	p.memory(s, r, whole)
	if s.WhereSampled != "" {
		whySamplers += "; " + s.WhereSampled
	}
	if p.Together {
		whySamplers += "; all threads on one batch"
	}
	whySource := fmt.Sprintf("%d batches an epoch, %d micro-batches each", p.Batches, s.Micro)
	if s.Inductive {
		whySource += fmt.Sprintf("; inductive: training sees %d nodes and %d edges", s.TrainNodes, s.SeenEdges)
	}
	p.Stages = []Stage{
		{"source", 1, whySource},
		{"sampler", p.Samplers, fmt.Sprintf("%s; %s; %d credits each", s.Sampler, whySamplers, p.Credits)},
	}
	if p.Raised != "" {
		p.Stages[1].Why = fmt.Sprintf("%s; %s; %s", s.Sampler, whySamplers, p.Raised)
	}
	p.own(&s, false)
	p.stagesIO(&s, r, why)
	p.own(&s, true)
	p.Stages = append(p.Stages,
		Stage{"compute", p.Trainers, fmt.Sprintf("%s kernels on %d threads; %s%s", s.Kernels, p.Threads, whyTrainers, s.whyPrecision()+p.whyGather(r))},
		Stage{"parameters", 1, fmt.Sprintf("%d parameters, %s", s.Parameters, s.Optimizer)},
		Stage{"progress", 1, "events"})
	return p
}

// own lists the program's own stages after load, or else after sample.
func (p *Plan) own(s *Sizes, afterLoad bool) {
	for _, o := range s.Own {
		if o.AfterLoad != afterLoad {
			continue
		}
		what := "changes batches after sample"
		if afterLoad {
			what = "changes rows after load, and in inference"
		}
		p.Stages = append(p.Stages, Stage{o.Name, p.MaxSamplers, fmt.Sprintf("the program's own, version %s: %s; up to %d at once", o.Version, what, p.MaxSamplers)})
	}
}

// whyPrecision says what factors of products are rounded to, on the processor with what that gains or loses.
func (s *Sizes) whyPrecision() string {
	switch {
	case s.TensorCores != "":
		return fmt.Sprintf("; products of factors in %s, on tensor cores", s.TensorCores)
	case s.BF16Rate == 0:
		return ""
	case s.BF16Rate < 1:
		return fmt.Sprintf("; bf16 products at %.2f of float32's rate on this machine: --precision float32 is faster", s.BF16Rate)
	}
	return fmt.Sprintf("; bf16 products at %.2f times float32's rate on this machine", s.BF16Rate)
}

// String returns the plan as `gnnactor plan` prints it.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d threads, %s kernels, %d batches an epoch\n\nstages\n", p.Threads, p.Kernels, p.Batches)
	for _, s := range p.Stages {
		fmt.Fprintf(&b, "  %-11s × %-3d %s\n", s.Name, s.Actors, s.Why)
	}
	for _, s := range p.LeftOut {
		fmt.Fprintf(&b, "  %-11s left out: %s\n", s.Name, s.Why)
	}
	fmt.Fprintf(&b, "  %-11s %d rows a chunk\n", "evaluate", p.EvalChunk)
	fmt.Fprintf(&b, "  %-11s %d calls at once; the sum has one, each other takes %s\n\nmemory, at most\n", "serve", p.Inferences, mebibytes(p.InferenceBytes))
	for _, m := range p.Memory {
		note := ""
		if m.Mapped {
			note = "  (mapped: not counted)"
		} else if m.When != "" {
			note = "  (" + m.When + ": not counted)"
		}
		fmt.Fprintf(&b, "  %10s  %s%s\n", mebibytes(m.Bytes), m.What, note)
	}
	fmt.Fprintf(&b, "  %10s  sum\n", mebibytes(p.PeakBytes))
	if p.Limit > 0 {
		fmt.Fprintf(&b, "  %10s  the limit: %s\n", mebibytes(p.Limit), p.LimitFrom)
	}
	if p.DeviceBytes > 0 {
		fmt.Fprintf(&b, "\nthe device's memory, at most\n")
		for _, m := range p.DeviceMemory {
			fmt.Fprintf(&b, "  %10s  %s\n", mebibytes(m.Bytes), m.What)
		}
		fmt.Fprintf(&b, "  %10s  sum, of %s\n", mebibytes(p.DevicePeak), mebibytes(p.DeviceBytes))
	}
	if p.Fitted != "" {
		fmt.Fprintf(&b, "  %s\n", p.Fitted)
	}
	return b.String()
}

func mebibytes(n int64) string {
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
