package membership

import (
	"context"
	"time"
)

// patient is a Store whose calls end after a limit, whatever the caller's context
// says: a server that stands still answers never, and the call
// that follows goes by way of another one. Whether a write that ended so was
// made is unknown.
type patient struct {
	Store
	limit time.Duration
}

func (s *patient) Commit(ctx context.Context, ifs []If, do []Change) (bool, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Commit(ctx, ifs, do)
}

func (s *patient) List(ctx context.Context, prefix string) ([]Entry, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.List(ctx, prefix)
}

func (s *patient) Renew(ctx context.Context, l Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Renew(ctx, l)
}

func (s *patient) Revoke(ctx context.Context, l Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.Store.Revoke(ctx, l)
}
