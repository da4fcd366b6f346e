package async

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/messages"
)

func TestMain(m *testing.M) { leak.Main(m) }

// line is a model: parameter s is how often step s was applied, the last one how
// many steps were.
type line struct {
	params []float32
	fail   int64
}

func newLine(steps int) *line { return &line{make([]float32, steps+1), -1} }

func (l *line) Params() []float32 { return l.params }

func (l *line) Apply(g *Push) error {
	if g.Step == l.fail {
		return errors.New("it cannot be applied")
	}
	for i, x := range g.Data {
		l.params[i] += x
	}
	return nil
}

// worker computes line's gradients; wait, if there is one, is called in between.
type worker struct {
	steps    [2]int64
	wait     func(ctx context.Context, step int64)
	ctx      context.Context
	computed *atomic.Int64
	peak     *atomic.Int64
	now      *atomic.Int64
}

func (w *worker) Sample(_ context.Context, place int, step int64) error {
	w.steps[place] = step
	return nil
}

func (w *worker) Gradient(grad, params []float32, place int, step int64) (messages.Stats, error) {
	if w.steps[place] != step {
		return messages.Stats{}, fmt.Errorf("place %d has step %d, not %d", place, w.steps[place], step)
	}
	n := w.now.Add(1)
	for p := w.peak.Load(); n > p && !w.peak.CompareAndSwap(p, n); p = w.peak.Load() {
	}
	defer w.now.Add(-1)
	if w.wait != nil {
		w.wait(w.ctx, step)
	}
	// What was read must be one version, however long this took.
	sum := float32(0)
	for _, x := range params[:len(params)-1] {
		sum += x
	}
	if sum != params[len(params)-1] {
		return messages.Stats{}, fmt.Errorf("step %d read %v steps of version %v", step, sum, params[len(params)-1])
	}
	clear(grad)
	grad[step], grad[len(grad)-1] = 1, 1
	w.computed.Add(1)
	return messages.Stats{Weight: 1, Count: 1, Loss: float64(step)}, nil
}

// crew makes workers that count together.
type crew struct{ computed, peak, now atomic.Int64 }

func (c *crew) worker(ctx context.Context, wait func(context.Context, int64)) *worker {
	return &worker{wait: wait, ctx: ctx, computed: &c.computed, peak: &c.peak, now: &c.now}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func system(t testing.TB) *actor.ActorSystem {
	s := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	t.Cleanup(func() { s.Shutdown() })
	return s
}

// follow takes every event, and checks what must hold of each.
func follow(ctx context.Context, t testing.TB, o *Owner, first int64, bound int) (all []Step) {
	seen := map[int64]bool{}
	for {
		e, err := o.Next(ctx)
		if errors.Is(err, ErrOver) {
			return all
		}
		if err != nil {
			t.Errorf("after %d steps: %v", len(all), err)
			return all
		}
		if e.Stale < 0 || e.Stale > int64(bound) {
			t.Errorf("step %d is %d stale; the bound is %d", e.Step, e.Stale, bound)
		}
		if e.Version != first+int64(len(all))+1 || seen[e.Step] {
			t.Errorf("step %d made version %d after %d steps; again: %v", e.Step, e.Version, len(all), seen[e.Step])
		}
		seen[e.Step] = true
		all = append(all, e)
	}
}

// Several trainers at once, for several bounds: no gradient is staler than the
// bound, no more than bound + 1 compute at once, every step is applied once.
func TestStaleness(t *testing.T) {
	sys := system(t)
	for _, bound := range []int{0, 1, 3, 7} {
		const steps = 400
		ctx := within(t)
		m := newLine(steps)
		o := NewOwner(Options{System: sys, Model: m, Bound: bound, End: steps})
		var c crew
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := Train(ctx, o, Name("a", i), c.worker(ctx, nil), steps+1); err != nil {
					t.Error(err)
				}
			})
		}
		all := follow(ctx, t, o, 0, bound)
		wg.Wait()
		o.Close()
		if len(all) != steps || c.computed.Load() != steps {
			t.Errorf("bound %d: %d steps applied, %d computed, of %d", bound, len(all), c.computed.Load(), steps)
		}
		if p := c.peak.Load(); p > int64(bound)+1 {
			t.Errorf("bound %d: %d gradients were computed at once", bound, p)
		}
		for s, n := range m.params[:steps] {
			if n != 1 {
				t.Errorf("bound %d: step %d was applied %v times", bound, s, n)
			}
		}
	}
}

