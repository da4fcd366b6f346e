package features

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
)

// ringDepth is how many calls a ring has under way.
const ringDepth = 128

// ringParams is struct io_uring_params of the Linux ABI.
type ringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, workqueue uint32

	_  [3]uint32
	sq struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, entry, flags, _ uint32
		_                                                    uint64
	}
}

// submission is struct io_uring_sqe.
type submission struct {
	op, flags uint8
	ioprio    uint16
	fd        int32
	offset    uint64
	addr      uint64
	len       uint32
	rwFlags   uint32
	user      uint64
	_         [3]uint64
}

// completion is struct io_uring_cqe.
type completion struct {
	user   uint64
	result int32
	flags  uint32
}

const (
	opReadv = 1

	mapSubmissions = 0x10000000
	mapCompletions = 0x8000000

	enterGetEvents = 1
)

// uring is one io_uring. One goroutine at a time uses it.
type uring struct {
	fd    int
	enter func(fd, n, wait int) (int, unix.Errno) // enterRing, or a test's

	sqMap, cqMap, entryMap []byte

	sqTail, cqHead, cqTail *uint32
	sqMask, cqMask         uint32
	array                  []uint32
	entries                []submission
	done                   []completion

	vectors [][2*runRows - 1]unix.Iovec // of each call under way
	calls   []int32                     // which run each call reads
	free    []uint32
	junk    []byte // where gaps go
	buf     []byte
}

// newRing returns a ring of ringDepth calls.
func newRing() (*uring, error) {
	var p ringParams
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, ringDepth, uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return nil, os.NewSyscallError("io_uring_setup", e)
	}
	g := &uring{fd: int(fd), enter: enterRing}
	view := func(offset int64, size uint32) (b []byte, err error) {
		b, err = unix.Mmap(g.fd, offset, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		return b, os.NewSyscallError("mmap", err)
	}
	var err1, err2, err3 error
	g.sqMap, err1 = view(0, p.sq.array+p.sqEntries*4)
	g.cqMap, err2 = view(mapCompletions, p.cq.entry+p.cqEntries*uint32(unsafe.Sizeof(completion{})))
	g.entryMap, err3 = view(mapSubmissions, p.sqEntries*uint32(unsafe.Sizeof(submission{})))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, g.close())
	}
	word := func(b []byte, at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }
	g.sqTail, g.cqHead, g.cqTail = word(g.sqMap, p.sq.tail), word(g.cqMap, p.cq.head), word(g.cqMap, p.cq.tail)
	g.sqMask, g.cqMask = *word(g.sqMap, p.sq.mask), *word(g.cqMap, p.cq.mask)
	g.array = unsafe.Slice(word(g.sqMap, p.sq.array), p.sqEntries)
	g.entries = unsafe.Slice((*submission)(unsafe.Pointer(&g.entryMap[0])), p.sqEntries)
	g.done = unsafe.Slice((*completion)(unsafe.Pointer(&g.cqMap[p.cq.entry])), p.cqEntries)
	g.vectors = make([][2*runRows - 1]unix.Iovec, ringDepth)
	g.calls = make([]int32, ringDepth)
	for i := range uint32(ringDepth) {
		g.free = append(g.free, i)
	}
	g.junk = make([]byte, gapBytes)
	return g, nil
}

func (g *uring) close() error {
	var err error
	for _, m := range [][]byte{g.sqMap, g.cqMap, g.entryMap} {
		if m != nil {
			err = errors.Join(err, os.NewSyscallError("munmap", unix.Munmap(m)))
		}
	}
	return errors.Join(err, os.NewSyscallError("close", unix.Close(g.fd)))
}

// prepare queues the read of one run, straight into its rows.
func (g *uring) prepare(s *disk, dst *graph.Features, keys []uint64, index int) {
	call := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.calls[call] = int32(index)
	v, n := &g.vectors[call], 0
	next := keys[0] >> 32
	for _, k := range keys {
		if gap := int(k>>32-next) * s.rowBytes; gap > 0 {
			v[n].Base = &g.junk[0]
			v[n].SetLen(gap)
			n++
		}
		row := s.row(dst, k)
		v[n].Base = &row[0]
		v[n].SetLen(len(row))
		n++
		next = k>>32 + 1
	}
	at, _ := s.extent(keys)
	tail := *g.sqTail // the kernel only reads it
	i := tail & g.sqMask
	g.entries[i] = submission{
		op: opReadv, fd: s.fd, offset: uint64(at),
		addr: uint64(uintptr(unsafe.Pointer(v))), len: uint32(n), user: uint64(call),
	}
	g.array[i] = i
	atomic.StoreUint32(g.sqTail, tail+1)
}

// rewind takes n queued calls back: the kernel, which looks at the tail only
// when it is entered, never sees them.
func (g *uring) rewind(n int) {
	tail := *g.sqTail
	for range n {
		tail--
		g.free = append(g.free, uint32(g.entries[tail&g.sqMask].user))
	}
	atomic.StoreUint32(g.sqTail, tail)
}

// enterRing hands n queued calls over to the ring fd and waits until wait calls
// are done. It returns how many were taken: all or some, or none and the reason.
func enterRing(fd, n, wait int) (int, unix.Errno) {
	for {
		taken, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(n), uintptr(wait), enterGetEvents, 0, 0)
		if e != unix.EINTR {
			return int(taken), e
		}
	}
}

