package features

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// A row that is pinned while a batch in flight has it elsewhere is found where
// it is pinned, also after the batch is released.
func TestPinOfWhatIsInFlight(t *testing.T) {
	src := testTable(20, 4)
	ctx := context.Background()
	for _, keep := range []int{0, 1} {
		for _, cache := range []int{0, 5} {
			s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 40, Keep: keep, Cache: cache, Poison: true})
			store := InMemory(src)
			match := func(inputs ...uint32) *Lease {
				l, err := s.Match(inputs)
				if err != nil {
					t.Fatal(err)
				}
				if err := Read(ctx, store, l.Request()); err != nil {
					t.Fatal(err)
				}
				checkRows(t, src, s.Table(), inputs, l.Slots)
				return l
			}
			before := match(1, 2, 3)
			p, err := s.Pin([]uint32{2, 3, 4})
			if err != nil || !slices.Equal(p.Load, []uint32{2, 3, 4}) || p.Rows() != 3 {
				t.Fatalf("the pin reads %v (%v), want all three", p.Load, err)
			}
			between := match(4) // not published: read once more
			if len(between.Load) != 1 {
				t.Errorf("a batch used a pin that was not published")
			}
			if err := Read(ctx, store, p.Request()); err != nil {
				t.Fatal(err)
			}
			s.Publish(p)
			s.Release(before)
			s.Release(between)
			s.Release(match(10, 11, 12, 13, 14, 15, 16)) // what was kept or cached is driven out
			after := match(2, 3, 4)
			if len(after.Load) != 0 || !slices.Equal(after.Slots, p.LoadSlots) {
				t.Errorf("keep %d, cache %d: a batch of pinned rows reads %v", keep, cache, after.Load)
			}
			q, err := s.Pin([]uint32{4, 5}) // the next generation shares what is pinned
			if err != nil || !slices.Equal(q.Load, []uint32{5}) {
				t.Fatalf("the next pin reads %v (%v), want 5", q.Load, err)
			}
			if err := Read(ctx, store, q.Request()); err != nil {
				t.Fatal(err)
			}
			s.Publish(q)
			s.Unpin(p)
			checkRows(t, src, s.Table(), []uint32{2, 3, 4}, after.Slots) // still in flight
			s.Release(after)
			last := match(4, 5)
			if len(last.Load) != 0 {
				t.Errorf("keep %d, cache %d: a batch of the next generation reads %v", keep, cache, last.Load)
			}
			s.Release(last)
			s.Unpin(q)
			checkEmpty(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A row that comes back soon after it was driven out is kept longer than rows
// that are seen once.
func TestDynamicCacheRemembersGhosts(t *testing.T) {
	src := testTable(1000, 1)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 200, Cache: 20})
	defer s.Close()
	next := uint32(100)
	use := func(inputs ...uint32) (hit int64) {
		before := s.Stats().Cached
		l, err := s.Match(inputs)
		if err != nil {
			t.Fatal(err)
		}
		s.Release(l)
		return s.Stats().Cached - before
	}
	scan := func(rows int) {
		for range rows {
			use(next)
			next++
		}
	}
	use(7)
	scan(22) // 7 leaves, and is a ghost
	if use(7) != 0 {
		t.Fatal("7 was not driven out")
	}
	scan(40) // more than all other rows of the cache
	if use(7) != 1 {
		t.Error("7, which came back as a ghost, was driven out by rows that are seen once")
	}
	checkEmpty(t, s)
}

// A cache that grows keeps what it holds and then more, one that shrinks keeps no
// more than it may, and one of no rows keeps none.
func TestSetCache(t *testing.T) {
	src := testTable(1000, 1)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 200, Cache: 10})
	defer s.Close()
	use := func(first, n uint32) (hits int64) {
		before := s.Stats().Cached
		for u := first; u < first+n; u++ {
			l, err := s.Match([]uint32{u})
			if err != nil {
				t.Fatal(err)
			}
			s.Release(l)
		}
		return s.Stats().Cached - before
	}
	use(0, 10)
	s.SetCache(30)
	use(100, 20)
	if n := use(0, 10) + use(100, 20); n != 30 {
		t.Errorf("%d of 30 rows are there after the cache grew", n)
	}
	s.SetCache(5)
	if n := use(0, 10) + use(100, 20); n > 5 || s.Stats().Used > 5 {
		t.Errorf("%d rows were there, and %d are, after the cache shrank to 5", n, s.Stats().Used)
	}
	s.SetCache(0)
	if n := use(0, 10); n != 0 || s.Stats().Used != 0 {
		t.Errorf("%d rows were there, and %d are, without a cache", n, s.Stats().Used)
	}
	s.SetCache(10)
	if use(0, 10); use(0, 10) != 10 {
		t.Error("a cache that came back does not hold what was used last")
	}
	checkEmpty(t, s)
}

