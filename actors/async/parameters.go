package async

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/pool"
)

// answer is what who asks is told, by a channel that has room for one.
type answer[T any] struct {
	v   T
	err error
}

// What the actor receives.
type (
	dealing struct {
		ctx     context.Context
		trainer string
		reply   chan answer[int64]
	}
	reading struct {
		ctx     context.Context
		trainer string
		step    int64
		reply   chan answer[*Version]
	}
	left struct {
		of     func(trainer string) bool
		barred bool // they get nothing any more
	}
	stopping struct{}
	closing  struct{ done chan struct{} }
	stepped  struct { // a job's result
		task *task
		next *snapshot
		err  error
	}
)

// parameters is the actor that owns the parameters.
type parameters struct {
	owner    *Owner
	self     *actor.PID
	root     *actor.RootContext
	model    Model
	schedule *schedule
	now      *snapshot
	busy     bool // a step is being applied
	failed   error
	deals    []*dealing
	reads    []*reading
	barred   []func(trainer string) bool

	mu   sync.Mutex // snapshots are released from elsewhere
	free []*snapshot
}

// Receive implements actor.Actor.
func (a *parameters) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		a.self, a.root = c.Self(), c.ActorSystem().Root
	case *dealing:
		a.deals = append(a.deals, m)
	case *reading:
		a.reads = append(a.reads, m)
	case *pendingPush:
		if err := a.schedule.arrive(m); err != nil {
			m.reply <- answer[struct{}]{err: err}
		}
	case *left:
		if m.barred {
			a.barred = append(a.barred, m.of)
		}
		a.schedule.gone(m.of)
	case *stopping:
		a.schedule.stop()
	case *closing:
		if a.failed == nil {
			a.failed = ErrClosed
		}
		close(m.done)
	case *stepped:
		a.stepped(m)
	default:
		return
	}
	a.proceed()
}

// proceed answers who waits, as far as that can be done now.
func (a *parameters) proceed() {
	if !a.busy && a.failed == nil {
		if t := a.schedule.due(); t != nil {
			a.busy = true
			a.owner.jobs.Go(func() { a.root.Send(a.self, a.step(t)) })
		}
	}
	if !a.busy && a.failed == nil && a.schedule.over() {
		a.failed = ErrOver
		a.owner.report(nil, ErrOver)
	}
	deals, reads := a.deals, a.reads
	a.deals, a.reads = a.deals[:0:0], a.reads[:0:0]
	for _, m := range deals {
		if m.ctx.Err() == nil && !a.deal(m) {
			a.deals = append(a.deals, m)
		}
	}
	for _, m := range reads {
		if m.ctx.Err() == nil && !a.read(m) {
			a.reads = append(a.reads, m)
		}
	}
}

// isBarred reports whether a trainer was said not to come back.
func (a *parameters) isBarred(trainer string) bool {
	return slices.ContainsFunc(a.barred, func(of func(string) bool) bool { return of(trainer) })
}

// deal answers m, if that can be done now.
func (a *parameters) deal(m *dealing) bool {
	step, ok, err := int64(0), true, a.failed
	if err == nil && a.isBarred(m.trainer) {
		err = ErrOver
	} else if err == nil {
		step, ok = a.schedule.deal(m.trainer)
	}
	if ok {
		m.reply <- answer[int64]{step, err}
	}
	return ok
}

// read answers m, if that can be done now. While a step is applied nobody reads:
// what comes after it is fresher.
func (a *parameters) read(m *reading) bool {
	ok, err := false, a.failed
	switch {
	case err != nil:
	case m.step >= a.schedule.end || a.isBarred(m.trainer):
		err = ErrOver
	case a.busy:
		return false
	default:
		ok, err = a.schedule.begin(m.trainer, m.step)
	}
	if err != nil {
		m.reply <- answer[*Version]{err: err}
		return true
	}
	if !ok {
		return false
	}
	s := a.now
	a.mu.Lock()
	s.readers++
	a.mu.Unlock()
	m.reply <- answer[*Version]{v: &Version{Number: a.schedule.version, Params: s.params, release: func() { a.release(s) }}}
	return true
}

// step applies a gradient. It runs beside the actor, which waits for it.
func (a *parameters) step(t *task) *stepped {
	m := &stepped{task: t}
	m.err = pool.Recovered(func() error {
		if n := len(a.model.Params()); len(t.push.Data) != n {
			return fmt.Errorf("async: a gradient of %d values, for %d parameters", len(t.push.Data), n)
		}
		if err := a.model.Apply(&t.push.Push); err != nil {
			return err
		}
		m.next = a.copy()
		return nil
	})
	return m
}

func (a *parameters) stepped(m *stepped) {
	a.busy = false
	if m.err != nil {
		a.failed = fmt.Errorf("async: step %d: %w", m.task.step, m.err)
		a.owner.report(nil, a.failed)
		m.task.push.reply <- answer[struct{}]{err: a.failed}
		return
	}
	stale := a.schedule.apply(m.task)
	a.publish(m.next)
	p := m.task.push
	a.owner.report(&Step{Step: p.Step, Version: a.schedule.version, Stale: stale, Trainer: p.trainer, Stats: p.Stats}, nil)
	p.reply <- answer[struct{}]{}
}
