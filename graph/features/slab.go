package features

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
)

// SlabOptions says how large a slab is and what it keeps.
type SlabOptions struct {
	// Slots is the number of rows: see SlabSlots.
	Slots int
	// MaxSlots is up to how many rows the slab grows when Slots do not do;
	// 0: it does not grow.
	MaxSlots int
	// Keep is how many batches before the present one keep their rows for it.
	// 0: a batch shares rows with no other (pinned and cached rows excepted); 1:
	// with the one before. With as many as can be in flight, what is loaded
	// depends on the order of the batches alone, not on when they are released.
	Keep int
	// Cache is how many rows, of those that no batch needs any more, stay for
	// later ones (a dynamic cache, by S3-FIFO), until SetCache changes it.
	Cache int
	// Poison fills free slots with NaN, for tests; not those of Table.
	Poison bool
	// Table is where rows lie, MaxSlots of them, such as in a device's memory, which the slab
	// neither reads nor writes; nil: in memory of its own.
	Table *graph.Features
}

// SlabSlots returns the slots that a slab needs (docs/algorithms.md §7): the most
// inputs of a batch, the most rows that each of the inFlight other batches adds
// to it, and the rows that are pinned or cached.
func SlabSlots(mostInputs, inFlight, mostNew, cached int) int {
	return mostInputs + inFlight*mostNew + cached
}

// ErrFull is what Match and Resume return when a batch has to wait until
// another one is released.
var ErrFull = errors.New("features: the slab is full until a batch is released")

// SlabStats counts rows since the slab was made.
type SlabStats struct {
	Batches int64
	Rows    int64 // inputs of all batches
	Shared  int64 // of them: there because a batch in flight or kept has them, or this one twice
	Pinned  int64 // of them: there because they are pinned
	Cached  int64 // of them: there because the dynamic cache has them
	Loaded  int64 // the others: to be read
	Pins    int64 // rows to be read for pins, besides
	Slots   int   // the size now
	Used    int   // slots that hold a row now
	Peak    int   // the most that ever did
}

// Slab is a table of row slots in which the rows of the batches in flight are
// resident (docs/algorithms.md §7). Nodes that stay from batch to batch keep their slot,
// and a slot is free only when the last batch that reads it was released.
//
// Its methods may be called from any goroutine; Match takes the batches in the
// order in which they will be computed.
type Slab struct {
	layout Layout
	o      SlabOptions
	table  *graph.Features
	mem    []byte

	mu      sync.Mutex
	place   []uint32 // per node: slot+1, 0, or its number among the ghosts
	placeM  []byte   // the memory behind place
	slots   []slot
	slotsM  []byte // the memory behind slots
	free    []uint32
	fresh   int // slots from here on were never used
	limit   int // slots that may be used; grows to len(slots)
	head    uint32
	live    []*Lease // matched and not yet retired, in order
	waiting *Lease
	spare   []*Lease
	cache   queues
	stats   SlabStats
}

// slot is the state of one row of the table.
type slot struct {
	node  uint32
	last  uint32 // number of the last batch that reads it, or 0: none does
	pins  uint8
	queue uint8 // of the dynamic cache, or 0
	freq  uint8
}

// ghostBit marks an entry of place that is the number of an evicted row.
const ghostBit = 1 << 31

// Lease is a batch's hold on its slots. Its slices belong to the slab: they
// are valid until Release.
type Lease struct {
	Slots     []uint32 // the slot of each input
	Load      []uint32 // nodes whose rows have to be read,
	LoadSlots []uint32 // and where to

	slab     *Slab
	number   uint32
	misses   []uint32 // positions in Slots that wait for a slot
	hits     []uint32 // slots that the batch found
	inputs   []uint32 // the caller's, while the lease waits
	released bool
}

// Request returns the read that completes the lease's rows.
func (l *Lease) Request() Request {
	return Request{IDs: l.Load, Slots: l.LoadSlots, Dst: l.slab.table}
}

// NewSlab returns an empty slab for rows of layout l. Its memory is outside
// the Go heap and is taken from the system as slots are used; Close frees it.
func NewSlab(l Layout, o SlabOptions) (*Slab, error) {
	o.MaxSlots = max(o.MaxSlots, o.Slots)
	switch {
	case o.Slots < 1 || o.Keep < 0 || o.Cache < 0:
		return nil, fmt.Errorf("features: a slab of %d slots that keeps %d batches and caches %d rows: slots must be positive, the others not negative", o.Slots, o.Keep, o.Cache)
	case int64(o.MaxSlots) >= ghostBit:
		return nil, fmt.Errorf("features: a slab of %d slots; it has at most %d", o.MaxSlots, int64(ghostBit)-1)
	}
	s := &Slab{layout: l, o: o, limit: o.Slots, table: o.Table}
	var err error
	if s.table == nil {
		s.mem, err = allocate(o.MaxSlots * l.Cols * l.DType.Size())
	} else if err := l.fits(s.table); err != nil || s.table.Rows < o.MaxSlots || o.Poison {
		return nil, fmt.Errorf("features: a slab of %d slots in a table of %d rows: %w", o.MaxSlots, s.table.Rows, cmp.Or(err, errors.New("it has too few, or is to be poisoned")))
	}
	if err == nil {
		if s.placeM, err = allocate(l.Rows * 4); err == nil {
			s.slotsM, err = allocate(o.MaxSlots * slotBytes)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("features: no memory for a slab of %d rows: %w", o.MaxSlots, errors.Join(err, s.Close()))
	}
	s.place = uint32s(s.placeM)
	s.slots = unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(s.slotsM))), o.MaxSlots)
	if s.table == nil {
		s.table = l.tableIn(s.mem, o.MaxSlots)
	}
	s.cache.resize(o.Cache)
	return s, nil
}

