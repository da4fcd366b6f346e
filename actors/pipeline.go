package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/gnnactor/gnnactor/clock"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// Config says what a pipeline is made of. With Trainers it trains; without, it
// delivers batches to its owner.
type Config struct {
	System *actor.ActorSystem
	Name   string // what the names of the actors begin with there: "run", of run/sampler/3, if empty
	Pool   *pool.Pool
	Clock  *clock.Recorder
	Work   Work

	Samplers  []sampling.Sampler // one actor each
	Credits   int                // batches that each sampler may have out, at least 1
	Resting   int                // of the samplers, those that have no credit until Tune gives them some
	Elsewhere Elsewhere          // where the samplers are; nil: in this process

	Trainers []Gradienter // one actor each, at most Work.Micro
	Updater  Updater      // with Trainers
	Late     []Late       // of the Trainers, as many as Samplers: each computes what the sampler of its number makes, and Updater only sizes gradients
	Reducer  Reducer      // with Work.Mine: adds up what several processes compute

	Order   Orderer  // of this pipeline alone; with Work.Window above 1
	Loading *Loading // nil: compute reads rows where the table lies

	AfterSample, AfterLoad []Inserted // the program's own stages there, in this order

	Load func(*Delivery) error // without Trainers: called on the pool for each batch; may be nil
}

// Pipeline is a running dataflow. Its owner takes what it produces with Next,
// and must call Stop.
type Pipeline struct {
	post     *post
	out      *outbox
	all      []*actor.PID // progress first
	deliver  *actor.PID
	stopOnce sync.Once
	cancel   context.CancelFunc // of post.context
	gone     chan struct{}      // closed when nobody answers any more
}

// ErrStopped is returned by asks to a pipeline that has stopped.
var ErrStopped = errors.New("actors: the pipeline has stopped")

// directory finds the actors of a pipeline.
type directory struct {
	source, parameters, progress *actor.PID
	match, load, cache           *actor.PID // nil: the pipeline has none
	samplers                     []*actor.PID
	consumers                    []*actor.PID // who use batches in the end: the trainers, or the deliverer
}

// route says which actor a batch of a lane goes on to.
type route func(lane int) *actor.PID

func to(pid *actor.PID) route { return func(int) *actor.PID { return pid } }

// Spawn starts an actor that is called name+rest or, if one is already, name#2+rest, name#3+rest, ….
func Spawn(system *actor.ActorSystem, name, rest string, made actor.Producer) *actor.PID {
	id := name + rest
	for n := 2; ; n++ {
		pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(made), id)
		if err == nil {
			return pid
		}
		if !errors.Is(err, actor.ErrNameExists) {
			panic(fmt.Sprintf("actors: %s: %v", id, err)) // it is the only error that there is
		}
		id = fmt.Sprintf("%s#%d%s", name, n, rest)
	}
}

