package trainers

import (
	"context"
	"errors"
	"fmt"

	"github.com/gnnactor/gnnactor/actors"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/sampling"
	"github.com/gnnactor/gnnactor/training"
)

// team is this node's part in one run. It implements training.Team.
type team struct {
	t       *Trainers
	auditor *auditor
	ssp     *service
}

// Node implements training.Session.
func (t *Trainers) Node() string { return t.o.Plane.Node() }

// Begin implements training.Session.
func (t *Trainers) Begin(a training.Audit, lineage []training.Run) training.Team {
	t.adopt(lineage)
	o := auditOptions{Member: t.o.Member, Plane: t.o.Plane, Identity: a.Identity, Seed: a.Seed, Rate: a.Rate, Samplers: t.o.Samplers, Expel: t.o.Member.Expel, Logger: t.o.Logger}
	if b := new(sampling.Batch); a.Draw != nil {
		o.Again = func(id sampling.ID) (sampling.Digest, error) {
			if err := a.Draw(b, id); err != nil {
				return 0, err
			}
			return b.Digest(), nil
		}
	}
	t.team = &team{t, startAuditor(o), newService(t.o.Plane)}
	return t.team
}

// Close implements training.Team.
func (m *team) Close() {
	m.auditor.Close()
	m.ssp.Close()
	m.t.team = nil
}

// Rendezvous implements training.Team.
func (m *team) Rendezvous(ctx context.Context, p training.Position) (training.Group, error) {
	share, err := m.t.Rendezvous(ctx, p)
	if errors.Is(err, membership.ErrFenced) {
		err = fmt.Errorf("%w: %w", training.ErrFenced, err)
	}
	if err != nil {
		return nil, err
	}
	m.auditor.Group(share.group.Members(), share.Leave)
	m.t.tasks.Go(func() {
		select {
		case <-share.Done():
			m.ssp.end(uint64(share.id)) // who waits for an epoch hears at once that there is none
		case <-m.t.life.Done():
		}
	})
	return share, nil
}

// Lineage implements training.Team.
func (m *team) Lineage(next int64) []training.Run { return m.t.runsTo(next) }

// Sampled implements training.Team.
func (m *team) Sampled(b *sampling.Batch, node string) { m.auditor.Sampled(b, node) }

// Audited implements training.Team.
func (m *team) Audited(ctx context.Context) error { return m.auditor.Settle(ctx) }

// Verdict implements training.Team.
func (m *team) Verdict() (training.Verdict, int64) {
	v, known := m.auditor.Verdict()
	if v == nil {
		return nil, known
	}
	return v, known
}

// WentBack implements training.Team.
func (m *team) WentBack(v training.Verdict, lineage []training.Run) {
	m.t.adopt(lineage)
	if v, ok := v.(*Verdict); ok {
		m.auditor.WentBack(v)
	}
}

// Settle implements training.Group.
func (s *Share) Settle(ctx context.Context, step int64) error {
	if s.settled == step+1 {
		return nil
	}
	goes, end := training.Until(ctx, s.Over(), training.ErrGroup)
	defer end()
	settle, end := training.Until(goes, s.Done(), training.ErrGroup)
	defer end()
	err := s.team.Audited(settle)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", actors.ErrReduce, err)
	}
	if err == nil {
		s.settled = step + 1
	}
	return err
}
