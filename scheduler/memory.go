package scheduler

import (
	"fmt"
	"slices"

	"github.com/gnnactor/gnnactor/compute"
)

const (
	// programBytes is what a process takes that trains next to nothing: its heap, stacks and what Go keeps of both.
	programBytes = 8 << 20
	// collectorLeast is what Go's collector may leave lying at the least, and collectorPercent the least share of what is in use.
	collectorLeast, collectorPercent = 7 << 20, 10
)

// memory fills in the terms of the peak. Batches and activations are bounds
// from the fan-outs; a sampler without fan-outs is bounded by the graph.
func (p *Plan) memory(s Sizes, r Request, whole bool) {
	add := func(what string, bytes int64, mapped bool) {
		p.Memory = append(p.Memory, Memory{What: what, Bytes: bytes, Mapped: mapped})
		if !mapped {
			p.PeakBytes = plus(p.PeakBytes, bytes)
		}
	}
	trained := add // what training alone takes
	if s.NoTraining {
		trained = func(string, int64, bool) {}
	}
	if !s.GraphAway {
		add("graph", 8*(s.Nodes+1)+4*s.Edges, s.GraphMap)
	}
	add("node features", s.FeatureBytes, s.FeaturesMap)
	if s.FeaturesCopy {
		add("node features: the copy in memory that training reads", s.Nodes*s.RowBytes, false)
	}
	gradients := s.Micro
	if r.Late > 0 {
		gradients = r.Late
		add("versions of the parameters that are computed on", 4*s.Parameters*int64(r.Late+2), false) // with the newest, and the one that is made
	}
	if s.NoTraining {
		add("parameters", 4*s.Parameters, false)
	}
	trained(fmt.Sprintf("parameters, %d gradients, two moments", gradients), 4*s.Parameters*int64(3+gradients), false)
	if s.KeepsBest {
		trained("the parameters that are best by validation", 4*s.Parameters, false)
	}
	dst := make([]int64, s.Layers) // destinations of each layer, from the seeds outward
	src := make([]int64, s.Layers)
	edges := make([]int64, s.Layers)
	n := min(int64((s.BatchSize+s.Micro-1)/max(s.Micro, 1)), s.Nodes)
	mostNodes, mostEdges := s.Nodes, s.Edges
	if s.Temporal {
		mostNodes, mostEdges = times(mostNodes, n), times(mostEdges, n)
	}
	for l := range s.Layers {
		dst[l] = n
		switch {
		case whole:
			dst[l], edges[l], n = s.Nodes, s.Edges, s.Nodes
		case l < len(s.Fanouts) && s.Fanouts[l] > 0 && s.LayerNodes:
			// k nodes in all, besides the destinations that ladies keeps; each is
			// a neighbour of every destination at most.
			k := min(int64(s.Fanouts[l])+n, s.Nodes)
			edges[l] = min(n*k, s.Edges+n)
			n = min(n+k, s.Nodes)
		case l < len(s.Fanouts) && s.Fanouts[l] > 0:
			edges[l] = times(n, int64(s.Fanouts[l]))
			if s.OnAverage {
				edges[l] = margin(edges[l])
			}
			edges[l] = min(edges[l], mostEdges)
			n = min(n+edges[l], mostNodes)
		default:
			edges[l], n = mostEdges, mostNodes
		}
		src[l] = n
	}
	largest := src[s.Layers-1] // batch
	if len(s.Sampled) == s.Layers {
		for l := range s.Layers {
			b := s.Sampled[s.Layers-1-l]
			dst[l], src[l], edges[l] = min(dst[l], margin(b.Dst)), min(src[l], margin(b.Src)), min(edges[l], margin(b.Entries))
		}
	}
	if s.SparseInput {
		add("node features: the values that are not zero, which the model holds", s.SparseBytes, false)
	}
	var batch, activations, drawn int64 // drawn: a batch as the device that sampled it has it
	for l := range s.Layers {
		in, out := int64(s.Hidden), int64(s.Hidden)
		if l == 0 {
			out = int64(s.OutDim)
		}
		if l == s.Layers-1 {
			in = int64(s.InDim)
		}
		if !whole {
			batch = plus(batch, plus(times(8, dst[l]+1), times(4, edges[l])))
			drawn = plus(drawn, plus(times(8, dst[l]+1), times(s.SampledEntry, edges[l])))
		}
		// Aggregate and its gradient, output and its gradient, transposed pattern.
		floats := plus(plus(times(3*(in+out)+int64(s.Wide), dst[l]), times(6, edges[l])), times(6, src[l]))
		if s.Heads > 0 {
			// Sources are transformed; the last layer's heads are as wide as the output.
			if l == 0 {
				out *= int64(s.Heads)
			}
			floats = plus(floats, plus(times(3*out, src[l]), times(6*int64(s.Heads), plus(edges[l], dst[l]))))
		} else if i, o, e := float64(in), float64(out), float64(edges[l]); float64(src[l])*i*o+e*o < e*i+float64(dst[l])*i*o {
			floats = plus(floats, times(3*out, src[l])) // multiplied before it is aggregated (docs/algorithms.md §8)
		}
		activations = plus(activations, times(4, floats))
	}
	if !whole {
		batch = plus(batch, times(4, src[s.Layers-1]))
	}
	if s.Gradient > 0 && s.Device == 0 {
		activations = s.Gradient
	}
	trained(fmt.Sprintf("batches: %d samplers × %d credits, up to %d when measured", p.Samplers, p.Credits, p.MaxBatches), times(batch, int64(p.MaxBatches)), false)
	if !whole && !s.GraphAway {
		// A table of the nodes found, half full, and lists of them and of the edges of a layer.
		perEdge := int64(12)
		if p.Together {
			perEdge = 24 // each thread's part of the layer, before it is put in place
		}
		scratch := plus(times(32, src[s.Layers-1]), times(perEdge, slices.Max(edges)))
		trained(fmt.Sprintf("what up to %d samplers work with", p.MaxSamplers), times(plus(s.SamplerOwn, scratch), int64(p.MaxSamplers)), false)
		if s.Audits {
			add("audits of other nodes: a sampler, a batch and the order of the seeds", plus(plus(s.SamplerOwn, scratch), plus(batch, times(4, int64(s.TrainNodes)))), false)
		}
	}
	if s.SamplerShared > 0 {
		add("what samplers draw from: tables, clusters, caches", s.SamplerShared, false)
	}
	if p.Load {
		// Slots are of distinct nodes.
		bound := min(largest, s.Nodes)
		inputs := bound
		if s.Inputs > 0 {
			bound = max(bound, min(margin(s.Inputs), s.Nodes))
			inputs = min(bound, margin(s.Inputs))
		}
		p.slab(&s, r, inputs, bound)
		if p.DeviceSlab {
			p.fitDevice(&s)
		}
		slab := fmt.Sprintf("slab: %d rows for %d batches ahead%s, up to %d%s", p.SlabRows, p.MaxAhead, cachedToo(s.CachedRows), p.SlabLimit, p.cacheToo())
		rows := p.SlabLimit * s.RowBytes
		if p.DeviceSlab {
			p.onDevice(slab, rows)
			slab, rows = "what is where in the slab", 0
		}
		add(slab, rows+p.SlabLimit*16+8*max(p.CacheRows, p.CacheRoom)+4*s.Nodes, false)
		add(fmt.Sprintf("slots and reads of up to %d batches", p.MaxAhead), times(20*inputs, int64(p.MaxAhead+1)), false)
	}
	if s.ownRows() {
		trained(fmt.Sprintf("rows that own stages make of up to %d batches", p.MaxBatches), times(times(4*int64(s.InDim), src[s.Layers-1]), int64(p.MaxBatches)), false)
	}
	if p.Reorder != 0 {
		add("reorder: input nodes of a window", times(s.ordered(src[s.Layers-1], r.Shared), int64(p.Reorder+1)), false)
	}
	if !whole && s.InDim > 0 {
		inputs := src[s.Layers-1]
		if s.Inputs > 0 {
			inputs = min(inputs, margin(s.Inputs))
		}
		p.Memory = append(p.Memory, Memory{
			What: fmt.Sprintf("copies of the rows of %d batches", p.Samplers*p.Credits), Bytes: times(4*inputs*int64(s.InDim), int64(p.Samplers*p.Credits)),
			When: "runtime.Batches, in place of activations",
		})
	}
	trained(fmt.Sprintf("activations of %d trainers", p.Trainers), times(activations, int64(p.Trainers)), false)
	if s.Device > 0 {
		drawn = plus(drawn, times(4, src[s.Layers-1]))
		p.device(&s, batch, activations, s.widest())
		if s.SampledByDevice {
			p.deviceSampler(&s, drawn, src[s.Layers-1], slices.Max(edges))
		}
		add("memory that is pinned to copy to the device", p.Pinned-p.Registered, false)
		if s.FeaturesMap && p.Registered > 0 {
			add("node features, pinned for the device to read", p.Registered, false)
		}
	}
	if !s.NoInference {
		p.inference(&s, add)
	}
	if p.gathers && p.mayCopy(r) {
		p.CopyRows = largest
		what, bytes := "a batch's rows, copied together", times(times(s.RowBytes, src[s.Layers-1]), int64(p.Trainers))
		if !p.Copied {
			what += ", should that measure faster"
		}
		switch {
		case s.NoTraining:
		case r.Late == 0 && bytes <= p.InferenceBytes: // an evaluation between two epochs begins by giving them up
			p.Memory = append(p.Memory, Memory{What: what, Bytes: bytes, When: "between evaluations, in place of exact inference"})
		default:
			add(what, bytes, false)
		}
	}
	// What is in use is marked whenever a share of it was allocated: little work, for nearly all of it are numbers. Of what was collected Go keeps a
	// tenth of the most that was in use from the system. Exact inference collects what it leaves itself, and where each layer fits into the places of
	// the one before nothing else comes of it. So a large heap takes a tenth more, and another of the rest, and a small one the least and what is in
	// the margins.
	heap := p.PeakBytes
	if s.FeaturesMap { // pages of a file
		heap -= p.Registered
	}
	rest := heap
	if !p.unfit {
		rest -= p.InferenceBytes
	}
	p.GCPercent = int(min(100, max(collectorPercent, 100*collectorLeast/max(heap, 1))))
	share := heap / 100 * collectorPercent
	left := max(collectorLeast, share+min(share, max(collectorLeast, rest/100*collectorPercent)))
	add(fmt.Sprintf("what Go's collector leaves lying: it begins at %d%% of all", p.GCPercent), left, false)
	add("the program itself", programBytes, false)
}

