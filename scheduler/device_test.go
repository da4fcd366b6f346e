package scheduler

import (
	"errors"
	"strings"
	"testing"
)

// deviceSizes are a job's whose table of 512 MB is computed with on a device of 80 GB.
func deviceSizes() Sizes {
	return Sizes{
		Nodes: 1 << 20, Edges: 1 << 24, FeatureBytes: 512 << 20, TrainNodes: 100_000, InDim: 128, OutDim: 47, Hidden: 256, Layers: 3, Sampler: "neighbor",
		Fanouts: []int{15, 10, 5}, BatchSize: 1024, Micro: 1, Parameters: 200_000, Optimizer: "adam", Kernels: "cuda:sm_90", Source: "ram", RowBytes: 512,
		Inputs: 300_000, NewRows: 200_000, Device: 80 << 30, DeviceRows: true,
	}
}

func term(p *Plan, what string) (bytes int64) {
	for _, m := range p.DeviceMemory {
		if strings.HasPrefix(m.What, what) {
			bytes += m.Bytes
		}
	}
	return bytes
}

// A device keeps a table that takes no more than half of its memory, and has a slab of a larger
// one, of half of its memory unless batches need more.
func TestDevicePlan(t *testing.T) {
	s := deviceSizes()
	host := s
	host.Device, host.DeviceRows = 0, false
	p, without := Build(s, Request{Threads: 4}), Build(host, Request{Threads: 4})
	if p.Load || p.DeviceSlab || p.CopyRows != 0 || without.CopyRows == 0 || term(p, "node features, kept") != 512<<20 || p.Pinned != 2*queuePinned {
		t.Errorf("plan %v", p)
	}
	var sum int64
	for _, m := range p.DeviceMemory {
		sum += m.Bytes
	}
	if sum != p.DevicePeak || p.DeviceBytes != 80<<30 || p.Check() != nil || without.DevicePeak != 0 || without.Pinned != 0 {
		t.Errorf("%d of %d bytes: %v", p.DevicePeak, sum, p.Check())
	}
	s.SampledByDevice, s.SampledGraph, s.SampledEntry, s.Resident, s.Micro = true, 77<<20, 12, true, 2
	s.Fanouts, s.Layers, s.FeatureBytes = []int{3, 2}, 2, 100<<20
	// 512 seeds and 1,536 entries, 2,048 nodes and 4,096 entries, 6,144 nodes.
	q := Build(s, Request{Threads: 4, Samplers: 1, Credits: 2})
	drawn := int64(8*(513+2049) + 12*(1536+4096) + 4*6144)
	if term(q, "graph") != 77<<20 || q.Pinned != 4*queuePinned || term(q, "what inference's queue begins with") != queuePiece || term(q, "what the queues of 1 trainers") != queuePiece || term(q, "sampled batches, up to 2") != 2*(drawn+drawn/4) || term(q, "what the sampler works with") != 8<<14+5*4096 ||
		term(q, "parameters, 2 gradients") != 5*4*200_000 {
		t.Errorf("plan %v", q)
	}
	if s.Device = q.DevicePeak - 1<<20; s.Device > 0 {
		if err := Build(s, Request{Threads: 4, Samplers: 1, Credits: 2, EvalChunk: q.EvalChunk}).Check(); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "--sample-on cpu") || !strings.Contains(err.Error(), "is 1.0 MiB more") {
			t.Error(err)
		}
	}
	s = deviceSizes()
	s.Workspace, s.Micro = 32<<20, 2
	if q := Build(s, Request{Threads: 4, Trainers: 2}); term(q, "what cuBLAS works with, for 2 trainers") != 64<<20 || term(q, "what inference's queue begins with") != queuePiece+32<<20 {
		t.Errorf("plan %v", q)
	}
	s = deviceSizes()

	s.Device = 1 << 30 // whose half the table is
	if q := Build(s, Request{Threads: 4}); q.Load {
		t.Errorf("plan %v", q)
	}
	s.FeatureBytes++
	p = Build(s, Request{Threads: 4, Loaders: 1})
	if !p.DeviceSlab || p.SlabRows <= 1<<20-1 && p.SlabLimit != max(p.SlabRows, 1<<20) || term(p, "slab: ") != 512*p.SlabLimit || term(p, "node features") != 0 ||
		p.RowsPinned != rowsPinned || p.Pinned != 2*queuePinned+rowsPinned || term(p, "rows on their way") != rowsPinned {
		t.Errorf("plan %v", p)
	}
	if err := p.Check(); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "more than its 1024.0 MiB") {
		t.Error(err)
	}
	if q := Fit(s, Request{Threads: 4}, Limit{}); !strings.Contains(q.Fitted, "to fit the device there is one sampler") {
		t.Errorf("fitted: %q", q.Fitted)
	}
	s.Device, s.Inputs, s.NewRows = 512<<20, 20_000, 10_000 // one batch might need the whole table
	if q := Build(s, Request{Threads: 4, Loaders: 1}); q.SlabLimit != 256<<20/512 || q.SlabRows > 200_000 || q.CacheRoom > q.SlabLimit-q.SlabRows {
		t.Errorf("slab of %d to %d rows, %d of them for a cache", q.SlabRows, q.SlabLimit, q.CacheRoom)
	}
	s.Source = "throttled:1GB/s"
	if s.DeviceRows = false; Build(s, Request{Threads: 4}).DeviceSlab {
		t.Error("rows that stages of the program's own read are on the device")
	}
}