// One trainer is stuck with a batch: the others make exactly bound steps without
// it, and then wait, until it goes on. Its gradient is applied, no staler than
// the bound.
func TestSlowTrainer(t *testing.T) {
	const steps, bound = 60, 3
	ctx := within(t)
	m := newLine(steps)
	o := NewOwner(Options{System: system(t), Model: m, Bound: bound, End: steps})
	defer o.Close()
	var c crew
	stuck, let := make(chan int64, steps), make(chan struct{})
	var wg sync.WaitGroup
	train := func(i int, wait func(context.Context, int64)) {
		wg.Go(func() {
			if err := Train(ctx, o, Name("a", i), c.worker(ctx, wait), steps+1); err != nil {
				t.Error(err)
			}
		})
	}
	train(0, func(ctx context.Context, step int64) {
		stuck <- step
		select {
		case <-let:
		case <-ctx.Done():
		}
	})
	slow := <-stuck
	for i := range 3 {
		train(1+i, nil)
	}
	var before []Step
	for range bound {
		e, err := o.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, e)
	}
	// Now all others wait: the owner has answered everything, and nothing can be applied.
	if n := waiting(o); n != 0 {
		t.Errorf("%d gradients could be applied while one computes on a version that is %d old", n, bound)
	}
	close(let)
	rest := follow(ctx, t, o, bound, bound)
	wg.Wait()
	if len(before)+len(rest) != steps {
		t.Fatalf("%d steps were applied, of %d", len(before)+len(rest), steps)
	}
	found := false
	for i, e := range append(before, rest...) {
		if e.Step == slow {
			found = true
			if e.Stale != bound || i != bound {
				t.Errorf("the slow step was applied as number %d, %d stale; as number %d, %d stale, was expected", i, e.Stale, bound, bound)
			}
		}
	}
	if !found {
		t.Error("the slow step was not applied")
	}
}

// waiting returns how many more steps the owner applied, after it has seen
// everything that was sent to it before.
func waiting(o *Owner) int {
	// An ask that is answered at once, and in order.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if _, err := o.Read(ctx, "nobody", 1); err == nil {
		panic("a stranger may read")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.events)
}

// A trainer goes in the middle of a batch: its batches are dealt again.
func TestTrainerGoes(t *testing.T) {
	const steps, bound = 50, 2
	ctx := within(t)
	o := NewOwner(Options{System: system(t), Model: newLine(steps), Bound: bound, End: steps})
	defer o.Close()
	var c crew
	dying, kill := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := Train(dying, o, Name("b", 0), c.worker(dying, func(context.Context, int64) { kill() }), steps+1)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a trainer that was killed: %v", err)
		}
		o.Gone(Trainers("b")) // as when its node is gone
	})
	<-dying.Done()
	for i := range 2 {
		wg.Go(func() {
			if err := Train(ctx, o, Name("a", i), c.worker(ctx, nil), steps+1); err != nil {
				t.Error(err)
			}
		})
	}
	if all := follow(ctx, t, o, 0, bound); len(all) != steps {
		t.Errorf("%d steps were applied, of %d", len(all), steps)
	}
	wg.Wait()
	kill()
}