// Table returns the table that batches read through their slots. It stays the
// same when the slab grows.
func (s *Slab) Table() *graph.Features { return s.table }

// Bytes returns the memory that the slab takes, with its Table, when all slots it may use
// now have been used, book-keeping included.
func (s *Slab) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.limit)*int64(s.layout.RowBytes()+slotBytes+4) + int64(len(s.place))*4 + int64(s.cache.capacity)*8
}

const slotBytes = int(unsafe.Sizeof(slot{}))

// Stats returns the counts so far.
func (s *Slab) Stats() SlabStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Slots, st.Used = s.limit, s.fresh-len(s.free)
	return st
}

// Close frees the memory. No batch may be in flight, and the table must not
// be used any more.
func (s *Slab) Close() error {
	err := errors.Join(release(s.mem), release(s.placeM), release(s.slotsM))
	s.mem, s.placeM, s.slotsM, s.place, s.slots, s.table = nil, nil, nil, nil, nil, nil
	return err
}

// Match gives the next batch, whose input nodes are given, its slots: a node
// that is listed several times (a temporal batch does that) has one slot. The
// lease lists what has to be read. Its rows are complete when the reads of
// this lease and of all leases before it are done, for it may share rows that
// are still under way.
//
// When there is no room until an earlier batch is released, Match returns the
// lease with ErrFull: after each Release call Resume, until it succeeds, before
// the next Match. Another error is final: the batch does not fit.
func (s *Slab) Match(inputs []uint32) (*Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		return nil, errors.New("features: Match while a lease waits for room; Resume it first")
	}
	if inputs == nil {
		return nil, errors.New("features: the batch reads every node; give it the store's table in place of a slab")
	}
	if err := s.checkNodes(inputs); err != nil {
		return nil, err
	}
	if s.head == math.MaxUint32 {
		return nil, errors.New("features: the slab has counted 2³² batches; start a new one")
	}
	s.head++
	l := s.newLease(len(inputs))
	s.find(l, inputs)
	s.touch(l)
	s.stats.Batches++
	s.stats.Rows += int64(len(inputs))
	s.live = append(s.live, l)
	s.retire(s.o.Keep)
	l.inputs, s.waiting = inputs, l
	if err := s.resume(l); err != nil && err != ErrFull {
		return nil, err
	} else if err != nil {
		return l, err
	}
	return l, nil
}

// Resume goes on with a lease that Match returned with ErrFull. The inputs
// given to Match must still be there.
func (s *Slab) Resume(l *Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != l {
		return errors.New("features: Resume of a lease that does not wait")
	}
	s.findAgain(l)
	s.touch(l)
	return s.resume(l)
}

func (s *Slab) resume(l *Lease) error {
	need := len(l.misses)
	if need > len(s.free)+s.limit-s.fresh {
		need = s.distinct(l)
	}
	if !s.room(need) {
		used := s.fresh - len(s.free)
		for _, o := range s.live {
			if !o.released && o != l {
				return ErrFull
			}
		}
		l.dropMisses()
		l.released, s.waiting = true, nil
		s.retire(s.o.Keep)
		return fmt.Errorf("features: the batch needs %d rows of %d bytes more than the %d of the slab that are in use, and the slab has %d; give it more memory, or take smaller batches or fan-outs",
			need, s.layout.RowBytes(), used, s.limit)
	}
	s.fill(l)
	s.stats.Loaded += int64(len(l.Load))
	s.stats.Shared += int64(len(l.misses) - len(l.Load))
	l.misses, l.inputs, s.waiting = l.misses[:0], nil, nil
	return nil
}

// Release ends a batch's hold: nothing reads its slots any more, nor writes
// them. Leases may be released in any order, a waiting one too.
func (s *Slab) Release(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.slab != s || l.released {
		panic("features: Release of a lease that is not held")
	}
	if s.waiting == l {
		l.dropMisses()
		s.waiting = nil
	}
	l.released = true
	s.retire(s.o.Keep)
}