// Start spawns the actors. A training pipeline computes nothing before the
// first Proceed, but already samples.
func Start(c Config) (*Pipeline, error) {
	if len(c.Samplers)-c.Resting < 1 || c.Credits < 1 || c.Work.BatchSize < 1 || c.Work.Micro < 1 {
		return nil, fmt.Errorf("actors: %d samplers with %d credits, batch size %d in %d micro-batches: each must be at least 1",
			len(c.Samplers), c.Credits, c.Work.BatchSize, c.Work.Micro)
	}
	if w := c.Work.Window; w > 1 && (c.Order == nil || (len(c.Samplers)-c.Resting)*c.Credits < (w+1)*c.Work.Micro) {
		return nil, fmt.Errorf("actors: windows of %d batches in %d micro-batches need an order, and credit for %d: there are %d samplers with %d credits",
			w, c.Work.Micro, (w+1)*c.Work.Micro, len(c.Samplers), c.Credits)
	}
	if m := c.Loading; m != nil && (m.Ahead < 1 || m.Loaders < 1) {
		return nil, fmt.Errorf("actors: %d batches ahead and %d loaders: each must be at least 1", m.Ahead, m.Loaders)
	}
	for _, x := range slices.Concat(c.AfterSample, c.AfterLoad) {
		if x.Limit < 1 {
			return nil, fmt.Errorf("actors: stage %s may work on %d batches at once: it must be at least 1", x.Name, x.Limit)
		}
	}
	if (c.Reducer != nil) != (c.Work.Mine != nil) {
		return nil, errors.New("actors: what is shared with other processes needs Work.Mine, and nothing else does")
	}
	if c.Late != nil && (len(c.Late) != len(c.Trainers) || len(c.Late) != len(c.Samplers) || c.Work.Window > 1 || c.Work.Micro > 1 || c.Reducer != nil) {
		return nil, fmt.Errorf("actors: %d of %d trainers are late, with %d samplers: there must be as many of each, whole batches, and no order", len(c.Late), len(c.Trainers), len(c.Samplers))
	}
	dir := new(directory)
	p := &Pipeline{out: newOutbox(), gone: make(chan struct{})}
	p.post = &post{root: c.System.Root, pool: c.Pool, clock: c.Clock, dir: dir, late: c.Late != nil, freeGradients: make([]freeList[[]float32], len(c.Trainers))}
	p.post.context, p.cancel = context.WithCancel(context.Background())
	named := func(name string) base { return base{post: p.post, name: name} }
	made := func(s stage) actor.Producer { return func() actor.Actor { return &shell{base: s.common(), stage: s} } }
	// Spawned first and stopped last, so that others that are named so get another number.
	dir.progress = Spawn(c.System, cmp.Or(c.Name, "run"), "/progress", made(&progress{base: named("progress"), out: p.out}))
	p.all = append(p.all, dir.progress)
	run := strings.TrimSuffix(dir.progress.Id, "/progress")
	spawn := func(name string, s stage) *actor.PID {
		pid := Spawn(c.System, run+"/"+name, "", made(s))
		p.all = append(p.all, pid)
		return pid
	}
	// From the end to the beginning, as each knows where batches go on to.
	for i, t := range c.Trainers {
		var s stage = &trainer{base: named("compute"), index: i, seed: c.Work.Seed, worker: t, updater: c.Updater}
		if c.Late != nil {
			s = &late{base: named("compute"), index: i, seed: c.Work.Seed, worker: t, of: c.Late[i], grad: make([]float32, len(c.Updater.Params()))}
		}
		dir.consumers = append(dir.consumers, spawn(fmt.Sprint("trainer/", i), s))
	}
	switch {
	case c.Late != nil:
	case len(c.Trainers) > 0:
		dir.parameters = spawn("parameters", &parameters{base: named("parameters"), work: c.Work, updater: c.Updater, reducer: c.Reducer})
	default:
		p.deliver = spawn("deliverer", &deliverer{base: named("load"), work: c.Work, load: c.Load, out: p.out})
		dir.consumers = []*actor.PID{p.deliver}
	}
	next := route(func(lane int) *actor.PID { return dir.consumers[lane%len(dir.consumers)] })
	for _, x := range slices.Backward(c.AfterLoad) {
		next = to(spawn("stage/"+x.Name, &inserted{base: named(x.Name), stage: x, loads: true, next: next}))
	}
	if c.Loading != nil {
		dir.load = spawn("load", &load{base: named("load"), mem: c.Loading, next: next})
		if c.Loading.Cache != nil {
			dir.cache = spawn("cache", &cache{base: named("cache"), work: c.Work, mem: c.Loading, lead: (len(c.Samplers) - c.Resting) * c.Credits})
		}
		dir.match = spawn("match", &match{base: named("match"), mem: c.Loading, work: c.Work})
		next = to(dir.match)
	}
	if c.Work.Window > 1 {
		next = to(spawn("reorder", &reorder{base: named("reorder"), work: c.Work, order: c.Order, reducer: c.Reducer, onward: next}))
	}
	for _, x := range slices.Backward(c.AfterSample) {
		next = to(spawn("stage/"+x.Name, &inserted{base: named(x.Name), stage: x, next: next}))
	}
	for i, s := range c.Samplers {
		credits := c.Credits
		if i >= len(c.Samplers)-c.Resting {
			credits = 0
		}
		dir.samplers = append(dir.samplers, spawn(fmt.Sprint("sampler/", i), &sampler{base: named("sample"), index: i, seed: c.Work.Seed, sampler: s, elsewhere: c.Elsewhere, to: next, limit: credits, free: credits}))
	}
	dir.source = spawn("source", &source{base: named("source"), work: c.Work, late: c.Late})
	for _, pid := range p.all { // the cache stage begins with its first generation
		c.System.Root.Send(pid, &begin{})
	}
	return p, nil
}

