package async

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/internal/pool"
)

// Options of an Owner.
type Options struct {
	System *actor.ActorSystem
	Model  Model
	Bound  int
	// Steps [First, End) are made: those of an epoch that are not applied yet.
	First, End int64
}

// Owner has the parameters of a run for the steps of an epoch. It implements
// Parameters for the trainers of its process.
type Owner struct {
	system *actor.ActorSystem
	pid    *actor.PID
	jobs   sync.WaitGroup
	once   sync.Once
	closed chan struct{}
	gate   sync.RWMutex // held while something is sent, and to close

	mu     sync.Mutex
	events []Applied
	err    error // why it ended: ErrOver, or what went wrong
	news   chan struct{}
}

// NewOwner starts the actor. Close must be called.
func NewOwner(o Options) *Owner {
	w := &Owner{system: o.System, closed: make(chan struct{}), news: make(chan struct{}, 1)}
	w.pid = o.System.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		a := &parameters{owner: w, model: o.Model, schedule: newSchedule(o.First, o.End, o.Bound)}
		a.publish(a.copy())
		return a
	}))
	return w
}

// Close ends the actor and waits for what it does. Asks that wait get ErrClosed.
func (w *Owner) Close() {
	w.once.Do(func() {
		w.gate.Lock()
		close(w.closed)
		w.gate.Unlock()
		flush := func() {
			m := &closing{make(chan struct{})}
			w.system.Root.Send(w.pid, m)
			<-m.done
		}
		flush() // it begins no step any more
		w.jobs.Wait()
		flush() // and has heard of the last one
		// The error is the future's time-out; an actor that never blocks stops at once.
		_ = w.system.Root.StopFuture(w.pid).Wait()
	})
}

// send passes m on, unless the owner is closed: nobody would get it.
func (w *Owner) send(m any) {
	w.gate.RLock()
	defer w.gate.RUnlock()
	select {
	case <-w.closed:
	default:
		w.system.Root.Send(w.pid, m)
	}
}

// Stop lets no step begin but those before one that has. Next returns ErrOver
// when they are applied.
func (w *Owner) Stop() { w.send(&stopping{}) }

// Gone tells that trainers do not come back: what they were dealt is dealt again,
// and not to them. Those that ask all the same, since they have not heard of it,
// get ErrOver: what they would be dealt might never be pushed.
func (w *Owner) Gone(of func(trainer string) bool) { w.send(&left{of, true}) }

// Next waits for a step that was applied. ErrOver: that was the last one.
func (w *Owner) Next(ctx context.Context) (Applied, error) {
	for {
		w.mu.Lock()
		if len(w.events) > 0 {
			e := w.events[0]
			w.events = w.events[1:]
			w.mu.Unlock()
			return e, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return Applied{}, err
		}
		select {
		case <-w.news:
		case <-w.closed:
			return Applied{}, ErrClosed
		case <-ctx.Done():
			return Applied{}, context.Cause(ctx)
		}
	}
}

// ended returns why the owner, which is closed, answers nobody.
func (w *Owner) ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return ErrClosed
}