// ringRead is a read that is under way on a ring.
type ringRead struct {
	*uring
	s   *disk
	p   *plan
	dst *graph.Features
	err error // the first

	next, queued, flying int // the run to prepare next; calls prepared, and handed over
}

// readByRing reads the runs of p. The calls that were handed over are waited
// for, whatever happens, since they write to dst; those that were not are taken
// back.
func (s *disk) readByRing(ctx context.Context, p *plan, dst *graph.Features) error {
	g, err := s.rings.take(ctx)
	if err != nil {
		return err
	}
	if g == nil {
		var buf []byte
		return s.readRuns(ctx, p, p.runs, dst, &buf)
	}
	r := &ringRead{uring: g, s: s, p: p, dst: dst}
	whole := r.read(ctx)
	runtime.KeepAlive(dst)
	if whole {
		s.rings.give(g)
		return r.err
	}
	return errors.Join(r.err, s.rings.drop(g))
}

// readRuns reads some runs of p, one after the other.
func (s *disk) readRuns(ctx context.Context, p *plan, runs []run, dst *graph.Features, buf *[]byte) error {
	for _, r := range runs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.readRun(p.keys[r.first:r.last], dst, buf); err != nil {
			return err
		}
	}
	return nil
}

// read reports whether the ring can be used again.
func (r *ringRead) read(ctx context.Context) (whole bool) {
	whole = true
	for {
		if r.err == nil && ctx.Err() != nil && r.next-r.queued < len(r.p.runs) {
			r.err = context.Cause(ctx)
		}
		for r.next < len(r.p.runs) && len(r.free) > 0 && r.err == nil {
			x := r.p.runs[r.next]
			r.prepare(r.s, r.dst, r.p.keys[x.first:x.last], r.next)
			r.next, r.queued = r.next+1, r.queued+1
		}
		if r.err != nil {
			r.rewind(r.queued)
			r.queued = 0
		}
		if r.queued+r.flying == 0 {
			return whole
		}
		taken, e := r.enter(r.fd, r.queued, max(1, min(r.queued+r.flying, ringDepth/4)))
		switch {
		case e == 0:
			r.queued, r.flying = r.queued-taken, r.flying+taken
		case e != unix.EAGAIN && e != unix.EBUSY:
			whole = false
			if r.err == nil {
				r.err = fmt.Errorf("features: %s: %w", r.s.path, os.NewSyscallError("io_uring_enter", e))
			}
			time.Sleep(time.Millisecond) // those under way come to their end by themselves
		case r.flying > 0: // no resources now: wait for what is under way
			_, _ = r.enter(r.fd, 0, 1) // what it fails with, the next call fails with too
		default: // and nothing holds any: without the ring
			first := r.next - r.queued
			r.rewind(r.queued)
			r.queued = 0
			r.err = r.s.readRuns(ctx, r.p, r.p.runs[first:r.next], r.dst, &r.buf)
		}
		r.reap()
	}
}

// reap takes what the calls that are done came to.
func (r *ringRead) reap() {
	head := *r.cqHead
	for tail := atomic.LoadUint32(r.cqTail); head != tail; head++ {
		c := r.done[head&r.cqMask]
		x := r.p.runs[r.calls[c.user]]
		keys := r.p.keys[x.first:x.last]
		if _, size := r.s.extent(keys); int(c.result) != size && r.err == nil {
			// A failed or partial read: again, for the rest or for the reason.
			r.err = r.s.readRun(keys, r.dst, &r.buf)
		}
		r.free = append(r.free, uint32(c.user))
		r.flying--
	}
	atomic.StoreUint32(r.cqHead, head)
}

// rings are the rings of a store: each read takes one, so there are as many as
// reads were ever under way at once, or as the system gives.
type rings struct {
	make func() (*uring, error) // newRing, or a test's

	mu    sync.Mutex
	idle  []*uring
	made  int           // idle or taken
	given chan struct{} // closed when a ring was given back or dropped; nil: nobody waits
}

// start fails when the system has no io_uring, or forbids it.
func (r *rings) start() error {
	if r.make == nil {
		r.make = newRing
	}
	g, err := r.make()
	if err == nil {
		r.made++
		r.give(g)
	}
	return err
}

// take returns an idle ring or a new one. When the system gives no more (memory
// and descriptors are limited) it waits for one, or returns nil if there is none.
func (r *rings) take(ctx context.Context) (*uring, error) {
	for {
		r.mu.Lock()
		if n := len(r.idle); n > 0 {
			g := r.idle[n-1]
			r.idle = r.idle[:n-1]
			r.mu.Unlock()
			return g, nil
		}
		g, err := r.make()
		if err == nil {
			r.made++
		}
		if err == nil || r.made == 0 {
			r.mu.Unlock()
			return g, nil
		}
		if r.given == nil {
			r.given = make(chan struct{})
		}
		given := r.given
		r.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (r *rings) give(g *uring) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, g)
	r.wake()
}

// drop gives up a ring that was taken.
func (r *rings) drop(g *uring) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made--
	r.wake()
	return g.close()
}

// wake has all that wait in take look again.
func (r *rings) wake() {
	if r.given != nil {
		close(r.given)
		r.given = nil
	}
}

func (r *rings) close() error {
	var err error
	for _, g := range r.idle {
		err = errors.Join(err, g.close())
	}
	return err
}

// adviseRandom turns read-ahead off: what is near a row is not needed next.
// That the file system ignores it is no error.
func adviseRandom(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }
