//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// A graph may take a memory's bytes divided by graphShare.
const graphShare = 4

// hostSampler is a devices.Sampler: its batches are the host's.
type hostSampler struct {
	mu         sync.Mutex
	q          *Queue
	s          *NeighborSampler
	generation int // of the cache that s prefers; -1: none yet

	freeing sync.Mutex
	free    []sampled // the memory of batches that nobody has any more
}

// there is a batch's blocks in the device's memory, and where copies of them lie in the host's.
type there struct {
	by *hostSampler
	*sampled
	copies map[input]uintptr
	of     []any // the copies, so that no other memory has their addresses
}

// add says that host is a copy of what begins at device.
func add[E any](t *there, host, device []E) {
	if len(host) > 0 {
		t.copies[input{uintptr(unsafe.Pointer(&host[0])), len(host) * int(unsafe.Sizeof(host[0]))}] = uintptr(unsafe.Pointer(&device[0]))
		t.of = append(t.of, host)
	}
}

// Find has the blocks that there is of read from the device's memory until Reset.
func (q *Queue) Find(x any) {
	t, ok := x.(*there)
	if !ok || t.by.q.device != q.device {
		return
	}
	maps.Copy(q.inputs, t.copies)
	q.kept = append(q.kept, t)
}

// Sampler returns a sampler of g; see devices.Device.
func (d *Device) Sampler(g *graph.Graph, s devices.Sampling) (devices.Sampler, error) {
	shown := *g
	if !s.Weighted {
		shown.Weights = nil
	}
	bytes, limit := 8*len(g.Indptr)+4*len(g.Indices)+4*len(shown.Weights), d.Memory/graphShare
	if bytes > limit {
		return nil, fmt.Errorf("%w: the graph takes %.1f MiB, and may take %.1f MiB, a quarter of cuda:%d's", devices.ErrRoom, float64(bytes)/(1<<20), float64(limit)/(1<<20), d.Number)
	}
	if g.NumNodes() > math.MaxInt32 {
		return nil, fmt.Errorf("%w: kernels count the nodes of a layer to 2^31, and the graph has %d", devices.ErrRoom, g.NumNodes())
	}
	h := &hostSampler{q: d.NewQueue(), generation: -1}
	h.q.urgent = true // short kernels, one after the other, which a step's long ones would keep waiting each
	err := graph.Guard(func() error {
		h.s = NewNeighborSampler(h.q, h.q.UploadGraph(&shown), s)
		return nil
	})
	if err != nil {
		return nil, errors.Join(room(err), h.q.Close())
	}
	return h, nil
}

// room is err, wrapped with devices.ErrRoom if memory is what lacks.
func room(err error) error {
	if e := new(Error); errors.As(err, &e) && e.Code == outOfMemory {
		return fmt.Errorf("%w: %w", devices.ErrRoom, err)
	}
	return err
}

