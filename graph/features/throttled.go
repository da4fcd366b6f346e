package features

import (
	"context"
	"sync"
	"time"
)

// throttled delays the reads of another store.
type throttled struct {
	reads
	Store
	t        Throttle
	rowBytes float64

	mu   sync.Mutex
	idle time.Time // when the link has sent what it was asked for
}

// Throttled returns a store that reads from s as if over a link with the given
// bandwidth and latency: the transfers follow each other in the order of the
// calls to Read, and one that starts at time t with b bytes arrives at
// t + b/Bandwidth + Latency, or when s is done, if that is later. It owns s.
func Throttled(s Store, t Throttle) Store {
	l := s.Layout()
	return &throttled{Store: s, t: t, rowBytes: float64(l.RowBytes())}
}

func (s *throttled) Read(ctx context.Context, r Request, done func(error)) {
	arrival := s.transfer(len(r.IDs))
	s.start(func() error {
		if err := Read(ctx, s.Store, r); err != nil {
			return err
		}
		return waitUntil(ctx, arrival)
	}, done)
}

// transfer books the link for rows and returns when they arrive.
func (s *throttled) transfer(rows int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.idle.Before(now) {
		s.idle = now
	}
	if s.t.Bandwidth > 0 {
		s.idle = s.idle.Add(time.Duration(float64(rows) * s.rowBytes / s.t.Bandwidth * float64(time.Second)))
	}
	return s.idle.Add(s.t.Latency)
}

func waitUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *throttled) Close() error {
	s.wg.Wait()
	return s.Store.Close()
}
