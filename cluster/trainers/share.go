package trainers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// Share is this node's part in a group. It implements training.Group.
type Share struct {
	t     *Trainers
	team  *team // nil: of nobody's run, as in tests
	group *reduceGroup
	id    int64
	began bool // a step was made
	over  <-chan struct{}

	settled int64 // 1 + the newest step whose audits came back
	epochs  int   // that this node led or followed
}

// Over implements training.Reducing: it is closed when this node leaves the group, too.
func (s *Share) Over() <-chan struct{} { return s.over }

// Leave implements training.Group.
func (s *Share) Leave() {
	s.group.Close()
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.t.group == s.group {
		s.t.over()
	}
}

// The first numbers of a group's sums are for meeting; step s is number
// firstStep + s.
const firstStep = 2

// round tells everybody mine and returns what everybody told.
func (s *Share) round(ctx context.Context, number int64, mine hello) ([]hello, error) {
	b, err := mine.encode()
	if err != nil {
		return nil, err
	}
	n := len(s.group.members)
	parts, meta := make([][]float32, n), make([][]byte, n)
	parts[s.group.self], meta[s.group.self] = []float32{}, b
	metas, err := s.group.AllReduce(ctx, number, []float32{}, parts, meta)
	if err != nil {
		return nil, err
	}
	all := make([]hello, n)
	for i, b := range metas {
		if all[i], err = decodeHello(b); err != nil {
			return nil, fmt.Errorf("trainers: what trainer %d says: %w", i, err)
		}
	}
	return all, nil
}

// sync brings all members to the furthest one's state. serve: that is this node's,
// as far as it can tell before it has heard the others.
func (s *Share) sync(ctx context.Context, state *training.Position, verdict int64, serve bool) error {
	lineage := s.t.cut(state.Step)
	mine := hello{Identity: state.Identity, Step: state.Step, Mark: state.Mark, First: training.FirstOf(lineage, state.Step), Runs: hashOf(lineage), Verdict: verdict}
	if serve {
		if err := s.t.offer(&mine, lineage, state); err != nil {
			return err
		}
	}
	all, err := s.round(ctx, 0, mine)
	if err != nil {
		return err
	}
	s.t.step(membership.Began{ID: s.id}) // all are in
	if err := sameRun(all, state.Identity, s.group.Members()); err != nil {
		return err
	}
	first, behind := 0, false
	for i, h := range all {
		if h.Verdict != verdict { // one of the two hears of it soon
			return fmt.Errorf("trainers: trainer %d knows of verdict %d of the audit, and this node of %d", i, h.Verdict, verdict)
		}
		if h.Step == state.Step && h.Mark != state.Mark {
			return fmt.Errorf("%w: after step %d this node's lineage is %s, trainer %d's is %s; a machine's memory or its kernels may be faulty, or checkpoints of two runs were mixed", ErrDiverged, h.Step, state.Mark, i, h.Mark)
		}
		if f := all[first]; h.Step > f.Step || h.Step == f.Step && h.First < f.First {
			first = i
		}
		behind = behind || h.Step != all[0].Step || h.First != all[0].First || h.Runs != all[0].Runs
	}
	offered := all[first].Ticket.Size > 0
	mine = hello{Step: state.Step}
	if behind && !offered && first == s.group.self {
		if err := s.t.offer(&mine, lineage, state); err != nil {
			return err
		}
	}
	if state.Begin != nil {
		if err := state.Begin(s, all[first].Step); err != nil {
			return fmt.Errorf("%w: begin: %w", errState, err)
		}
	}
	if !behind {
		return nil
	}
	told := all
	if !offered {
		if told, err = s.round(ctx, 1, mine); err != nil {
			return err
		}
		if told[first].Step != all[first].Step {
			return fmt.Errorf("trainers: trainer %d is at step %d, and at %d", first, all[first].Step, told[first].Step)
		}
	}
	if state.Step < told[first].Step {
		ticket := told[first].Ticket
		if ticket.Size > maxState {
			return fmt.Errorf("%w: %d bytes", errState, ticket.Size)
		}
		b, err := s.t.o.Plane.Fetch(ctx, ticket, nil)
		if err != nil {
			return err
		}
		step, err := state.Restore(b)
		if err != nil {
			return fmt.Errorf("%w: restore: %w", errState, err)
		}
		if step != told[first].Step {
			return fmt.Errorf("%w: trainer %d says that it is at step %d, and its state is of step %d", errState, first, told[first].Step, step)
		}
		state.Step = told[first].Step
	}
	s.t.adopt(told[first].Lineage)
	return nil
}

// offer lets the others of a group have this node's state, until they have made
// a step, for which all must have it, or the group is over.
func (t *Trainers) offer(h *hello, lineage []training.Run, state *training.Position) error {
	b, err := state.Save()
	if err != nil {
		return fmt.Errorf("%w: save: %w", errState, err)
	}
	t.withdraw()
	t.mu.Lock()
	defer t.mu.Unlock()
	h.Lineage = lineage
	h.Ticket, t.offered = t.o.Plane.Offer("state", [][]byte{b}, nil)
	return nil
}

func (t *Trainers) withdraw() {
	t.mu.Lock()
	f := t.offered
	t.offered = nil
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

// maxState bounds a state that is accepted from a peer.
const maxState = 64 << 30

// Mine implements training.Reducing.
func (s *Share) Mine(m, of int) bool {
	from, to := Deal(of, len(s.group.members), s.group.self)
	return m >= from && m < to
}

// AllReduce implements actors.Reducer.
func (s *Share) AllReduce(ctx context.Context, step int64, dst []float32, parts [][]float32, meta [][]byte) ([][]byte, error) {
	metas, err := s.group.AllReduce(ctx, firstStep+step, dst, parts, meta)
	if err == nil && !s.t.o.Member.MayStep() {
		s.group.Close()
		err = fmt.Errorf("%w: step %d was made after this node's time", ErrRegroup, step)
	}
	if err != nil {
		return nil, errors.Join(err, s.t.failed(ctx, s.id))
	}
	from, to := Deal(len(parts), len(s.group.members), s.group.self)
	pause := s.t.record(step, s.id, to-from)
	if !s.began {
		s.t.withdraw() // all have it: they made a step
	}
	s.first(step, pause)
	s.t.between(s.id, true)
	return metas, nil
}

// Gather implements actors.Reducer.
func (s *Share) Gather(ctx context.Context, number int64, mine []byte) ([][]byte, error) {
	all, err := s.group.Gather(ctx, number, mine)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, s.t.failed(ctx, s.id))
	}
	return all, err
}

// between is called when a group has made a step, and whether more are to come. It
// ends the group if that was to make no other.
func (t *Trainers) between(id int64, more bool) { t.step(membership.Made{ID: id, More: more}) }

// first tells of the group's first step.
func (s *Share) first(step int64, pause time.Duration) {
	if s.began {
		return
	}
	s.began = true
	if pause > 0 {
		s.t.mu.Lock()
		p := &s.t.pauses
		p.Count, p.Newest, p.Most = p.Count+1, pause, max(p.Most, pause)
		s.t.mu.Unlock()
	}
	s.t.o.Logger.Info("the group made its first step", "group", s.id, "step", step, "after", pause)
}