// Trainers that were said not to come back, and have not heard of it, are dealt
// nothing: not what they gave back, nor when they wait since before. Another one
// makes their steps, and so an owner that is stopped comes to its end.
func TestGoneAsksAgain(t *testing.T) {
	const steps = 1
	ctx := within(t)
	o := NewOwner(Options{System: system(t), Model: newLine(steps), Bound: 3, End: steps})
	defer o.Close()
	step, err := o.Deal(ctx, Name("b", 0))
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.Read(ctx, Name("b", 0), step)
	if err != nil {
		t.Fatal(err)
	}
	v.Release()
	waited := make(chan error, 1)
	go func() {
		_, err := o.Deal(ctx, Name("b", 1))
		waited <- err
	}()
	o.Gone(Trainers("b"))
	o.Stop()
	for _, deal := range []func() error{
		func() error { return <-waited },
		func() error { _, err := o.Deal(ctx, Name("b", 0)); return err },
		func() error { _, err := o.Read(ctx, Name("b", 0), step); return err },
	} {
		if err := deal(); !errors.Is(err, ErrOver) {
			t.Errorf("a trainer that is gone asks and gets %v", err)
		}
	}
	if err := o.Push(ctx, Name("b", 0), Push{Step: step, Data: make([]float32, steps+1)}); err == nil {
		t.Error("a gradient of a trainer that is gone was applied")
	}
	var c crew
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := Train(ctx, o, Name("a", 0), c.worker(ctx, nil), steps+1); err != nil {
			t.Error(err)
		}
	})
	if all := follow(ctx, t, o, 0, 3); len(all) != 1 || all[0].Trainer != Name("a", 0) {
		t.Errorf("applied: %+v", all)
	}
	wg.Wait()
}

// A run that is stopped ends after a prefix of its steps, and goes on from there.
func TestStop(t *testing.T) {
	const steps, bound = 300, 3
	ctx := within(t)
	sys := system(t)
	m := newLine(steps)
	first, runs := int64(0), 0
	for ; first < steps; runs++ {
		o := NewOwner(Options{System: sys, Model: m, Bound: bound, First: first, End: steps})
		var c crew
		var wg sync.WaitGroup
		stopped := make(chan struct{})
		held := first + 50 // so that the run is not over before it is stopped
		for i := range 4 {
			wg.Go(func() {
				w := c.worker(ctx, func(_ context.Context, step int64) {
					if step >= held {
						<-stopped
					}
				})
				if err := Train(ctx, o, Name("a", i), w, steps+1); err != nil {
					t.Error(err)
				}
			})
		}
		var all []Step
		for range 20 {
			if e, err := o.Next(ctx); err == nil {
				all = append(all, e)
			}
		}
		o.Stop()
		close(stopped)
		all = append(all, follow(ctx, t, o, first+int64(len(all)), bound)...)
		wg.Wait()
		o.Close()
		next := first + int64(len(all))
		for _, e := range all {
			if e.Step < first || e.Step >= next {
				t.Fatalf("steps [%d, %d) are applied, and step %d", first, next, e.Step)
			}
		}
		first = next
	}
	if runs < 3 {
		t.Errorf("%d runs", runs)
	}
	for s, n := range m.params[:steps] {
		if n != 1 {
			t.Errorf("step %d was applied %v times", s, n)
		}
	}
}

// What goes wrong ends the run with its reason.
func TestFailures(t *testing.T) {
	const steps = 20
	ctx := within(t)
	m := newLine(steps)
	m.fail = 7
	o := NewOwner(Options{System: system(t), Model: m, Bound: 1, End: steps})
	var c crew
	err := Train(ctx, o, "a/0", c.worker(ctx, nil), steps+1)
	if err == nil || errors.Is(err, ErrOver) {
		t.Errorf("a step that fails: %v", err)
	}
	for {
		if _, err = o.Next(ctx); err != nil {
			break
		}
	}
	if errors.Is(err, ErrOver) || errors.Is(err, ErrClosed) {
		t.Errorf("a run whose step failed: %v", err)
	}
	o.Close()
	if _, again := o.Deal(ctx, "a/0"); again == nil || again.Error() != err.Error() {
		t.Errorf("an owner that failed and is closed: %v", again)
	}
	o = NewOwner(Options{System: system(t), Model: m, Bound: 1, End: steps})
	o.Close()
	if err := Train(ctx, o, "a/0", c.worker(ctx, nil), steps+1); !errors.Is(err, ErrClosed) {
		t.Errorf("a trainer of an owner that is closed: %v", err)
	}
}