// Chunks of exact inference take a quarter of the device's memory at the most, down to 64 rows, by the entries that were
// counted; what is fixed stays, and is refused by how much. Where nothing is trained trainers have no memory.
func TestDeviceChunks(t *testing.T) {
	s := deviceSizes()
	ample := Build(s, Request{Threads: 4})
	of := func(device int64, chunk int) *Plan {
		s.Device = device
		return Build(s, Request{Threads: 4, EvalChunk: chunk})
	}
	// A row has 16 neighbours: 12 bytes for each, and 1,024 for each of theirs and 3 of its own, and an eighth.
	row := int64((12*16 + 4*256*(3+16)) / 8 * 9)
	p := of(4<<30, 0)
	if got := term(p, "exact inference"); got != 4*200_000+row*int64(p.EvalChunk) || row*int64(p.EvalChunk) > 1<<30 || 2*row*int64(p.EvalChunk) <= 1<<30 && p.EvalChunk != ample.EvalChunk {
		t.Errorf("chunks of %d rows take %d bytes", p.EvalChunk, got)
	}
	s.MostEntries = func(rows int64) int64 { return 64 * rows }
	if q := of(64<<20, 0); q.EvalChunk != 170 { // 21,845, halved until 16 MiB are enough for 76 KiB a row
		t.Errorf("chunks of %d rows", q.EvalChunk)
	}
	if q := of(1<<20, 0); q.EvalChunk != deviceChunk || q.CheckInference() == nil {
		t.Errorf("chunks of %d rows: %v", q.EvalChunk, q.CheckInference())
	}
	s.NoTraining = true
	q := of(64<<20, 2000)
	takes := q.inferenceOnDevice
	over := takes - 64<<20
	if err := q.CheckInference(); q.EvalChunk != 2000 || over <= 0 || !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "in chunks of 2000 rows takes "+mebibytes(takes)+" of the device's memory, which is "+mebibytes(over)+" more than its 64.0 MiB") {
		t.Errorf("%v", err)
	}
	if q := of(takes, 2000); q.CheckInference() != nil || term(q, "batches") != 0 || term(q, "parameters, ") != 0 || q.Pinned != queuePinned+q.RowsPinned {
		t.Errorf("%v; plan %v", q.CheckInference(), q)
	}
}

// What is pinned is within its limit, or that is refused by how much.
func TestPinned(t *testing.T) {
	s := deviceSizes()
	for limit, want := range map[int64]int64{0: rowsPinned, 9 << 20: 1 << 20, 100 << 20: rowsPinned, 2*queuePinned + 1088: 1088} {
		s.Pinned = limit
		p := Build(s, Request{Threads: 4, Match: "on"})
		if err := p.checkDevice(); p.RowsPinned != want || err != nil {
			t.Errorf("of %d bytes rows have %d: %v", limit, p.RowsPinned, err)
		}
	}
	// The table is pinned, too, where that is within the limit, or there is none and it lies in memory.
	s.Registrable = s.FeatureBytes
	for _, c := range []struct {
		limit  int64
		mapped bool
		want   int64
	}{{0, false, 512 << 20}, {0, true, 0}, {2*queuePinned + rowsPinned + 512<<20 - 1, false, 0}, {2*queuePinned + rowsPinned + 512<<20, true, 512 << 20}} {
		s.Pinned, s.FeaturesMap = c.limit, c.mapped
		p := Build(s, Request{Threads: 4, Match: "on"})
		s.Registrable = 0
		without := Build(s, Request{Threads: 4, Match: "on"})
		s.Registrable = s.FeatureBytes
		more := int64(0) // of the host's memory: pages of a file cannot be dropped then
		if c.mapped {
			more = c.want
		}
		if p.Registered != c.want || p.Pinned != without.Pinned+c.want || p.PeakBytes != without.PeakBytes+more || strings.Contains(p.String(), "if that measures faster") != (c.want > 0) {
			t.Errorf("limit %d, mapped %v: plan %v", c.limit, c.mapped, p)
		}
	}
	s.Registrable, s.FeaturesMap = 0, false
	s.Pinned = 2 * queuePinned
	p := Build(s, Request{Threads: 4, Match: "off"})
	if err := p.Check(); !p.DeviceSlab || p.Match || !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "than the 8.0 MiB that --pinned-memory allows") {
		t.Error(err)
	}
}