// A batch that waits for room finds a generation that is published before it
// gets it: its shares are those of a batch that came after the publication, and
// the pin keeps its place.
func TestPublishWhileALeaseWaits(t *testing.T) {
	src := testTable(40, 4)
	ctx, store := context.Background(), InMemory(src)
	defer store.Close()
	for _, keep := range []int{0, 1, 2} {
		for _, cache := range []int{0, 3} {
			var stats [2]SlabStats
			for late := range 2 { // published before Match, or between Match and Resume
				s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 10, Keep: keep, Cache: cache, Poison: true})
				read := func(r Request, err error) {
					if err == nil {
						err = Read(ctx, store, r)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				p, err := s.Pin([]uint32{1, 2, 3})
				read(p.Request(), err)
				before, err := s.Match([]uint32{10, 11, 12, 13})
				read(before.Request(), err)
				if late == 0 {
					s.Publish(p)
				}
				inputs := []uint32{1, 20, 2, 2, 21, 22, 3, 23, 24, 25}
				l, err := s.Match(inputs)
				if !errors.Is(err, ErrFull) {
					t.Fatalf("the batch need not wait: %v", err)
				}
				if late == 1 {
					s.Publish(p)
				}
				s.Release(before)
				if err := s.Resume(l); err != nil {
					t.Fatal(err)
				}
				read(l.Request(), nil)
				checkRows(t, src, s.Table(), inputs, l.Slots)
				if want := []uint32{20, 21, 22, 23, 24, 25}; !slices.Equal(l.Load, want) {
					t.Errorf("keep %d, cache %d, late %d: it reads %v, want %v", keep, cache, late, l.Load, want)
				}
				stats[late] = s.Stats()
				s.Release(l)
				after, err := s.Match([]uint32{3, 1, 2})
				if err != nil || len(after.Load) != 0 || !slices.Equal(after.Slots, []uint32{p.slots[2], p.slots[0], p.slots[1]}) {
					t.Errorf("keep %d, cache %d, late %d: the pin lost its place: %+v (%v)", keep, cache, late, after, err)
				}
				s.Release(after)
				s.Unpin(p)
				checkEmpty(t, s)
				s.Close()
			}
			if stats[0] != stats[1] {
				t.Errorf("keep %d, cache %d: published before %+v, while it waited %+v", keep, cache, stats[0], stats[1])
			}
		}
	}
}

// s3fifo is the dynamic cache by its definition, over nodes: two lists, the oldest
// first, and when nodes left the small one.
type s3fifo struct {
	capacity    int
	small, main []uint32
	left        int
	ghosts      map[uint32]int // how many had left by then
	uses        map[uint32]int // of what is in a list
}

// use reports whether u is there, and puts it there if not.
func (c *s3fifo) use(u uint32) bool {
	if n, ok := c.uses[u]; ok {
		c.uses[u] = min(n+1, 3)
		return true
	}
	n, back := c.ghosts[u]
	back = back && c.left-n <= c.capacity
	delete(c.ghosts, u)
	for len(c.small)+len(c.main) == c.capacity && c.leave() {
	}
	c.uses[u] = 0
	if back {
		c.main = append(c.main, u)
	} else {
		c.small = append(c.small, u)
	}
	return false
}

// leave drives one node out.
func (c *s3fifo) leave() bool {
	for {
		if len(c.main) == 0 || len(c.small)*10 > c.capacity {
			u := c.small[0]
			c.small = c.small[1:]
			if c.uses[u] > 0 {
				c.uses[u] = 0
				c.main = append(c.main, u)
				continue
			}
			delete(c.uses, u)
			c.left++
			c.ghosts[u] = c.left
			return true
		}
		u := c.main[0]
		c.main = c.main[1:]
		if c.uses[u] > 0 {
			c.uses[u]--
			c.main = append(c.main, u)
			continue
		}
		delete(c.uses, u)
		return true
	}
}

// Batches of one row each, of nodes that are asked for unequally often and of scans,
// find what S3-FIFO finds.
func TestDynamicCacheIsS3FIFO(t *testing.T) {
	src := testTable(500, 1)
	for _, capacity := range []int{1, 2, 10, 37} {
		s, err := NewSlab(LayoutOf(src), SlabOptions{Slots: capacity + 1, Cache: capacity})
		if err != nil {
			t.Fatal(err)
		}
		want := &s3fifo{capacity: capacity, ghosts: make(map[uint32]int), uses: make(map[uint32]int)}
		hits := 0
		for i := range uint64(4000) {
			k := rng.New(7, i)
			u := uint32(k.Uintn(0, 1+k.Uintn(1, 1+k.Uintn(2, 150)))) // low ids often
			if k.Uintn(3, 4) == 0 {
				u = 200 + uint32(i%300)
			}
			before := s.Stats().Cached
			l, err := s.Match([]uint32{u})
			if err != nil {
				t.Fatal(err)
			}
			s.Release(l)
			hit := want.use(u)
			if got := s.Stats().Cached > before; got != hit {
				t.Fatalf("capacity %d, access %d, node %d: found %v, want %v", capacity, i, u, got, hit)
			}
			if hit {
				hits++
			}
		}
		if hits < 50 {
			t.Errorf("capacity %d: only %d of 4000 are found", capacity, hits)
		}
		checkEmpty(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Pins take just the slots that they need: a slab of five holds a pin of five, and
// grows no further than it has to.
func TestPinFillsTheSlab(t *testing.T) {
	src := testTable(20, 4)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 5})
	defer s.Close()
	p, err := s.Pin([]uint32{1, 2, 3, 4, 5})
	if err != nil {
		t.Fatal(err)
	}
	s.Publish(p)
	q, err := s.Pin([]uint32{5, 1}) // all shared
	if err != nil || len(q.Load) != 0 || q.Rows() != 2 {
		t.Errorf("rows that are pinned: reads %v, error %v", q, err)
	}
	if _, err := s.Pin([]uint32{6}); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("a sixth row, with no batch to wait for: %v", err)
	}
	if _, err := s.Pin([]uint32{20}); err == nil {
		t.Error("a node out of range was pinned")
	}
	larger, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 5, MaxSlots: 10})
	defer larger.Close()
	if _, err := larger.Pin([]uint32{1, 2, 3, 4, 5, 6, 7}); err != nil || larger.Stats().Slots != 7 || larger.Stats().Pins != 7 {
		t.Errorf("a pin of seven rows: %+v, error %v", larger.Stats(), err)
	}
}
