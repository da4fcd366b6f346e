package membership

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// MemStore is a Store inside one process: for nodes that share it, as in tests
// and in programs that run several nodes. It keeps all changes.
type MemStore struct {
	mu       sync.Mutex
	revision int64
	entries  map[string]Entry
	leases   map[Lease]*memLease
	owner    map[string]Lease
	log      []Entry
	last     Lease
	changed  chan struct{}
	closed   bool
}

type memLease struct {
	ttl   time.Duration
	timer *time.Timer
}

// NewMemStore returns an empty store. The caller must call Close.
func NewMemStore() *MemStore {
	return &MemStore{entries: map[string]Entry{}, leases: map[Lease]*memLease{}, owner: map[string]Lease{}, changed: make(chan struct{})}
}

// Close ends all leases' timers.
func (s *MemStore) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.leases {
		l.timer.Stop()
	}
}

func (s *MemStore) Grant(_ context.Context, ttl time.Duration) (Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := s.last
	s.leases[id] = &memLease{ttl, time.AfterFunc(ttl, func() { s.end(id) })}
	return id, nil
}

func (s *MemStore) Renew(_ context.Context, id Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil || !l.timer.Stop() {
		return ErrLeaseGone
	}
	l.timer.Reset(l.ttl)
	return nil
}

func (s *MemStore) Revoke(_ context.Context, id Lease) error {
	if !s.end(id) {
		return ErrLeaseGone
	}
	return nil
}

func (s *MemStore) end(id Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil || s.closed {
		return l != nil
	}
	l.timer.Stop()
	delete(s.leases, id)
	var gone []Change
	for key, of := range s.owner {
		if of == id {
			gone = append(gone, Change{Key: key})
		}
	}
	s.apply(gone)
	return true
}

// apply makes changes at a new revision; the lock is held.
func (s *MemStore) apply(do []Change) {
	s.revision++
	for _, c := range do {
		e, ok := s.entries[c.Key]
		delete(s.owner, c.Key)
		if c.Value == nil {
			if ok {
				delete(s.entries, c.Key)
				s.log = append(s.log, Entry{Key: c.Key, Modified: s.revision, Deleted: true})
			}
			continue
		}
		if !ok {
			e = Entry{Key: c.Key, Created: s.revision}
		}
		e.Value, e.Modified = slices.Clone(c.Value), s.revision
		s.entries[c.Key] = e
		s.log = append(s.log, e)
		if c.Lease != 0 {
			s.owner[c.Key] = c.Lease
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *MemStore) Commit(_ context.Context, ifs []If, do []Change) (bool, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range ifs {
		if e := s.entries[i.Key]; e.Created != i.Created || i.Modified != 0 && e.Modified != i.Modified {
			return false, s.revision, nil
		}
	}
	for _, c := range do {
		if c.Lease != 0 && s.leases[c.Lease] == nil {
			return false, s.revision, ErrLeaseGone
		}
	}
	s.apply(do)
	return true, s.revision, nil
}

func (s *MemStore) List(_ context.Context, prefix string) ([]Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Entry
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return all, s.revision, nil
}

func (s *MemStore) Watch(ctx context.Context, prefix string, after int64, f func([]Entry, int64)) error {
	for {
		s.mu.Lock()
		revision, changed := s.revision, s.changed
		var news []Entry
		for i := len(s.log) - 1; i >= 0 && s.log[i].Modified > after; i-- {
			if strings.HasPrefix(s.log[i].Key, prefix) {
				news = append(news, s.log[i])
			}
		}
		s.mu.Unlock()
		slices.Reverse(news)
		if len(news) > 0 {
			f(news, revision)
		}
		after = revision
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
