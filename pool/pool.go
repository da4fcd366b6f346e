// Package pool runs short parallel loops and long background jobs on a fixed
// set of workers.
//
// A Pool of n workers owns n-1 goroutines; the caller of For is the n-th. What
// a chunk computes must not depend on the worker that runs it: chunks are cut
// from the problem's shape alone, so results do not depend on n.
//
// Each worker begins with a range of the chunks that is its own in every loop on all
// workers, and then helps the others with theirs: what one loop left in a processor's
// cache is mostly there for the next loop over the same rows.
//
// # Waiting
//
// To wake a goroutine that is parked takes as long as a small product, and longer
// where its processor has gone to sleep. So a worker that has run out of chunks,
// and a caller whose last chunk is with a worker, look again before they park:
// for patience, and for as long as they have just worked, up to maxPatience. A
// pool without work therefore burns nothing, and one with work hardly more than
// it works. Who looks lets others run: at once if a background job waits for a
// processor, and every breath for goroutines that the pool does not know.
package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/internal/fault"
)

// patience is how long a goroutine looks at the least for work, or for the end of
// it, before it parks: some times what waking takes, which is 80 µs at the least on
// a virtual machine whose other processor has gone to sleep. maxPatience is longer
// than what lies between two batches.
const (
	patience    = 200 * time.Microsecond
	maxPatience = 3 * time.Millisecond
)

// breath is for how long it looks before it lets other goroutines run.
const breath = 20 * time.Microsecond

// Pool is a set of workers. Its methods may be called from any goroutine.
type Pool struct {
	size int
	spin bool // more than one goroutine can run at a time
	work chan *loop
	wg   sync.WaitGroup // workers
	jobs sync.WaitGroup // background jobs
	due  atomic.Int64   // those of them that have not begun
	free sync.Pool
}

// loop is one call of For. Workers may find it in the queue after it is over,
// so it is reused only when nobody refers to it any more.
type loop struct {
	spans  []span
	few    [8]span      // room for them, mostly
	refs   atomic.Int64 // the caller and the queue's entries
	f      func(worker, chunk int)
	open   atomic.Int64   // chunks that are not done
	left   sync.WaitGroup // the same, to park on
	panics atomic.Pointer[PanicError]
}

// span is a range of chunks, of which those from next on are to be run.
type span struct {
	next atomic.Int64
	end  int64
	_    [48]byte // a cache line each
}

// PanicError carries a panic out of a worker, with its stack.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value that was panicked with, if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// New starts a pool of size workers; size < 1 is taken as 1. Close ends it.
func New(size int) *Pool {
	size = max(size, 1)
	p := &Pool{size: size, spin: min(runtime.GOMAXPROCS(0), runtime.NumCPU()) > 1, work: make(chan *loop, size)}
	p.free.New = func() any {
		l := new(loop)
		if l.spans = l.few[:]; size > len(l.few) {
			l.spans = make([]span, size)
		}
		return l
	}
	for id := 1; id < size; id++ {
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			debug.SetPanicOnFault(true) // a fault in a mapped file is the caller's to handle
			worked := time.Duration(0)  // since it last parked
			for l := range p.work {
				began := time.Now()
				l.run(id)
				p.drop(l)
				worked += time.Since(began)
				if !p.await(worked, func() bool { return len(p.work) > 0 }) {
					worked = 0
				}
			}
		}()
	}
	return p
}

// Size returns the number of workers, the caller of For included.
func (p *Pool) Size() int { return p.size }

// await returns when ready does, and true, or when who has worked for so long has
// looked long enough, or when a background job waits that only parking makes room
// for: one in the queue of another processor.
func (p *Pool) await(worked time.Duration, ready func() bool) bool {
	if !p.spin || ready() {
		return p.spin
	}
	worked = min(max(worked, patience), maxPatience)
	began := time.Now()
	last := began // when others could run
	for {
		for range 8 {
			if ready() {
				return true
			}
		}
		now := time.Now()
		due := p.due.Load() > 0
		if due || now.Sub(last) >= breath {
			runtime.Gosched()
			last = time.Now()
			began, now = began.Add(last.Sub(now)), last // others' time is not looking
			if due && p.due.Load() > 0 {
				return false
			}
		}
		if now.Sub(began) >= worked {
			return false
		}
	}
}

