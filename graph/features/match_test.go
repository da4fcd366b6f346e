package features

import (
	"errors"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

func TestSlabMatchAllocatesNothing(t *testing.T) {
	src := testTable(1000, 4)
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 2000, Keep: 2, Cache: 100})
	defer s.Close()
	var batches [][]uint32
	for j := range 8 {
		batches = append(batches, randomBatch(rng.New(4, uint64(j)), 1000, j))
	}
	run := func() {
		for _, b := range batches {
			l, err := s.Match(b)
			if err != nil {
				t.Fatal(err)
			}
			s.Release(l)
		}
	}
	for range 10 {
		run()
	}
	if a := testing.AllocsPerRun(20, run); a > 0 {
		t.Errorf("%v allocations for %d batches", a, len(batches))
	}
}

// A batch that lists nodes several times reads the same rows, takes as many
// slots and fits where the batch of its distinct nodes does; the others do not
// notice.
func TestSlabMatchesDuplicates(t *testing.T) {
	const n, most = 200, 3
	src := testTable(n, 2)
	for _, keep := range []int{0, 1, most} {
		for _, cache := range []int{0, 30} {
			for seed := range uint64(10) {
				k := rng.New(seed, uint64(keep), uint64(cache))
				// Tight: a large batch hardly fits beside another.
				o := SlabOptions{Slots: 5, MaxSlots: n/4 + 10, Keep: keep, Cache: cache, Poison: true}
				var slabs [2]*Slab
				var leases [2][]*Lease
				for i := range slabs {
					var err error
					if slabs[i], err = NewSlab(LayoutOf(src), o); err != nil {
						t.Fatal(err)
					}
				}
				full := 0
				for step := range 60 {
					once := randomBatch(k.With(uint64(step)), n, step)
					batch := [2][]uint32{once, listedAgain(k.With(uint64(step)).With(1), once)}
					// The order in which nodes are met is that of their slots.
					var first []uint32
					for _, u := range batch[1] {
						if !slices.Contains(first, u) {
							first = append(first, u)
						}
					}
					batch[0] = first
					var errs [2]error
					var l [2]*Lease
					for i, s := range slabs {
						l[i], errs[i] = s.Match(batch[i])
						for errors.Is(errs[i], ErrFull) && len(leases[i]) > 0 {
							full += i
							s.Release(leases[i][0])
							leases[i] = leases[i][1:]
							errs[i] = s.Resume(l[i])
						}
						if errs[i] != nil {
							t.Fatal(errs[i])
						}
						leases[i] = append(leases[i], l[i])
						if len(leases[i]) > most {
							s.Release(leases[i][0])
							leases[i] = leases[i][1:]
						}
					}
					checkOneSlotEach(t, batch[1], l[1])
					if !slices.Equal(l[0].Load, l[1].Load) || !slices.Equal(l[0].LoadSlots, l[1].LoadSlots) {
						t.Fatalf("step %d: a batch with duplicates reads %v to %v, want %v to %v", step, l[1].Load, l[1].LoadSlots, l[0].Load, l[0].LoadSlots)
					}
					a, b := slabs[0].Stats(), slabs[1].Stats()
					if a.Loaded != b.Loaded || a.Used != b.Used || a.Slots != b.Slots || a.Peak != b.Peak {
						t.Fatalf("step %d: with duplicates %+v, without %+v", step, b, a)
					}
					if b.Rows != b.Loaded+b.Shared+b.Pinned+b.Cached {
						t.Fatalf("step %d: %+v does not add up", step, b)
					}
				}
				if full == 0 {
					t.Error("the slab was never full")
				}
				for i, s := range slabs {
					for _, l := range leases[i] {
						s.Release(l)
					}
					checkEmpty(t, s)
					s.Close()
				}
			}
		}
	}
	// A batch whose distinct nodes just fit.
	s, _ := NewSlab(LayoutOf(src), SlabOptions{Slots: 3})
	defer s.Close()
	l, err := s.Match([]uint32{5, 5, 6, 5, 7, 7, 6})
	if err != nil || !slices.Equal(l.Load, []uint32{5, 6, 7}) {
		t.Fatalf("it reads %v (%v)", l, err)
	}
	s.Release(l)
	checkEmpty(t, s)
}
