package membership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a store that stops to answer: calls end with their contexts.
type silent struct {
	Store
	hangs atomic.Bool
}

func (s *silent) answer(ctx context.Context) error {
	if s.hangs.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *silent) Renew(ctx context.Context, l Lease) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Renew(ctx, l)
}

func (s *silent) Revoke(ctx context.Context, l Lease) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Revoke(ctx, l)
}

// A node leaves a store that does not answer, whatever its caller's patience.
func TestLeaveIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemStore()
		defer memory.Close()
		store := &silent{Store: memory}
		m, err := enter(t, within(t), store, Config{Cluster: "c", Info: Info{Node: "a", Home: "h"}})
		if err != nil {
			t.Fatal(err)
		}
		store.hangs.Store(true)
		began := time.Now()
		err = m.Leave(context.Background())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left a store that does not answer: %v", err)
		}
		if took := time.Since(began); took > leaving {
			t.Errorf("left after %v of the bubble's time, and not after %v", took, leaving)
		}
	})
}