// offer puts l in the queue, and takes out what is over to make room: a worker
// that was kept from its processor for some loops would else find nothing but
// those, and park beside the one that runs. It reports false where every worker
// has work waiting.
func (p *Pool) offer(l *loop) bool {
	l.refs.Add(1)
	for range cap(p.work) + 1 {
		select {
		case p.work <- l:
			return true
		default:
		}
		select {
		case old := <-p.work:
			if !old.taken() {
				select {
				case p.work <- old:
					continue
				default: // others took the room; who called For has it all the same
				}
			}
			p.drop(old)
		default:
		}
	}
	l.refs.Add(-1)
	return false
}

func (p *Pool) drop(l *loop) {
	if l.refs.Add(-1) == 0 {
		l.f = nil
		p.free.Put(l)
	}
}

// deal cuts chunks into n ranges.
func (l *loop) deal(n, chunks int) {
	l.spans = l.spans[:n]
	for i := range l.spans {
		l.spans[i].next.Store(int64(chunks * i / n))
		l.spans[i].end = int64(chunks * (i + 1) / n)
	}
}

// taken reports whether no chunk is left to begin.
func (l *loop) taken() bool {
	for i := range l.spans {
		if s := &l.spans[i]; s.next.Load() < s.end {
			return false
		}
	}
	return true
}

// run runs chunks as worker id until all are taken: its own, then the others'. The
// first range is the caller's, who is worker 0.
func (l *loop) run(id int) {
	n := len(l.spans)
	own := 0
	if id > 0 {
		own = 1 + (id-1)%(n-1)
	}
	for i := range n {
		s := &l.spans[(own+i)%n]
		for s.next.Load() < s.end {
			if c := s.next.Add(1) - 1; c < s.end {
				l.call(id, int(c))
			}
		}
	}
}

// call runs one chunk; after a panic chunks are only counted.
func (l *loop) call(id, chunk int) {
	defer func() {
		if r := recover(); r != nil {
			pe, ok := r.(*PanicError)
			if !ok {
				pe = &PanicError{Value: r, Stack: debug.Stack()}
			}
			l.panics.CompareAndSwap(nil, pe)
		}
		l.left.Done()
		l.open.Add(-1)
	}()
	if l.panics.Load() == nil {
		l.f(id, chunk)
	}
}

// For calls f(worker, chunk) once for every chunk in [0, chunks) and returns
// when all are done. worker is below Size and unique among the goroutines of
// this call, so it may index scratch memory that the call owns. A panic in f
// is passed on to the caller, as a *PanicError unless the caller alone ran f.
func (p *Pool) For(chunks int, f func(worker, chunk int)) { p.ForOn(p.size, chunks, f) }

// ForOn is For with at most n goroutines, the caller's among them. Any of the pool's
// workers may be one: worker is below Size, not below n.
func (p *Pool) ForOn(n, chunks int, f func(worker, chunk int)) {
	if chunks <= 0 {
		return
	}
	n = min(n, p.size, chunks)
	if n <= 1 {
		for c := range chunks {
			f(0, c)
		}
		return
	}
	l := p.free.Get().(*loop)
	l.panics.Store(nil)
	l.deal(n, chunks)
	l.f = f
	l.open.Store(int64(chunks))
	l.left.Add(chunks)
	l.refs.Store(1)
	for range n - 1 {
		if !p.offer(l) {
			break
		}
	}
	began := time.Now()
	l.run(0)
	p.await(time.Since(began), func() bool { return l.open.Load() == 0 })
	l.left.Wait() // for chunks that others are running: never for a queue
	pe := l.panics.Load()
	p.drop(l)
	if pe != nil {
		panic(pe)
	}
}

// Go runs f on a goroutine of its own that Close waits for, and then calls done
// there with what Recovered(f) returns. done must not panic. It is for work of
// milliseconds and more (sampling or computing a batch); whoever calls bounds how
// many run at once.
func (p *Pool) Go(f func() error, done func(error)) {
	p.due.Add(1)
	p.jobs.Go(func() {
		p.due.Add(-1)
		done(Recovered(f))
	})
}

// Recovered calls f under fault.Guard and returns its error, or its panic as a
// *PanicError: for goroutines whose panics nobody else could recover.
func Recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			pe, ok := r.(*PanicError)
			if !ok {
				pe = &PanicError{Value: r, Stack: debug.Stack()}
			}
			err = pe
		}
	}()
	return fault.Guard(f)
}

// Close waits for background jobs and ends the workers. For and Go must not
// be called after it.
func (p *Pool) Close() {
	p.jobs.Wait()
	close(p.work)
	p.wg.Wait()
}
