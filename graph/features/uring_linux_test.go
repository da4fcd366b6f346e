package features

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
)

// ringStore returns a disk store with one ring, the rows it holds, and ids of
// rows too far from each other to share a call.
func ringStore(t *testing.T) (s *disk, src *graph.Features, ids []uint32) {
	t.Helper()
	const n = 4000
	src = testTable(n, 1024)
	table, file := storeOf(t, src)
	if g, err := newRing(); err != nil {
		t.Skipf("this system gives no io_uring: %v", err)
	} else if err := g.close(); err != nil {
		t.Fatal(err)
	}
	x, err := openDisk(table, file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := uint32(0); i < n; i += 4 {
		ids = append(ids, i)
	}
	return x.(*disk), src, ids
}

// checkRead reads ids and compares the rows.
func checkRead(t *testing.T, s *disk, src *graph.Features, ids []uint32) {
	t.Helper()
	r := Request{IDs: ids, Dst: s.layout.NewTable(len(ids))}
	if err := Read(context.Background(), s, r); err != nil {
		t.Error(err)
		return
	}
	for i, id := range ids {
		want, _ := rowBits(src, int(id))
		if got, _ := rowBits(r.Dst, i); !bytes.Equal(got, want) {
			t.Errorf("row %d is wrong", id)
			return
		}
	}
}

// Where the system gives one ring and no more, reads at once share it.
func TestRingsRunShort(t *testing.T) {
	s, src, ids := ringStore(t)
	s.rings.make = func() (*uring, error) { return nil, unix.ENOMEM }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { checkRead(t, s, src, ids) })
	}
	wg.Wait()
	if len(s.rings.idle) != 1 || s.rings.made != 1 {
		t.Errorf("%d idle rings of %d, want the one", len(s.rings.idle), s.rings.made)
	}

	// So do two, where it gives two.
	s.rings.make = newRing
	one, err1 := s.rings.take(context.Background())
	two, err2 := s.rings.take(context.Background())
	if err1 != nil || err2 != nil || s.rings.made != 2 {
		t.Fatalf("%d rings: %v, %v", s.rings.made, err1, err2)
	}
	s.rings.give(one)
	if err := s.rings.drop(two); err != nil || s.rings.made != 1 {
		t.Errorf("%d rings after one of two was dropped: %v", s.rings.made, err)
	}
	s.rings.make = func() (*uring, error) { return nil, unix.ENOMEM }

	// A read that waits for the ring can be cancelled, and is woken by its loss.
	g, err := s.rings.take(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	waits := make(chan error, 1)
	s.Read(ctx, Request{IDs: ids[:5], Dst: s.layout.NewTable(5)}, func(err error) { waits <- err })
	cancel(cause)
	if err := <-waits; !errors.Is(err, cause) {
		t.Errorf("a read that waited for a ring: %v", err)
	}
	wg.Go(func() { checkRead(t, s, src, ids) })
	if err := s.rings.drop(g); err != nil {
		t.Error(err)
	}
	wg.Wait() // without a ring
}

// theRing returns the idle ring.
func theRing(s *disk) *uring { return s.rings.idle[0] }

// A ring that has no resources gives its calls back when none is under way, and
// waits when some are; the rows are right in either case.
func TestRingWithoutResources(t *testing.T) {
	for _, e := range []unix.Errno{unix.EAGAIN, unix.EBUSY} {
		t.Run(e.Error(), func(t *testing.T) {
			s, src, ids := ringStore(t)
			g := theRing(s)
			calls := 0
			g.enter = func(fd, n, wait int) (int, unix.Errno) { calls++; return 0, e }
			checkRead(t, s, src, ids)
			if most := (len(ids) + ringDepth - 1) / ringDepth; calls > most {
				t.Errorf("%d calls of a ring that takes nothing, want at most %d", calls, most)
			}

			// One call at a time is taken, and is under way until it is waited for.
			flying, waited := 0, 0
			g.enter = func(fd, n, wait int) (int, unix.Errno) {
				switch {
				case flying > 0 && n > 0:
					return 0, e
				case flying > 0:
					if wait != 1 {
						t.Errorf("the wait is for %d calls, want 1", wait)
					}
					_, e := enterRing(fd, flying, wait)
					flying, waited = 0, waited+1
					return 0, e
				}
				flying = 1
				return 1, 0
			}
			checkRead(t, s, src, ids)
			if waited != len(ids) {
				t.Errorf("%d calls were waited for, want %d", waited, len(ids))
			}
			g.enter = enterRing
			checkRead(t, s, src, ids)
			if len(g.free) != ringDepth {
				t.Errorf("%d of %d calls are free", len(g.free), ringDepth)
			}
		})
	}
}

