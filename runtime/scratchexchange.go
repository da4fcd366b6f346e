package runtime

import (
	"context"

	"github.com/gnnactor/gnnactor/compute"
)

// scratchExchange is an Exchange between the pieces here, which are computed one after the other, and others, whose rows lie in files until they are taken.
type scratchExchange struct {
	roundsOf
	files *compute.FileExchange
	here  func(piece int) bool
}

func (s *scratchExchange) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	if err := s.files.Send(ctx, round, from, to, rows); err != nil || s.here(to) {
		return err
	}
	return s.Offer(ctx, round, from, to, len(rows), func(rows []float32) error { return s.files.Receive(ctx, round, from, to, rows) })
}

func (s *scratchExchange) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	if s.here(from) {
		return s.files.Receive(ctx, round, from, to, rows)
	}
	return s.roundsOf.Receive(ctx, round, from, to, rows)
}
