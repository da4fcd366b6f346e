package membership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a store that stops to answer: calls end with their contexts.
type silent struct {
	Store
	hangs  atomic.Bool
	renews atomic.Bool // a call of Renew hangs
}

func (s *silent) answer(ctx context.Context) error {
	if s.hangs.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (s *silent) Renew(ctx context.Context, l Lease) error {
	s.renews.Store(s.hangs.Load())
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

// A node that leaves while its lease is being renewed has nothing to say of that.
func TestLeavesQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemStore()
		defer memory.Close()
		store, log := &silent{Store: memory}, new(strings.Builder)
		m, err := enter(t, within(t), store, Config{Cluster: "c", Info: Info{Node: "a", Home: "h"}, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		store.hangs.Store(true)
		for !store.renews.Load() {
			time.Sleep(m.cfg.TTL / 64) // of the bubble's time, until it renews
		}
		left := make(chan error, 1)
		go func() { left <- m.Leave(context.Background()) }()
		synctest.Wait()
		store.hangs.Store(false)
		if err := <-left; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if strings.Contains(log.String(), "could not be renewed") {
			t.Error(log)
		}
	})
}