// Next waits for what the pipeline produces next: *messages.Applied when it
// trains, *Delivery when it delivers. A *messages.Failed comes as the error.
func (p *Pipeline) Next(ctx context.Context) (any, error) {
	x, err := p.out.take(ctx)
	if err != nil {
		return nil, err
	}
	if f, ok := x.(*messages.Failed); ok {
		return nil, f
	}
	return x, nil
}

// Tune changes how the stages work and what they may have under way, while they do.
// It must leave at least one sampler, and the credit that a window needs.
func (p *Pipeline) Tune(t messages.Tune) {
	dir := p.post.dir
	for _, pid := range slices.Concat(dir.samplers, dir.consumers) {
		p.post.send(pid, &t)
	}
	if match := p.post.dir.match; match != nil && t.Ahead > 0 && t.Loaders > 0 {
		p.post.send(match, &t)
		p.post.send(p.post.dir.load, &t)
	}
	if cache := p.post.dir.cache; cache != nil {
		p.post.send(cache, &t)
	}
}

// Proceed lets the epoch that begins, or is resumed, at step be computed.
func (p *Pipeline) Proceed(step int64) {
	p.post.send(p.post.dir.parameters, &messages.Proceed{Step: step})
}

// Release gives a delivery back.
func (p *Pipeline) Release(d *Delivery) {
	if !p.post.stopped.Load() {
		p.post.root.Send(p.deliver, &handedBack{d})
	}
}

// Snapshot returns a copy of the parameters, taken between two steps.
func (p *Pipeline) Snapshot(ctx context.Context) (*messages.State, error) {
	reply := make(chan *messages.State, 1)
	p.post.send(p.post.dir.parameters, &messages.Snapshot{Reply: reply})
	select {
	case s := <-reply:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.gone:
		return nil, ErrStopped
	}
}

// Rest returns, after Stop, the steps that were applied and not taken with
// Next, oldest first.
func (p *Pipeline) Rest() []*messages.Applied {
	var rest []*messages.Applied
	for _, x := range p.out.rest() {
		if a, ok := x.(*messages.Applied); ok {
			rest = append(rest, a)
		}
	}
	return rest
}

// InFlight returns how many batches are being sampled, loaded or computed, or wait
// for that.
func (p *Pipeline) InFlight() int {
	return int(p.post.batches.Load()) - p.post.freeBatches.len()
}

// Stop ends the pipeline: what runs is finished, nothing new is begun. It
// returns when every actor is gone, within the time of one batch.
func (p *Pipeline) Stop() {
	p.stopOnce.Do(func() {
		p.post.ending.Store(true)
		p.cancel()
		drain := func(pid *actor.PID) {
			idle := make(chan struct{})
			p.post.send(pid, &messages.Drain{Idle: idle})
			<-idle
		}
		var wg sync.WaitGroup
		for _, pid := range p.all[1:] {
			wg.Go(func() { drain(pid) })
		}
		wg.Wait()
		drain(p.all[0]) // progress hears of the step that was running
		p.post.stopped.Store(true)
		close(p.gone)
		for _, pid := range slices.Backward(p.all) {
			// The error is the future's time-out; an idle actor stops at once.
			_ = p.post.root.StopFuture(pid).Wait()
		}
		p.post.waiting.Wait()
		p.post.freeBatches.drop()
		for i := range p.post.freeGradients {
			p.post.freeGradients[i].drop()
		}
		p.post.freeRows.drop()
	})
}
