package features

// The dynamic cache is S3-FIFO (Yang et al., SOSP 2023) over slots: rows that no
// batch needs any more enter a small queue; those that were used again while they
// were in it go on to the main queue, the others leave and are remembered as
// ghosts; a ghost that comes back enters the main queue at once. The main queue
// gives its rows another round for each time they were used. There is no table
// of its own: the slab's place of a node is its slot, or its number among the
// ghosts.

// The queue that a slot is in.
const (
	inSmall = iota + 1
	inMain
)

const (
	maxFreq   = 3
	returning = maxFreq + 1 // freq of a row that was a ghost, until it enters a queue
)

// queues are the two FIFOs.
type queues struct {
	capacity    int
	small, main ring
	ghosts      uint32 // number of the last ghost, in [1, ghostBit)
}

// resize makes room for capacity rows; no more are in the queues.
func (q *queues) resize(capacity int) {
	q.capacity = capacity
	q.small.resize(capacity)
	q.main.resize(capacity)
}

// SetCache changes how many rows, of those that no batch needs any more, stay for
// later ones. They take slots that batches do not need: where these do, rows leave.
func (s *Slab) SetCache(rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rows = max(rows, 0); rows == s.cache.capacity {
		return
	}
	for s.cache.small.n+s.cache.main.n > rows && s.evict() {
	}
	s.cache.resize(rows)
}

// ring is a FIFO of bounded size.
type ring struct {
	p       []uint32
	head, n int
}

// resize makes room for size slots, of which r holds no more.
func (r *ring) resize(size int) {
	p := make([]uint32, size)
	n := copy(p, r.p[r.head:min(r.head+r.n, len(r.p))])
	copy(p[n:], r.p[:r.n-n])
	r.p, r.head = p, 0
}

func (r *ring) push(p uint32) {
	i := r.head + r.n
	if i >= len(r.p) {
		i -= len(r.p)
	}
	r.p[i] = p
	r.n++
}

func (r *ring) pop() uint32 {
	p := r.p[r.head]
	if r.head++; r.head == len(r.p) {
		r.head = 0
	}
	r.n--
	return p
}

// remembered returns the freq that a slot for node u starts with.
func (s *Slab) remembered(u uint32) uint8 {
	if p := s.place[u]; p&ghostBit != 0 && int((s.cache.ghosts-p)&(ghostBit-1)) <= s.cache.capacity {
		return returning
	}
	return 0
}

// insert puts a row that nothing refers to into the cache.
func (s *Slab) insert(p uint32, x *slot) {
	q := &s.cache
	if q.small.n+q.main.n == q.capacity {
		s.evict()
	}
	if x.freq == returning {
		x.queue, x.freq = inMain, 0
		q.main.push(p)
		return
	}
	x.queue, x.freq = inSmall, 0
	q.small.push(p)
}

// evict takes a row out of the cache, and reports whether there was one. A row
// that a batch reads keeps its slot.
func (s *Slab) evict() bool {
	q := &s.cache
	for q.small.n+q.main.n > 0 {
		if q.main.n == 0 || q.small.n*10 > q.capacity {
			p := q.small.pop()
			x := &s.slots[p]
			if x.freq > 0 {
				x.queue, x.freq = inMain, 0
				q.main.push(p)
				continue
			}
			s.leave(p, x, true)
			return true
		}
		p := q.main.pop()
		x := &s.slots[p]
		if x.freq > 0 {
			x.freq--
			q.main.push(p)
			continue
		}
		s.leave(p, x, false)
		return true
	}
	return false
}

func (s *Slab) leave(p uint32, x *slot, ghost bool) {
	x.queue = 0
	if x.pins > 0 || x.last != 0 {
		return
	}
	at := s.place[x.node] == p+1
	s.vacate(p, x)
	if ghost && at {
		s.cache.ghosts = max(1, (s.cache.ghosts+1)&(ghostBit-1))
		s.place[x.node] = ghostBit | s.cache.ghosts
	}
}
