package async

import (
	"context"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
)

// Options of an Owner.
type Options struct {
	System *actor.ActorSystem
	Spawn  func(actor.Producer) *actor.PID // an actor there; nil: without a name
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
	events []Step
	err    error // why it ended: ErrOver, or what went wrong
	news   chan struct{}
}

// NewOwner starts the actor. Close must be called.
func NewOwner(o Options) *Owner {
	if o.Spawn == nil {
		o.Spawn = func(made actor.Producer) *actor.PID { return o.System.Root.Spawn(actor.PropsFromProducer(made)) }
	}
	w := &Owner{system: o.System, closed: make(chan struct{}), news: make(chan struct{}, 1)}
	w.pid = o.Spawn(func() actor.Actor {
		a := &parameters{owner: w, model: o.Model, schedule: newSchedule(o.First, o.End, o.Bound)}
		a.publish(a.copy())
		return a
	})
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
func (w *Owner) Next(ctx context.Context) (Step, error) {
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
			return Step{}, err
		}
		select {
		case <-w.news:
		case <-w.closed:
			return Step{}, ErrClosed
		case <-ctx.Done():
			return Step{}, context.Cause(ctx)
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

func (w *Owner) report(e *Step, err error) {
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

// Deal implements Parameters.
func (w *Owner) Deal(ctx context.Context, trainer string) (int64, error) {
	m := &dealing{ctx, trainer, make(chan answer[int64], 1)}
	return ask(w, ctx, trainer, m, m.reply)
}

// Read implements Parameters.
func (w *Owner) Read(ctx context.Context, trainer string, step int64) (*Version, error) {
	m := &reading{ctx, trainer, step, make(chan answer[*Version], 1)}
	return ask(w, ctx, trainer, m, m.reply)
}

// Push implements Parameters.
func (w *Owner) Push(ctx context.Context, trainer string, g Push) error {
	m := &pendingPush{g, trainer, make(chan answer[struct{}], 1)}
	_, err := ask(w, ctx, trainer, m, m.reply)
	return err
}

// ask sends m and waits for its reply. A trainer that does not wait any longer is
// gone: the reply may have been on its way.
func ask[T any](w *Owner, ctx context.Context, trainer string, m any, reply chan answer[T]) (v T, err error) {
	w.send(m)
	select {
	case a := <-reply:
		return a.v, a.err
	case <-w.closed:
		return v, w.ended()
	case <-ctx.Done():
		w.send(&left{of: func(name string) bool { return name == trainer }})
		return v, context.Cause(ctx)
	}
}
