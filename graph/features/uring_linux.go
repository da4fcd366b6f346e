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
	fd int

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
	g := &uring{fd: int(fd)}
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

// enter hands n queued calls over and waits until wait calls are done. It
// returns how many were taken.
func (g *uring) enter(n, wait int) (int, error) {
	for {
		taken, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(g.fd), uintptr(n), uintptr(wait), enterGetEvents, 0, 0)
		switch e {
		case 0:
			return int(taken), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.EBUSY: // no resources now: wait for what is under way
			return 0, nil
		default:
			return 0, os.NewSyscallError("io_uring_enter", e)
		}
	}
}

// readByRing reads the runs of p. The calls that were handed over are waited
// for, whatever happens, since they write to dst.
func (s *disk) readByRing(ctx context.Context, p *plan, dst *graph.Features) error {
	g, err := s.rings.take()
	if err != nil {
		return fmt.Errorf("features: %s: no io_uring: %w", s.path, err)
	}
	next, queued, flying, broken := 0, 0, 0, false
	for {
		for next < len(p.runs) && len(g.free) > 0 && err == nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
				break
			}
			r := p.runs[next]
			g.prepare(s, dst, p.keys[r.first:r.last], next)
			next, queued = next+1, queued+1
		}
		if queued+flying == 0 {
			break
		}
		taken, failed := g.enter(queued, max(1, min(queued+flying, ringDepth/4)))
		if failed != nil { // none of the queued calls were taken
			broken = true
			if err == nil {
				err = fmt.Errorf("features: %s: %w", s.path, failed)
			}
			queued = 0
			time.Sleep(time.Millisecond) // those under way come to their end by themselves
		}
		queued, flying = queued-taken, flying+taken
		head := *g.cqHead
		for tail := atomic.LoadUint32(g.cqTail); head != tail; head++ {
			c := g.done[head&g.cqMask]
			r := p.runs[g.calls[c.user]]
			keys := p.keys[r.first:r.last]
			if _, size := s.extent(keys); int(c.result) != size && err == nil {
				// A failed or partial read: again, for the rest or for the reason.
				err = s.readRun(keys, dst, &g.buf)
			}
			g.free = append(g.free, uint32(c.user))
			flying--
		}
		atomic.StoreUint32(g.cqHead, head)
	}
	runtime.KeepAlive(dst)
	if broken {
		return errors.Join(err, g.close())
	}
	s.rings.give(g)
	return err
}

// rings are the idle rings of a store: each read takes one, so there are as
// many as reads were ever under way at once.
type rings struct {
	mu   sync.Mutex
	idle []*uring
}

// start fails when the system has no io_uring, or forbids it.
func (r *rings) start() error {
	g, err := newRing()
	if err == nil {
		r.give(g)
	}
	return err
}

func (r *rings) take() (*uring, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 {
		g := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return g, nil
	}
	return newRing()
}

func (r *rings) give(g *uring) {
	r.mu.Lock()
	r.idle = append(r.idle, g)
	r.mu.Unlock()
}

func (r *rings) close() error {
	var err error
	for _, g := range r.idle {
		err = errors.Join(err, g.close())
	}
	r.idle = nil
	return err
}

// adviseRandom turns read-ahead off: what is near a row is not needed next.
// That the file system ignores it is no error.
func adviseRandom(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM) }