// After a cancellation calls that were not handed over are dropped, those that
// were are waited for, and the ring can be used again.
func TestCancelDropsQueuedCalls(t *testing.T) {
	for _, first := range []int{0, 1, 5} {
		s, src, ids := ringStore(t)
		g := theRing(s)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		taken := 0
		g.enter = func(fd, n, wait int) (int, unix.Errno) {
			if ctx.Err() != nil {
				if n != 0 {
					t.Errorf("%d calls were handed over after the cancellation", n)
				}
				return enterRing(fd, n, wait)
			}
			cancel(cause)
			if first == 0 {
				return 0, unix.EAGAIN
			}
			var e unix.Errno
			taken, e = enterRing(fd, first, 0)
			return taken, e
		}
		if err := Read(ctx, s, Request{IDs: ids, Dst: s.layout.NewTable(len(ids))}); !errors.Is(err, cause) {
			t.Errorf("first %d: a cancelled read: %v", first, err)
		}
		if taken != first || len(g.free) != ringDepth {
			t.Errorf("first %d: %d calls were taken, and %d of %d are free", first, taken, len(g.free), ringDepth)
		}
		g.enter = enterRing
		checkRead(t, s, src, ids)
	}
}

// Another error of the ring ends the read, and the ring; the next read has a new one.
func TestRingBreaks(t *testing.T) {
	s, src, ids := ringStore(t)
	g := theRing(s)
	g.enter = func(fd, n, wait int) (int, unix.Errno) {
		if n > 1 {
			g.enter = func(fd, n, wait int) (int, unix.Errno) { return 0, unix.ENXIO }
			return enterRing(fd, n/2, 0)
		}
		return enterRing(fd, n, wait)
	}
	if err := Read(context.Background(), s, Request{IDs: ids, Dst: s.layout.NewTable(len(ids))}); !errors.Is(err, unix.ENXIO) {
		t.Errorf("a ring that broke: %v", err)
	}
	if s.rings.made != 0 {
		t.Errorf("%d rings are left", s.rings.made)
	}
	checkRead(t, s, src, ids)
}

// A call whose rows lie apart puts each where it belongs: none is short, which
// would have it read once more, into a buffer. What lies between two rows, here
// the most there may be, stays within the memory for it.
func TestRingReadsAcrossGaps(t *testing.T) {
	s, src, _ := ringStore(t)
	step := uint32(1 + gapBytes/s.rowBytes)
	if int(step-1)*s.rowBytes != gapBytes {
		t.Fatalf("rows of %d bytes leave no gap of %d", s.rowBytes, gapBytes)
	}
	var ids []uint32
	for i := range uint32(900) {
		ids = append(ids, step*i)
	}
	memory := make([]byte, gapBytes+1)
	memory[gapBytes] = 0x5a
	s.rings.idle[0].junk = memory[:gapBytes]
	checkRead(t, s, src, ids)
	if len(s.rings.idle) != 1 || s.rings.idle[0].buf != nil {
		t.Errorf("%d rings are idle; some calls were read again", len(s.rings.idle))
	}
	if memory[gapBytes] != 0x5a {
		t.Error("a call wrote past the memory for what is between its rows")
	}
}

// Entering the ring waits for a call that is not done at once: here the ring's
// own clock, as files that were just written are read without waiting.
func TestEnterWaits(t *testing.T) {
	g, err := newRing()
	if err != nil {
		t.Skipf("no io_uring here: %v", err)
	}
	defer g.close()
	const opTimeout = 11
	limit := unix.NsecToTimespec(int64(20 * time.Millisecond))
	g.entries[0] = submission{op: opTimeout, addr: uint64(uintptr(unsafe.Pointer(&limit))), len: 1, user: 7}
	g.array[0] = 0
	atomic.StoreUint32(g.sqTail, 1)
	if taken, e := enterRing(g.fd, 1, 1); taken != 1 || e != 0 {
		t.Fatalf("entering took %d calls, and failed with %v", taken, e)
	}
	if tail := atomic.LoadUint32(g.cqTail); tail != *g.cqHead+1 || g.done[*g.cqHead&g.cqMask].user != 7 {
		t.Errorf("%d calls are done after waiting for one", tail-*g.cqHead)
	}
}