func (w *Owner) report(e *Applied, err error) {
	w.mu.Lock()
	if e != nil {
		w.events = append(w.events, *e)
	}
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// What the actor receives.
type (
	dealing struct {
		ctx     context.Context
		trainer string
		reply   chan dealt // has room for one
	}
	dealt struct {
		step int64
		err  error
	}
	reading struct {
		ctx     context.Context
		trainer string
		step    int64
		reply   chan read // has room for one
	}
	read struct {
		version *Version
		err     error
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

// Deal implements Parameters.
func (w *Owner) Deal(ctx context.Context, trainer string) (int64, error) {
	m := &dealing{ctx, trainer, make(chan dealt, 1)}
	r, err := ask(w, ctx, trainer, m, m.reply)
	if err != nil {
		return 0, err
	}
	return r.step, r.err
}

// Read implements Parameters.
func (w *Owner) Read(ctx context.Context, trainer string, step int64) (*Version, error) {
	m := &reading{ctx, trainer, step, make(chan read, 1)}
	r, err := ask(w, ctx, trainer, m, m.reply)
	if err != nil {
		return nil, err
	}
	return r.version, r.err
}

// Push implements Parameters.
func (w *Owner) Push(ctx context.Context, trainer string, g Gradient) error {
	m := &push{g, trainer, make(chan error, 1)}
	r, err := ask(w, ctx, trainer, m, m.reply)
	if err != nil {
		return err
	}
	return r
}

// ask sends m and waits for its reply. A trainer that does not wait any longer is
// gone: the reply may have been on its way.
func ask[T any](w *Owner, ctx context.Context, trainer string, m any, reply chan T) (r T, err error) {
	w.send(m)
	select {
	case r = <-reply:
		return r, nil
	case <-w.closed:
		return r, w.ended()
	case <-ctx.Done():
		w.send(&left{of: func(name string) bool { return name == trainer }})
		return r, context.Cause(ctx)
	}
}

// snapshot is a published version; its memory is used again when nobody reads it.
type snapshot struct {
	params  []float32
	readers int
}

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
	case *push:
		a.push(m)
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

func (a *parameters) push(p *push) {
	if err := a.schedule.arrive(p); err != nil {
		p.reply <- err
	}
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
	switch {
	case a.failed != nil:
		m.reply <- dealt{err: a.failed}
		return true
	case a.isBarred(m.trainer):
		m.reply <- dealt{err: ErrOver}
		return true
	}
	step, ok := a.schedule.deal(m.trainer)
	if ok {
		m.reply <- dealt{step: step}
	}
	return ok
}

// read answers m, if that can be done now. While a step is applied nobody reads:
// what comes after it is fresher.
func (a *parameters) read(m *reading) bool {
	switch {
	case a.failed != nil:
		m.reply <- read{err: a.failed}
		return true
	case m.step >= a.schedule.end || a.isBarred(m.trainer):
		m.reply <- read{err: ErrOver}
		return true
	case a.busy:
		return false
	}
	ok, err := a.schedule.begin(m.trainer, m.step)
	if err != nil {
		m.reply <- read{err: err}
		return true
	}
	if !ok {
		return false
	}
	s := a.now
	a.mu.Lock()
	s.readers++
	a.mu.Unlock()
	m.reply <- read{version: &Version{Number: a.schedule.version, Params: s.params, release: func() { a.release(s) }}}
	return true
}

// step applies a gradient. It runs beside the actor, which waits for it.
func (a *parameters) step(t *task) (m *stepped) {
	m = &stepped{task: t}
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(*pool.PanicError); ok {
				m.err = e
			} else {
				m.err = &pool.PanicError{Value: r, Stack: debug.Stack()}
			}
		}
	}()
	if n := len(a.model.Params()); len(t.push.Data) != n {
		m.err = fmt.Errorf("async: a gradient of %d values, for %d parameters", len(t.push.Data), n)
		return m
	}
	if m.err = a.model.Apply(&t.push.Gradient); m.err == nil {
		m.next = a.copy()
	}
	return m
}

func (a *parameters) stepped(m *stepped) {
	a.busy = false
	if m.err != nil {
		a.failed = fmt.Errorf("async: step %d: %w", m.task.step, m.err)
		a.owner.report(nil, a.failed)
		m.task.push.reply <- a.failed
		return
	}
	stale := a.schedule.apply(m.task)
	a.publish(m.next)
	p := m.task.push
	a.owner.report(&Applied{Step: p.Step, Version: a.schedule.version, Stale: stale, Trainer: p.trainer, Stats: p.Stats}, nil)
	p.reply <- nil
}

// copy makes a snapshot of the parameters.
func (a *parameters) copy() *snapshot {
	params := a.model.Params()
	var s *snapshot
	a.mu.Lock()
	if n := len(a.free); n > 0 {
		s, a.free = a.free[n-1], a.free[:n-1]
	}
	a.mu.Unlock()
	if s == nil {
		s = &snapshot{params: make([]float32, len(params))}
	}
	copy(s.params, params)
	s.readers = 1 // the actor
	return s
}

func (a *parameters) publish(s *snapshot) {
	if old := a.now; old != nil {
		a.release(old)
	}
	a.now = s
}

func (a *parameters) release(s *snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.readers--; s.readers == 0 {
		a.free = append(a.free, s)
	}
}
