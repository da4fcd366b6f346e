package features

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/rng"
)

func TestMain(m *testing.M) { leak.Main(m) }

// testTable returns n rows that all differ.
func testTable(n, cols int) *graph.Features {
	x := make([]float32, n*cols)
	for i := range x {
		x[i] = float32(i) + 0.5
	}
	return graph.NewFeatures(n, cols, x)
}

// inFlight is a batch as compute sees it.
type inFlight struct {
	lease  *Lease
	inputs []uint32
}

// checkRows reports a slot that does not hold its node's row.
func checkRows(t *testing.T, src, table *graph.Features, inputs, slots []uint32) {
	t.Helper()
	if len(inputs) != len(slots) {
		t.Fatalf("%d slots for %d inputs", len(slots), len(inputs))
	}
	want, got := make([]float32, src.Cols), make([]float32, src.Cols)
	for i, u := range inputs {
		src.Row(want, int(u))
		table.Row(got, int(slots[i]))
		if !slices.Equal(want, got) {
			t.Fatalf("node %d in slot %d: %v, want %v", u, slots[i], got, want)
		}
	}
}

// listedAgain returns b with some of its nodes listed again, anywhere.
func listedAgain(k rng.Key, b []uint32) []uint32 {
	b = slices.Clone(b)
	for i := range uint64(len(b)) {
		if k.Uintn(i, 2) == 0 {
			u := b[k.Uintn(i+1<<40, uint64(len(b)))]
			b = slices.Insert(b, int(k.Uintn(i+1<<41, uint64(len(b)+1))), u)
		}
	}
	return b
}

// randomBatch returns distinct nodes, most of them from a moving range, so that
// successive batches overlap.
func randomBatch(k rng.Key, n, step int) []uint32 {
	size := 1 + int(k.Uintn(0, uint64(n/4)))
	seen := map[uint32]bool{}
	var b []uint32
	for i := uint64(1); len(b) < size; i++ {
		u := uint32(k.Uintn(i, uint64(n)))
		if k.Uintn(i+1<<40, 4) > 0 {
			u = uint32((step*3 + int(k.Uintn(i+1<<41, uint64(n/2)))) % n)
		}
		if !seen[u] {
			seen[u] = true
			b = append(b, u)
		}
	}
	return b
}

