package scheduler

import "fmt"

// onDevice adds a term to what is in the device's memory.
func (p *Plan) onDevice(what string, bytes int64) {
	p.DeviceMemory = append(p.DeviceMemory, Memory{What: what, Bytes: bytes})
	p.DevicePeak = plus(p.DevicePeak, bytes)
}

// What of the host's memory is pinned: by each of a device's queues, and for rows on their way
// to a slab, if nothing limits it.
const (
	queuePinned = 4 << 20
	rowsPinned  = 8 << 20
)

// queuePiece is the least that a queue takes of the device's memory for what kernels read and work with.
const queuePiece = 1 << 20

// device fills in the terms of the device that computes. Batches and activations are those of
// the host's plan.
func (p *Plan) device(s *Sizes, batch, activations, widest int64) {
	p.DeviceBytes = s.Device
	trainers := p.Trainers
	if s.NoTraining {
		trainers = 0
	}
	here := share(trainers, max(s.Devices, 1))
	inference := func(what string, bytes int64) {
		p.onDevice(what, bytes)
		p.inferenceOnDevice = plus(p.inferenceOnDevice, bytes)
	}
	if s.FeatureBytes > 0 && s.FeatureBytes <= s.Device/KeepShare && !s.SparseInput && !s.FeaturesAway {
		inference("node features, kept", s.FeatureBytes)
	}
	inference("exact inference: a chunk with its neighbours, and parameters", plus(4*s.Parameters, s.chunkOnDevice(int64(p.EvalChunk), widest)))
	inference("what inference's queue begins with", plus(queuePiece, s.Workspace))
	if here > 0 {
		p.training(s, here, batch, activations)
	}
	p.Pinned, p.PinnedLimit = queuePinned*int64(trainers+1), s.Pinned // and inference's
	if s.Resident && !s.NoTraining {
		p.Pinned += queuePinned // the optimiser's, which brings parameters there
	}
	if s.SampledByDevice {
		p.Pinned += queuePinned
	}
	if p.DeviceSlab {
		p.RowsPinned = rowsPinned
		if s.Pinned > 0 {
			// Two pieces of a row each, with its slot, at the least.
			p.RowsPinned = max(2*(s.RowBytes+32), min(rowsPinned, s.Pinned-p.Pinned))
		}
		p.Pinned += p.RowsPinned
		p.onDevice("rows on their way to the slab", p.RowsPinned)
		// What is in memory anyhow may be pinned, unless that is limited; pages of a file if that is allowed.
		if fits := p.Pinned+s.Registrable <= s.Pinned; s.Registrable > 0 && (fits || s.Pinned == 0 && !s.FeaturesMap) {
			p.Registered = s.Registrable
			p.Pinned += p.Registered
		}
	}
}

// chunkOnDevice returns what a chunk of exact inference takes of a device's memory, with the rows of its neighbours: of
// all of the most entries that follow each other, or of as many as nodes have on average where nobody has counted.
func (s *Sizes) chunkOnDevice(chunk, widest int64) int64 {
	chunk = min(chunk, s.Nodes)
	entries := times(chunk, s.Edges) / max(s.Nodes, 1)
	if s.MostEntries != nil {
		entries = s.MostEntries(chunk)
	}
	rows, perEntry := 3*chunk+min(entries, s.Nodes), int64(12)
	if s.Heads > 0 { // sources as they come over and as kernels read them, and weights of entries
		rows, perEntry = rows+chunk+min(entries, s.Nodes), perEntry+8*int64(s.Heads)
	}
	return plus(times(perEntry, entries), times(4*widest, rows)) / 8 * 9 // memory that grows has an eighth to spare
}

// training fills in the terms of so many trainers on one device.
func (p *Plan) training(s *Sizes, here int, batch, activations int64) {
	if s.Resident {
		p.onDevice(fmt.Sprintf("parameters, %d gradients, two moments", s.Micro), times(4*s.Parameters, int64(3+s.Micro)))
	} else {
		p.onDevice(fmt.Sprintf("parameters and gradients of %d trainers", p.Trainers), times(8*s.Parameters, int64(p.Trainers)))
	}
	// Memory that grows has an eighth to spare.
	p.onDevice(fmt.Sprintf("batches and activations of %d trainers", here), times(plus(batch, activations)/8*9, int64(here)))
	if s.Workspace > 0 {
		p.onDevice(fmt.Sprintf("what cuBLAS works with, for %d trainers", here), times(s.Workspace, int64(here)))
	}
	p.onDevice(fmt.Sprintf("what the queues of %d trainers begin with", here), queuePiece*int64(here))
}

// deviceSampler fills in the terms of the device that samples, too: a batch there takes drawn
// bytes, of at most so many nodes, and entries of a layer. Memory that grows has a quarter to spare.
func (p *Plan) deviceSampler(s *Sizes, drawn, nodes, entries int64) {
	p.onDevice("graph, for sampling", s.SampledGraph)
	p.onDevice(fmt.Sprintf("sampled batches, up to %d", p.MaxBatches), times(drawn+drawn/4, int64(p.MaxBatches)))
	slots := int64(1 << 10) // of the table of nodes, a power of two of twice as many
	for slots < times(2, nodes) {
		slots = times(2, slots)
	}
	p.onDevice("what the sampler works with", plus(times(8, slots), times(5, entries)))
}

// fitDevice makes no more of the slab than half of the device's memory, but what batches
// have to have.
func (p *Plan) fitDevice(s *Sizes) {
	p.SlabLimit = max(p.SlabRows, min(p.SlabLimit, s.Device/KeepShare/max(s.RowBytes, 1)))
	p.CacheRoom = min(p.CacheRoom, p.SlabLimit-p.SlabRows)
}

// CheckInference reports, wrapping ErrMemory, that exact inference does not fit the device that computes, and by how much.
func (p *Plan) CheckInference() error {
	over := p.inferenceOnDevice - p.DeviceBytes
	if p.DeviceBytes == 0 || over <= 0 {
		return nil
	}
	return fmt.Errorf("%w: exact inference in chunks of %d rows takes %s of the device's memory, which is %s more than its %s; what helps is a smaller --eval-chunk, or --device cpu",
		ErrMemory, p.EvalChunk, mebibytes(p.inferenceOnDevice), mebibytes(over), mebibytes(p.DeviceBytes))
}

// checkDevice reports, wrapping ErrMemory, what a device has no room for, and by how much.
func (p *Plan) checkDevice() error {
	if over := p.DevicePeak - p.DeviceBytes; p.DeviceBytes > 0 && over > 0 {
		sampled := ""
		if p.sampledThere {
			sampled = ", --sample-on cpu"
		}
		return fmt.Errorf("%w: the plan's peak on the device is %s, which is %s more than its %s; what helps is a smaller --batch-size or more --micro-batches, smaller --fanouts or --hidden, a smaller --cache, fewer --trainers%s, or --device cpu",
			ErrMemory, mebibytes(p.DevicePeak), mebibytes(over), mebibytes(p.DeviceBytes), sampled)
	}
	if over := p.Pinned - p.PinnedLimit; p.PinnedLimit > 0 && over > 0 {
		return fmt.Errorf("%w: %s of pinned memory are the least for %d trainers, which is %s more than the %s that --pinned-memory allows; allow more, or take fewer --trainers",
			ErrMemory, mebibytes(p.Pinned), p.Trainers, mebibytes(over), mebibytes(p.PinnedLimit))
	}
	return nil
}