// Sample draws a batch and copies it to the host. On the device it stays where it was drawn;
// the next batch has other memory.
func (h *hostSampler) Sample(to devices.Blocks, key rng.Key, seeds []uint32, cache devices.Cache, again any) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := again.(*there)
	if !ok || t.by != h { // another's memory ends with it
		t = &there{by: h, sampled: h.unused()}
		// A batch that is dropped leaves its memory to the next that has none.
		runtime.AddCleanup(t, func(m *sampled) {
			h.freeing.Lock()
			h.free = append(h.free, *m)
			h.freeing.Unlock()
		}, t.sampled)
	}
	t.copies, t.of = map[input]uintptr{}, nil
	err := room(graph.Guard(func() error {
		if h.s.Cached && h.generation != cache.Generation {
			h.generation = -1
			h.s.UseCache(cache.Rows())
			h.generation = cache.Generation
		}
		h.s.sampled = t.sampled
		blocks, err := h.s.Sample(key, seeds)
		if err != nil {
			return err
		}
		nodes := to.Nodes(blocks[0].NumSrc)
		Download(h.q, nodes, blocks[0].SrcIDs)
		for i, from := range blocks {
			b := to.Block(i, from.NumDst, from.NumSrc, len(from.Indices), from.Weights != nil, from.EdgeIDs != nil)
			bring(h.q, t, b.Indptr, from.Indptr)
			bring(h.q, t, b.Indices, from.Indices)
			bring(h.q, t, b.EdgeIDs, from.EdgeIDs)
			bring(h.q, t, b.Weights, from.Weights)
			b.SrcIDs = nodes[:b.NumSrc:b.NumSrc]
			add(t, b.SrcIDs, from.SrcIDs)
			add(t, b.SrcIDs[:b.NumDst], from.SrcIDs)
		}
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return t, nil
}

// bring copies an array to the host, and keeps in mind where it was.
func bring[E any](q *Queue, t *there, host, device []E) {
	Download(q, host, device)
	add(t, host, device)
}

// unused returns memory for a batch.
func (h *hostSampler) unused() *sampled {
	h.freeing.Lock()
	defer h.freeing.Unlock()
	n := len(h.free)
	if n == 0 {
		return &sampled{layers: make([]sampledLayer, len(h.s.Fanouts))}
	}
	m := h.free[n-1]
	h.free = h.free[:n-1]
	return &m
}

// Close gives the memory back, the graph's too.
func (h *hostSampler) Close() error { return h.q.Close() }

// UploadGraph returns g with its row pointers, edges and weights in memory of q's. They are
// given back when q is closed.
func (q *Queue) UploadGraph(g *graph.Graph) *graph.Graph {
	d := &graph.Graph{Indptr: Alloc[int64](q, len(g.Indptr)), Indices: Alloc[uint32](q, len(g.Indices))}
	Upload(q, d.Indptr, g.Indptr)
	Upload(q, d.Indices, g.Indices)
	if g.Weights != nil {
		d.Weights = Alloc[float32](q, len(g.Weights))
		Upload(q, d.Weights, g.Weights)
	}
	return d
}

// NeighborSampler draws up to so many neighbours of each node of a layer and numbers them
// (FastGL's Fused-Map): the blocks of package sampling's "neighbor" or "gns", to the bit. One
// goroutine may use it at a time.
type NeighborSampler struct {
	q *Queue
	g *graph.Graph // its arrays are in q's memory
	devices.Sampling

	cachedIndptr []int64
	cached       []uint64

	table  []uint64
	base   uint32 // a slot is taken if its value is at least this
	count  uint32 // values that are
	source []uint32
	slots  []uint32 // of the seeds
	sums   []int64
	totals []int64
	*sampled
}

// sampled is the memory of a batch.
type sampled struct {
	nodes  []uint32
	layers []sampledLayer
}

// sampledLayer is the memory of one layer.
type sampledLayer struct {
	indptr  []int64
	indices []uint32
	edgeIDs []int64
	weights []float32
}

// NewNeighborSampler returns a sampler of a graph whose arrays UploadGraph brought to q's
// memory.
func NewNeighborSampler(q *Queue, g *graph.Graph, s devices.Sampling) *NeighborSampler {
	return &NeighborSampler{q: q, g: g, Sampling: s, totals: Alloc[int64](q, 2), sampled: &sampled{layers: make([]sampledLayer, len(s.Fanouts))}}
}

// UseCache has a sampler that prefers a cache prefer this one from now on. Row v's entries
// whose sources are cached are entries[indptr[v]:indptr[v+1]]; see devices.Cache.
func (s *NeighborSampler) UseCache(indptr []int64, entries []uint64) {
	renew(s.q, &s.cachedIndptr, len(indptr))
	renew(s.q, &s.cached, max(1, len(entries)))
	Upload(s.q, s.cachedIndptr[:len(indptr)], indptr)
	Upload(s.q, s.cached[:len(entries)], entries)
}

// Close gives the sampler's memory back, but the graph's.
func (s *NeighborSampler) Close() {
	renew(s.q, &s.table, 0)
	renew(s.q, &s.nodes, 0)
	renew(s.q, &s.source, 0)
	renew(s.q, &s.slots, 0)
	renew(s.q, &s.sums, 0)
	renew(s.q, &s.totals, 0)
	renew(s.q, &s.cachedIndptr, 0)
	renew(s.q, &s.cached, 0)
	for i := range s.layers {
		renew(s.q, &s.layers[i].indptr, 0)
		renew(s.q, &s.layers[i].indices, 0)
		renew(s.q, &s.layers[i].edgeIDs, 0)
		renew(s.q, &s.layers[i].weights, 0)
	}
}

// renew makes s hold n elements at least, whose content is lost if it did not; 0: none.
func renew[E any](q *Queue, s *[]E, n int) {
	if n > 0 && n <= len(*s) {
		return
	}
	if *s != nil {
		Free(q, *s)
		*s = nil
	}
	if n > 0 {
		*s = Alloc[E](q, n+n/4)
	}
}

// sample is the kernels' Sample.
type sample struct {
	graphIndptr, graphIndices, graphWeights uintptr
	cachedIndptr, cached                    uintptr
	nodes, indptr, indices                  uintptr
	sources, edgeIDs, weights               uintptr
	table, sums, totals                     uintptr
	key                                     uint64
	given                                   int64
	shift, mask, base                       uint32
	fanout, rows, blocks                    int32
	total, only, byDegree                   int32
	_                                       int32
}

const (
	scanItems       = 1024 // of a thread block
	totalEntries    = 0
	totalNew        = 1
	leastSlots      = 1 << 10
	sampledPerBlock = 8 // rows
)

// Sample draws the blocks of seeds: the last one's destinations are the seeds. Blocks'
// arrays are in the device's memory, all SrcIDs a prefix of one list, until the next call.
// It waits twice a layer for the device to have drawn that, and takes memory only where there was no batch as large:
// for what is given back the driver waits for all that the device computes. Seeds that are out of range, or given twice, are
// an error.
func (s *NeighborSampler) Sample(key rng.Key, seeds []uint32) ([]graph.Block, error) {
	n := len(s.g.Indptr) - 1
	for i, u := range seeds {
		if int64(u) >= int64(n) {
			return nil, fmt.Errorf("sampling: seed %d is node %d; it is out of range [0, %d)", i, u, n)
		}
	}
	most := len(seeds)
	for _, k := range s.Fanouts {
		if k < 0 || most > n/(k+1) {
			most = n
			break
		}
		most *= k + 1
	}
	renew(s.q, &s.nodes, max(most, len(seeds)))
	s.clear()
	p := sample{
		graphIndptr: of(s.q, s.g.Indptr), graphIndices: of(s.q, s.g.Indices), cachedIndptr: of(s.q, s.cachedIndptr), cached: of(s.q, s.cached),
		nodes: of(s.q, s.nodes), totals: of(s.q, s.totals), given: int64(len(seeds)),
	}
	if s.Weighted {
		p.graphWeights = of(s.q, s.g.Weights)
	}
	if s.Cached {
		p.byDegree = flag(s.ByDegree)
	}
	// The seeds are entries of no row.
	renew(s.q, &s.slots, max(1, len(seeds)))
	renew(s.q, &s.source, len(seeds))
	if len(seeds) > 0 {
		Upload(s.q, s.source[:len(seeds)], seeds)
	}
	p.indices, p.sources = of(s.q, s.slots), of(s.q, s.source)
	if rows := s.number(&p, len(seeds)); rows < len(seeds) {
		first := map[uint32]int{}
		for i, u := range seeds {
			if j, twice := first[u]; twice {
				return nil, fmt.Errorf("sampling: seeds %d and %d are both node %d; give each node once", j, i, u)
			}
			first[u] = i
		}
	}
	p.given = -1
	blocks := make([]graph.Block, len(s.Fanouts))
	for hop, k := range s.Fanouts {
		i := len(blocks) - 1 - hop
		p.key, p.fanout, p.only = uint64(key.With(uint64(hop))), int32(min(k, math.MaxInt32)), flag(s.Only && i == 0)
		var err error
		if blocks[i], err = s.layer(&p, &s.layers[i]); err != nil {
			return nil, err
		}
	}
	for i := range blocks {
		blocks[i].SrcIDs = s.nodes[:blocks[i].NumSrc]
	}
	return blocks, nil
}

// clear empties the table, but for when values would no longer fit without touching it.
func (s *NeighborSampler) clear() {
	if s.table == nil || uint64(s.base)+uint64(s.count)+uint64(len(s.table)) > math.MaxUint32 {
		s.empty(max(leastSlots, len(s.table)))
	} else {
		s.base += s.count
	}
	s.count = 0
}

// empty makes the table one of so many empty slots.
func (s *NeighborSampler) empty(slots int) {
	if len(s.table) != slots {
		renew(s.q, &s.table, 0)
		s.table = Alloc[uint64](s.q, slots) // a power of two
	}
	p := sample{table: of(s.q, s.table), mask: uint32(slots - 1)}
	s.base = math.MaxUint32 // so that it is emptied again, should this fail
	s.q.run("sample_clear", blocks(slots), 1, threads, words(&p))
	s.base = 1
}

// layer draws the entries of p's rows and numbers them.
func (s *NeighborSampler) layer(p *sample, l *sampledLayer) (graph.Block, error) {
	rows := int(p.rows)
	renew(s.q, &l.indptr, rows+1)
	p.indptr = of(s.q, l.indptr)
	warps := (rows + sampledPerBlock - 1) / sampledPerBlock
	draw := "sample_draw"
	switch {
	case s.Cached:
		draw = "sample_draw_cached"
	case s.Weighted:
		draw = "sample_draw_weighted"
		if rows > 0 {
			s.q.run("sample_count", warps, 1, sampledPerBlock*32, words(p))
		}
	}
	s.scan(p, "sample_row_sums", "sample_row_pointers", rows, totalEntries)
	entries := int(s.download()[totalEntries])
	if rows+entries >= math.MaxUint32 {
		return graph.Block{}, fmt.Errorf("sampling: a layer of %d nodes has %d entries, and a device numbers less than 2^32; take smaller batches or fan-outs", rows, entries)
	}
	renew(s.q, &l.indices, max(1, entries))
	renew(s.q, &s.source, max(1, entries))
	p.indices, p.sources = of(s.q, l.indices), of(s.q, s.source)
	if s.EdgeIDs {
		renew(s.q, &l.edgeIDs, max(1, entries))
		p.edgeIDs = of(s.q, l.edgeIDs)
	}
	if s.Cached {
		renew(s.q, &l.weights, max(1, entries))
		p.weights = of(s.q, l.weights)
	}
	if entries > 0 {
		s.q.run(draw, warps, 1, sampledPerBlock*32, words(p))
	}
	all := s.number(p, entries)
	if entries > 0 {
		s.q.run("sample_resolve", blocks(entries), 1, threads, words(p))
	}
	p.rows = int32(all)
	b := graph.Block{NumDst: rows, NumSrc: all, Indptr: l.indptr[:rows+1], Indices: l.indices[:entries]}
	if s.EdgeIDs {
		b.EdgeIDs = l.edgeIDs[:entries]
	}
	if s.Cached {
		b.Weights = l.weights[:entries]
	}
	return b, nil
}

// number gives the nodes of the layer's entries their local ids, leaves their slots in
// indices, and returns how many nodes there are then, which it sets p.rows to if there
// were none.
func (s *NeighborSampler) number(p *sample, entries int) int {
	s.reserve(p, entries)
	if entries == 0 {
		return int(p.rows)
	}
	s.count = uint32(int(p.rows) + entries) // should what follows fail
	s.q.run("sample_insert", blocks(entries), 1, threads, words(p))
	s.scan(p, "sample_first_sums", "sample_number", entries, totalNew)
	all := int(p.rows) + int(s.download()[totalNew])
	s.count = uint32(all)
	if p.rows == 0 {
		p.rows = int32(all)
	}
	return all
}

// reserve has the table be large enough for the entries' nodes, and values for their
// positions.
func (s *NeighborSampler) reserve(p *sample, entries int) {
	rows := int(p.rows)
	need := 2 * (rows + min(entries, len(s.g.Indptr)-1-rows))
	slots := len(s.table)
	if need > slots {
		slots = 1 << bits.Len(uint(need-1))
	}
	again := slots != len(s.table) || uint64(s.base)+uint64(rows)+uint64(entries) > math.MaxUint32
	if again {
		s.empty(slots)
	}
	p.table, p.base, p.mask, p.shift = of(s.q, s.table), s.base, uint32(slots-1), uint32(32-bits.TrailingZeros(uint(slots)))
	if again && rows > 0 {
		s.q.run("sample_put", blocks(rows), 1, threads, words(p))
	}
}

// scan runs the two kernels of a scan over items, and what is between them.
func (s *NeighborSampler) scan(p *sample, sums, then string, items, total int) {
	n := max(1, (items+scanItems-1)/scanItems)
	renew(s.q, &s.sums, n)
	p.sums, p.blocks, p.total = of(s.q, s.sums), int32(n), int32(total)
	s.q.run(sums, n, 1, threads, words(p))
	s.q.run("sample_scan", 1, 1, threads, words(p))
	s.q.run(then, n, 1, threads, words(p))
}

func (s *NeighborSampler) download() (t [2]int64) {
	Download(s.q, t[:], s.totals[:2])
	return t
}