// A random history of batches, in flight up to a bound and released in any
// order, of pins, and of cached rows, more or fewer of them: at every moment every batch in flight finds
// the rows of its inputs in its slots. Free slots are poisoned.
func TestSlabHoldsEveryBatchInFlight(t *testing.T) {
	const n, cols, most = 97, 3, 4
	src := testTable(n, cols)
	for _, keep := range []int{0, 1, 3} {
		for _, cache := range []int{0, 1, 7, 40} {
			for _, pins := range []bool{false, true} {
				t.Run(fmt.Sprintf("keep=%d,cache=%d,pins=%v", keep, cache, pins), func(t *testing.T) {
					for seed := range uint64(12) {
						k := rng.New(seed, uint64(keep), uint64(cache))
						s, err := NewSlab(LayoutOf(src), SlabOptions{
							Slots: 10, MaxSlots: n/4*(most+1) + cache + 40, Keep: keep, Cache: cache, Poison: true,
						})
						if err != nil {
							t.Fatal(err)
						}
						history(t, s, src, k, most, pins)
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func history(t *testing.T, s *Slab, src *graph.Features, k rng.Key, most int, pins bool) {
	store := InMemory(src)
	defer store.Close()
	ctx := context.Background()
	var flying []inFlight
	var pinned, loading *Pin
	release := func(i int) {
		s.Release(flying[i].lease)
		flying = slices.Delete(flying, i, i+1)
	}
	for step := range 60 {
		ks := k.With(uint64(step))
		inputs := randomBatch(ks.With(1), src.Rows, step)
		if step%2 == 0 {
			inputs = listedAgain(ks.With(5), inputs)
		}
		lease, err := s.Match(inputs)
		for errors.Is(err, ErrFull) {
			release(int(ks.Uintn(2, uint64(len(flying)))))
			err = s.Resume(lease)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkOneSlotEach(t, inputs, lease)
		if err := Read(ctx, store, lease.Request()); err != nil {
			t.Fatal(err)
		}
		flying = append(flying, inFlight{lease, inputs})
		if pins && step%7 == 0 { // the next generation is loaded while the present one serves
			if loading, err = s.Pin(randomBatch(ks.With(2), src.Rows, 0)); err != nil {
				loading = nil // no room now
			} else if err := Read(ctx, store, loading.Request()); err != nil {
				t.Fatal(err)
			}
		}
		if step%7 == 4 && loading != nil {
			s.Publish(loading)
			if pinned != nil {
				s.Unpin(pinned)
			}
			pinned, loading = loading, nil
		}
		if ks.Uintn(6, 5) == 0 {
			s.SetCache(int(ks.Uintn(7, 40)))
			if q := &s.cache; q.small.n+q.main.n > q.capacity {
				t.Fatalf("step %d: %d and %d rows in a cache of %d", step, q.small.n, q.main.n, q.capacity)
			}
		}
		for len(flying) > most || len(flying) > 0 && ks.Uintn(3, 3) == 0 {
			release(int(ks.Uintn(4, uint64(len(flying)))))
		}
		for _, f := range flying {
			checkRows(t, src, s.Table(), f.inputs, f.lease.Slots)
		}
		st := s.Stats()
		if st.Rows != st.Loaded+st.Shared+st.Pinned+st.Cached {
			t.Fatalf("step %d: %+v does not add up", step, st)
		}
	}
	for len(flying) > 0 {
		release(0)
	}
	if pinned != nil {
		s.Unpin(pinned)
	}
	if loading != nil {
		s.Publish(loading)
		s.Unpin(loading)
	}
	checkEmpty(t, s)
}

// checkOneSlotEach checks that a node has one slot, and is read once at most.
func checkOneSlotEach(t *testing.T, inputs []uint32, l *Lease) {
	t.Helper()
	slot := map[uint32]uint32{}
	for i, u := range inputs {
		if p, ok := slot[u]; ok && p != l.Slots[i] {
			t.Fatalf("node %d has slots %d and %d", u, p, l.Slots[i])
		}
		slot[u] = l.Slots[i]
	}
	for i, u := range l.Load {
		if p, ok := slot[u]; !ok || p != l.LoadSlots[i] {
			t.Fatalf("node %d is read twice, or to slot %d in place of %d", u, l.LoadSlots[i], p)
		}
		delete(slot, u)
	}
}

// checkEmpty checks that nothing is lost: every slot is free, or holds a row of
// a batch that is kept, or of the cache.
func checkEmpty(t *testing.T, s *Slab) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire(0)
	for s.evict() {
	}
	if used := s.fresh - len(s.free); used != 0 || len(s.live) != 0 {
		t.Errorf("%d slots are in use when no batch is in flight, of %d leases", used, len(s.live))
	}
	slices.Sort(s.free)
	if len(slices.Compact(s.free)) != s.fresh {
		t.Errorf("a slot is free twice")
	}
	for u, p := range s.place {
		if p != 0 && p&ghostBit == 0 {
			t.Fatalf("node %d still has slot %d", u, p-1)
		}
	}
}

// What is read is N_j \ (N_{j-1} ∪ … ∪ N_{j-Keep}), however late batches are
// released.
func TestSlabLoadsTheDifference(t *testing.T) {
	const n, most = 200, 4
	src := testTable(n, 2)
	for _, keep := range []int{0, 1, 2, most} {
		for lag := 0; lag <= most; lag++ {
			if keep > 0 && lag > keep {
				continue // rows of batches in flight are shared even when they are not kept
			}
			s, err := NewSlab(LayoutOf(src), SlabOptions{Slots: SlabSlots(n/4, most, n/4, 0), Keep: keep})
			if err != nil {
				t.Fatal(err)
			}
			var batches [][]uint32
			var leases []*Lease
			for j := range 40 {
				b := randomBatch(rng.New(9, uint64(j)), n, j)
				before := map[uint32]bool{}
				for i := max(0, j-keep); i < j; i++ {
					for _, u := range batches[i] {
						before[u] = true
					}
				}
				var want []uint32
				for _, u := range b {
					if !before[u] {
						want = append(want, u)
					}
				}
				l, err := s.Match(b)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(l.Load, want) {
					t.Fatalf("keep %d, lag %d, batch %d: reads %v, want %v", keep, lag, j, l.Load, want)
				}
				batches, leases = append(batches, b), append(leases, l)
				if j >= lag {
					s.Release(leases[j-lag])
				}
			}
			s.Close()
		}
	}
}

// Where slots are short, rows that a later batch might have shared are given up.
func TestSlabGivesUpWhatItKeeps(t *testing.T) {
	s, err := NewSlab(LayoutOf(testTable(20, 4)), SlabOptions{Slots: 3, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for j, b := range [][]uint32{{1, 2, 3}, {4, 5, 6}, {6, 5, 9}} {
		l, err := s.Match(b)
		if err != nil || len(l.Load) != []int{3, 3, 1}[j] {
			t.Fatalf("batch %d reads %v: %v", j, l.Load, err)
		}
		s.Release(l)
	}
	p, err := s.Pin([]uint32{17, 18, 19})
	if err != nil {
		t.Fatalf("a pin of as many rows as there are slots: %v", err)
	}
	s.Unpin(p)
}

func TestSlabPoisonsFreeSlots(t *testing.T) {
	src := testTable(10, 4)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 10, Poison: true})
	defer s.Close()
	l, _ := s.Match([]uint32{3, 1})
	if err := Read(context.Background(), InMemory(src), l.Request()); err != nil {
		t.Fatal(err)
	}
	slots := slices.Clone(l.Slots)
	checkRows(t, src, s.Table(), []uint32{3, 1}, slots)
	s.Release(l)
	row := make([]float32, 4)
	for _, p := range slots {
		s.Table().Row(row, int(p))
		for _, v := range row {
			if !math.IsNaN(float64(v)) {
				t.Fatalf("free slot %d holds %v", p, row)
			}
		}
	}
}

func TestSlabGrowsOrRefuses(t *testing.T) {
	src := testTable(100, 4)
	ids := func(from, to int) (b []uint32) {
		for u := from; u < to; u++ {
			b = append(b, uint32(u))
		}
		return b
	}
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 10, MaxSlots: 30, Keep: 1})
	defer s.Close()
	a, err := s.Match(ids(0, 25))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().Slots; got != 25 {
		t.Errorf("the slab has %d slots, want 25", got)
	}
	b, err := s.Match(ids(20, 40)) // 15 rows more than there are: after a's release there is room
	if !errors.Is(err, ErrFull) || b == nil {
		t.Fatalf("a batch that does not fit beside another: %v", err)
	}
	if _, err := s.Match(ids(0, 1)); err == nil {
		t.Error("a batch overtook one that waits")
	}
	s.Release(a)
	if err := s.Resume(b); err != nil {
		t.Fatal(err)
	}
	if len(b.Load) != 15 || len(b.Slots) != 20 {
		t.Errorf("it reads %d rows and has %d slots, want 15 and 20", len(b.Load), len(b.Slots))
	}
	s.Release(b)
	if l, err := s.Match(ids(0, 31)); err == nil || errors.Is(err, ErrFull) || l != nil {
		t.Errorf("a batch that never fits: %v, %v", l, err)
	}
	c, err := s.Match(ids(0, 30)) // the slab goes on
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Match(ids(25, 50))
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	s.Release(d) // given up while it waits
	s.Release(c)
	if e, err := s.Match(ids(40, 70)); err != nil {
		t.Error(err)
	} else {
		s.Release(e)
	}
	checkEmpty(t, s)

	for _, bad := range [][]uint32{{100}, nil} {
		if _, err := s.Match(bad); err == nil {
			t.Errorf("inputs %v were taken", bad)
		}
	}
	if _, err := NewSlab(LayoutOf(src), SlabOptions{}); err == nil {
		t.Error("a slab without slots was made")
	}
	if _, err := s.Pin(ids(0, 31)); err == nil {
		t.Error("more rows were pinned than fit")
	}
}

// A dynamic cache finds what was needed lately, and a scan does not drive out
// what is needed again and again.
func TestDynamicCacheResistsScans(t *testing.T) {
	const n, hot = 5000, 50
	src := testTable(n, 1)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 400, Cache: 200})
	defer s.Close()
	batch := func(step int) []uint32 {
		var b []uint32
		for u := range hot {
			b = append(b, uint32(u))
		}
		for i := range 100 { // never seen again
			b = append(b, uint32(hot+(step*100+i)%(n-hot)))
		}
		return b
	}
	for step := range 20 {
		before := s.Stats()
		l, err := s.Match(batch(step))
		if err != nil {
			t.Fatal(err)
		}
		s.Release(l)
		if after := s.Stats(); step >= 4 && after.Cached-before.Cached != hot {
			t.Errorf("step %d: %d of the %d rows that are always needed were cached", step, after.Cached-before.Cached, hot)
		}
	}
	checkEmpty(t, s)
}

// What a slab says it takes is what its tables take: rows, scales, the state and
// the free list of the slots, the places of the nodes and the cache's two queues.
func TestSlabBytes(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		src := randomTable(50, 6, graph.Int8, scaled)
		for _, o := range []SlabOptions{{Slots: 7}, {Slots: 20, Cache: 5}, {Slots: 20, MaxSlots: 40}} {
			s, err := NewSlab(LayoutOf(src), o)
			if err != nil {
				t.Fatal(err)
			}
			want := o.Slots*(6+int(unsafe.Sizeof(slot{}))+4) + 4*len(s.place) + 4*cap(s.cache.small.p) + 4*cap(s.cache.main.p)
			if scaled {
				want += 4 * o.Slots
			}
			if got := s.Bytes(); got != int64(want) || len(s.place) != 50 {
				t.Errorf("%+v, scaled %v: %d bytes for %d nodes, want %d for 50", o, scaled, got, len(s.place), want)
			}
			before := s.Bytes()
			s.SetCache(11)
			if more := s.Bytes() - before; more != int64(8*(11-o.Cache)) {
				t.Errorf("%+v: %d bytes more for %d rows of cache more", o, more, 11-o.Cache)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A slab of too many slots is refused with the most that it may have; so is a
// negative number of anything.
func TestSlabRefusesOptions(t *testing.T) {
	l := Layout{Rows: 10, Cols: 1, DType: graph.Float32}
	for want, o := range map[string]SlabOptions{
		"at most 2147483647":       {Slots: 1, MaxSlots: 1 << 31},
		"0 slots":                  {},
		"keeps -1 batches":         {Slots: 1, Keep: -1},
		"caches -1 rows":           {Slots: 1, Cache: -1},
		"a slab of 2147483648 slo": {Slots: 1 << 31},
	} {
		if _, err := NewSlab(l, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", o, err, want)
		}
	}
}

// What is released, published or unpinned twice, or at another slab, is a mistake
// of the program.
func TestSlabMisuse(t *testing.T) {
	src := testTable(20, 4)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 10})
	defer s.Close()
	other, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 10})
	defer other.Close()
	l, err := s.Match([]uint32{1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Pin([]uint32{2})
	if err != nil {
		t.Fatal(err)
	}
	panics := func(what string, do func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		do()
	}
	panics("Release at another slab", func() { other.Release(l) })
	panics("Publish at another slab", func() { other.Publish(p) })
	panics("Unpin at another slab", func() { other.Unpin(p) })
	s.Publish(p)
	panics("a second Publish", func() { s.Publish(p) })
	s.Unpin(p)
	panics("a second Unpin", func() { s.Unpin(p) })
	if err := s.Resume(l); err == nil {
		t.Error("Resume of a lease that does not wait")
	}
	s.Release(l)
	panics("a second Release", func() { s.Release(l) })
	checkEmpty(t, s)
	checkEmpty(t, other)
}