// widest is the most columns of a layer.
func (s *Sizes) widest() int64 { return int64(max(s.InDim, s.Hidden, s.OutDim, 1)) }

// chunkRow returns the bytes that exact inference takes for a row of a chunk.
func (s *Sizes) chunkRow() int64 {
	row := 4 * 3 * s.widest()
	for _, l := range s.Inference {
		row = max(row, int64(l.Row+l.Entry*float64(s.Edges)/float64(max(s.Nodes, 1))))
	}
	return row
}

// inference adds what one call that infers takes of all nodes.
func (p *Plan) inference(s *Sizes, add func(what string, bytes int64, mapped bool)) {
	if s.FeaturesAway {
		p.InferenceBytes = s.Nodes * s.RowBytes
		add("exact inference: the features, fetched", p.InferenceBytes, false)
	}
	if s.ownRows() {
		own := 4 * s.Nodes * int64(s.InDim)
		p.InferenceBytes = plus(p.InferenceBytes, own)
		add("exact inference: the rows that own stages make", own, false)
	}
	chunk := min(int64(p.EvalChunk), s.Nodes)
	computed, left := 2*4*s.Nodes*int64(max(s.Hidden, s.OutDim))+s.chunkRow()*chunk, int64(0)
	if len(s.Inference) > 0 {
		computed = 0
		entries := float64(s.MostEntries(chunk))
		for i, l := range s.Inference {
			takes, holes := l.Whole+int64(l.Row*float64(chunk)+l.Entry*entries), unfilled(s.Inference[:i+1])
			if takes+holes > computed+left {
				computed, left = takes, holes
			}
		}
	}
	add("exact inference: layers' outputs, what edges read of them, and a chunk", computed, false)
	if p.unfit = left > 0; p.unfit {
		add("exact inference: what the layer before leaves in places that the next does not fit into", left, false)
		computed = plus(computed, left)
	}
	p.Inferences, p.InferenceBytes = p.Threads, plus(p.InferenceBytes, computed)
}

// unfilled returns the bytes of the places that the last of some layers finds, those of matrices that the one before it read and made for itself,
// and that are smaller than each that it makes. Go keeps them.
func unfilled(layers []compute.InferenceSize) (bytes int64) {
	n := len(layers) - 1
	if n == 0 {
		return 0
	}
	least := layers[n].Out
	for _, made := range layers[n].Sent {
		least = min(least, made)
	}
	free := layers[n-1].Sent
	if n > 1 {
		free = append(free[:len(free):len(free)], layers[n-2].Out)
	}
	for _, place := range free {
		if place < least {
			bytes += place
		}
	}
	return bytes
}
