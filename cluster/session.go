// Package cluster makes a process a node of a cluster that trains: Join agrees with the other
// nodes on the run, brings the data that it lacks and its part of the features, and the Session
// that it returns trains, hands over what it did and held when it is told to go, and leaves.
//
// A Session is a Node that takes part in a run. A Node by itself (Enter) has its store, its two
// planes and its membership, and keeps copies of others' checkpoints.
//
// The package is above runtime, which links none of it. The packages in its folder are its parts.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/parts"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// ErrOptions is wrapped by errors of Options that are wrong, or do not suit the run.
var ErrOptions = errors.New("cluster: invalid options")

// ErrDrained: the node was told to drain before it took part, or has nothing to compute any more.
var ErrDrained = errors.New("drained: this node has nothing to compute")

// optionsError wraps ErrOptions, which adds nothing to the text.
type optionsError struct{ error }

func (e *optionsError) Unwrap() []error { return []error{ErrOptions, e.error} }

func optionsf(format string, args ...any) error { return &optionsError{fmt.Errorf(format, args...)} }

// Options of Join.
type Options struct {
	// NodeOptions are this process's. Cluster may be empty, for gnnactor, and Listen, for a port of loopback.
	NodeOptions

	// Config is what this node wants the run to be, and what it has of its own: data,
	// execution, memory, checkpoints. The first node's holds for all.
	Config runtime.Config
	// Given are the names of the settings that the run of another node must have as Config has
	// them; nil: those that are not DefaultConfig's.
	Given []string
	// Joins: this node takes part in a run that another node begins, and begins none.
	Joins bool
	// Shards are the parts that the features are shared out in, a number or METHOD:NUMBER with a
	// method of package partition, Replicas the nodes that hold each, WaitFor those that the first
	// step waits for. Zero values: all nodes have all features, 1, 1, or what the run has.
	Shards            string
	Replicas, WaitFor int
	Roles             Roles // what this node does; none: all
	MaxSamplers       int   // of other nodes, that this one takes; 0: any number
	// Infers says what is computed of a partition set by inference, as nodes of one run are to say it; empty: the run is training.
	Infers string

	Drain time.Duration // how long it may hand over what it does and holds; 0: 4 minutes
	// Copying hears of data that is being copied, and once of where it lies; nil: nobody does.
	Copying func(dir string, p dataplane.Progress, done bool)
	// Late is called when this node has not ended some seconds after it had to, for a reason: it was
	// fenced, or what it had could not be handed over. The others go on without it; the process should
	// exit. nil: nothing is.
	Late func(why error)
}

// Roles are what a node does for a run.
type Roles struct{ Sample, Train, Rows bool }

// Set reads names with commas between, of sampler, trainer and rows.
func (r *Roles) Set(text string) error {
	*r = Roles{}
	for name := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(name) {
		case "sampler":
			r.Sample = true
		case "trainer":
			r.Train = true
		case "rows":
			r.Rows = true
		default:
			return fmt.Errorf("%q is none of sampler, trainer, rows", name)
		}
	}
	return nil
}

// String returns what Set reads.
func (r *Roles) String() string {
	var all []string
	for _, x := range []struct {
		has  bool
		name string
	}{{r.Sample, "sampler"}, {r.Train, "trainer"}, {r.Rows, "rows"}} {
		if x.has {
			all = append(all, x.name)
		}
	}
	return strings.Join(all, ",")
}

// suits reports why this node's roles and settings do not suit the run.
func (o *Options) suits(run *Run) error {
	if run.Settings[runData] != dataSet {
		return o.suit(nil)
	}
	why := ""
	switch bad := o.Config.NotInPieces(); {
	case !o.spreads(run):
		why = o.Config.NotOverParts()
	case o.Infers == "" && bad != nil:
		why = "batches that all pieces compute together do not have " + strings.Join(bad, "; ")
	}
	switch {
	case o.Shards != "":
		return optionsf("shards: a partition set's features are in its pieces, which are shared out; leave it out, or give the store that the set was made of")
	case o.Roles != Roles{true, true, true}:
		return optionsf("roles %s: of a partition set every node that takes part samples, trains and holds pieces; leave it out", &o.Roles)
	case why != "":
		return optionsf("a partition set on several nodes cannot be used so: %s. Change that, or give the store that it was made of", why)
	}
	return nil
}

// spreads reports whether the nodes compute a run's pieces together, rather than batches each.
func (o *Options) spreads(run *Run) bool {
	return run.Settings[runData] == dataSet && (o.Config.InPieces() || o.Infers != "")
}

// suit reports why this node's roles do not suit a run on data that all nodes may have; ds is that, nil if it is not known yet.
func (o *Options) suit(ds *graph.Dataset) error {
	r := &o.Roles
	why := ""
	if r.Train && !r.Sample {
		why = o.Config.NeedsTopology(ds)
	}
	switch {
	case why != "":
		return optionsf("roles %s: a node that trains and does not sample has no topology, and %s; add sampler", r, why)
	case !r.Rows && o.Shards == "" && r.Train:
		return optionsf("roles %s: without shards every trainer has all features; add rows, or share them out", r)
	case !r.Rows && !r.Train && !r.Sample, r.Rows && o.Shards == "" && !r.Train && !r.Sample:
		return optionsf("roles %s: there is nothing to do for this node: without shards the features are not shared out", r)
	}
	return nil
}

// Session is this process's place among the nodes of a run.
type Session struct {
	o        Options
	node     *Node
	team     *trainers.Trainers // nil: this node does not train
	samplers *samplers.Remote   // likewise
	features *Features          // nil: they are not shared out
	given    bool               // what it held is with the others, or not needed any more
	drained  bool
	spreads  bool // nodes compute the pieces of a set together

	ctx   context.Context
	stop  context.CancelCauseFunc // ends ctx
	over  func()                  // ends ctx, and the look whether the run is over
	watch chan struct{}           // closed when nobody may call stop any more
	stuck error                   // why this node hands over no more; set before watch is closed
	last  *time.Timer             // calls Late

	steps, micros rate
	newest        atomic.Pointer[runtime.Event] // of a step
	rt            atomic.Pointer[runtime.Runtime]
}

// Join makes this process a node, agrees with the other nodes on the run, and readies this
// node's part in it. The caller must Leave.
//
// From when it has returned, the end of ctx makes the node hand over what it does and holds, and then
// end with training.ErrDrained, or, if nobody is there to take it, training.ErrLast.
func Join(ctx context.Context, o Options) (_ *Session, err error) {
	o.Cluster, o.Listen = cmp.Or(o.Cluster, "gnnactor"), cmp.Or(o.Listen, "127.0.0.1:0")
	o.Roles, o.Drain = cmp.Or(o.Roles, Roles{true, true, true}), cmp.Or(o.Drain, 4*time.Minute)
	if o.MaxSamplers < 0 || o.MaxSamplers > 0 && !o.Roles.Sample {
		return nil, optionsf("capacity samplers=%d, with roles %s: it is how many samplers of other nodes a node with the role sampler takes, 1 or more; leave it out, and it takes any number", o.MaxSamplers, &o.Roles)
	}
	o.TrustData = !o.Config.Data.Verify
	var propose *Run
	if !o.Joins { // it may be this node's settings that the run has
		if err := o.Config.Validate(); err != nil {
			return nil, err
		}
		if propose, err = o.proposal(ctx); err != nil {
			return nil, err
		}
		if err := o.dataSuits(ctx, propose); err != nil {
			return nil, err
		}
	}
	s := &Session{o: o, stop: func(error) {}}
	if s.node, err = Enter(ctx, o.NodeOptions); err != nil {
		return nil, err
	}
	enter, end := training.Until(ctx, s.node.Draining(), ErrDrained)
	defer end()
	defer func() {
		if err != nil {
			if cause := context.Cause(enter); errors.Is(cause, ErrDrained) || runOver(cause) {
				err = cause
			}
			err = s.Leave(err)
		}
	}()
	enter, stop := s.untilOver(enter)
	defer stop()
	if o.Roles.Sample { // those who need it wait
		if err := s.node.Member.Announce(enter, func(i *membership.Info) { i.Samples, i.Most = true, o.MaxSamplers }); err != nil {
			return nil, err
		}
	}
	if err := s.agree(enter, propose); err != nil {
		return nil, err
	}
	if err := s.ready(enter); err != nil {
		return nil, err
	}
	s.begin(ctx)
	return s, nil
}

// ready makes this node's part, of the run that Options say by now.
func (s *Session) ready(ctx context.Context) (err error) {
	o, cfg := &s.o, &s.o.Config
	cfg.Cluster.Actors = s.node.Control.System()
	if s.spreads {
		return nil
	}
	if cfg.Observe = s.event(cfg.Observe); !o.Roles.Train {
		cfg.Cluster.SamplesOnly = true
		return nil
	}
	s.samplers = s.node.Samplers(o.Roles.Sample)
	cfg.Cluster.Elsewhere = s.samplers
	if s.team, err = s.node.Train(ctx, cfg.MaxTrainers(), o.WaitFor); err != nil {
		return err
	}
	cfg.Cluster.Peers = s.team
	s.node.Report(s.progress)
	return nil
}

// Spreads reports whether the nodes compute the pieces of a partition set together, as global batches and inference do: Compute does that, and
// Start and Train are for other runs.
func (s *Session) Spreads() bool { return s.spreads }

// Compute calls do with the run's settings and this node's pieces, for OpenDivided, until all nodes have done the same. When one is lost, which
// ends what do computes by an error, it is waited for until all pieces are somewhere again, and do is called again: what it made is to be
// overwritten or gone on with, checkpoints by settings that resume; so are a node's that is started again, whatever its settings say. A node without pieces waits for the others, or, once it is to drain, ends with ErrDrained.
//
// The end of ctx drains the node of a training, which goes on until others have its pieces and take them over between two steps; where nobody is there to
// take them it ends with training.ErrLast. do gets the context that it is to compute under.
func (s *Session) Compute(ctx context.Context, do func(ctx context.Context, cfg runtime.Config) error) error {
	if s.o.Infers == "" {
		defer context.AfterFunc(ctx, func() { _ = s.node.Drain(s.ctx) })() // that of Join drains it, too, or is another
		var stop func()
		ctx, stop = s.untilLast(s.ctx)
		defer stop()
	}
	for told := map[string]time.Time{}; ; {
		agree, stop := s.untilOver(ctx)
		spread, err := s.features.parts.Spread(agree)
		over := context.Cause(agree)
		stop()
		switch {
		case err != nil && runOver(over):
			return over
		case errors.Is(err, training.ErrDrained):
			return ErrDrained
		case err != nil:
			return err
		}
		if cfg := s.Config(); len(spread.Mine()) > 0 {
			cfg.Cluster.Spread = spread
			cfg.Checkpoint.Resume = cfg.Checkpoint.Resume || spread.Begun() && cfg.Checkpoint.Dir != ""
			s.node.computing.Store(true)
			err = do(ctx, cfg)
			s.node.computing.Store(false)
		}
		if err == nil {
			err = s.computed(ctx, spread)
		}
		if errors.Is(err, training.ErrMoves) {
			if err = spread.Moved(ctx); err == nil {
				s.node.log.Info("pieces are computed by other nodes from here on")
				spread.Close(nil)
				continue
			}
		}
		spread.Close(err)
		if err == nil {
			s.given = true
			return s.node.Finish(ctx)
		}
		if !errors.Is(err, parts.ErrLost) || ctx.Err() != nil || s.node.Member.Err() != nil {
			return err
		}
		again := "pieces are computed again when each is somewhere"
		if nodes := spread.Nodes(); time.Since(told[nodes]) < time.Minute {
			again = "" // until the lease of the lost one ends it is tried again, and those that it is lost to end as well
		} else {
			told[nodes] = time.Now()
		}
		if err := s.node.patient(ctx, again, err); err != nil {
			return err
		}
	}
}

// computed waits until all have computed what they are to; a node that has no pieces to compute and drains has nothing to wait for.
func (s *Session) computed(ctx context.Context, spread *parts.Spread) error {
	if len(spread.Mine()) > 0 {
		return spread.Done(ctx)
	}
	ctx, end := training.Until(ctx, s.node.Draining(), ErrDrained)
	defer end()
	err := spread.Done(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrDrained) {
		return cause
	}
	return err
}

// untilLast returns a context that ends with training.ErrLast once this node drains and nobody is there to take its pieces, and stop, which ends it.
func (s *Session) untilLast(ctx context.Context) (_ context.Context, stop func()) {
	return watched(ctx, func(ctx context.Context, end context.CancelCauseFunc) {
		if _, err := s.node.Member.Until(ctx, s.features.keeper.Last); err == nil {
			end(fmt.Errorf("%w: %w: no other node is there that could hold the pieces of this one", context.Canceled, training.ErrLast))
		}
	})
}

// Config returns the run's settings, with this node's part in it.
func (s *Session) Config() runtime.Config { return s.o.Config }

// Roles returns what this node does.
func (s *Session) Roles() Roles { return s.o.Roles }

// Context is what this node's part in the run goes on under. It does not end with Join's, but when the
// node has handed over in vain.
func (s *Session) Context() context.Context { return s.ctx }

// Start starts the run, and samples for the others' trainers if that is among this node's
// roles. Leave stops what it returns, which is nil for a node that neither trains nor samples.
func (s *Session) Start() (*runtime.Runtime, error) {
	if !s.o.Roles.Train && !s.o.Roles.Sample {
		return nil, nil
	}
	rt, err := s.start()
	return rt, s.because(err)
}

func (s *Session) start() (*runtime.Runtime, error) {
	ctx := s.ctx
	if s.o.Config.Cluster.Away { // it asks by one sampler until its plan says how many there are
		if err := s.samplers.Ready(ctx, "", 1, nil); err != nil {
			return nil, err
		}
		var stop func()
		ctx, stop = s.untilNobodySamples(ctx)
		defer stop()
	}
	rt, err := runtime.Start(ctx, s.o.Config)
	if why := context.Cause(ctx); err != nil && errors.Is(why, errNobodySamples) {
		return nil, why
	} else if err != nil {
		return nil, err
	}
	s.rt.Store(rt)
	if s.o.Roles.Sample {
		err = s.node.Sample(s.ctx, samplers.Run{ID: rt.SamplingID(), First: rt.FirstBatch(), Open: func() samplers.Draw { return rt.NewDraw() }})
	}
	if err == nil && s.samplers != nil {
		err = s.samplers.Ready(s.ctx, rt.SamplingID(), rt.Plan().MaxSamplers, rt.TrainingDataset().Graph)
	}
	if err != nil {
		s.node.EndSampling()
		return nil, errors.Join(err, rt.Stop())
	}
	return rt, nil
}

// Train is runtime.Runtime's, of what Start returns, until the run is over for this node and the
// others need nothing of it any more. Without an error the run ended, or, as Drained tells, the others have
// this node's part. A node that does not train waits for that.
func (s *Session) Train() iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		rt, failed := s.rt.Load(), error(nil)
		if rt == nil {
			rt, failed = s.Start()
		}
		switch {
		case failed != nil:
		case s.team == nil:
			s.drained, failed = s.node.Attend(s.ctx)
			s.given = failed == nil
		default:
			for e, err := range rt.Train(s.ctx) {
				if failed = err; err == nil && !yield(e, nil) {
					return
				}
			}
			failed = s.ended(failed)
		}
		if failed != nil {
			yield(runtime.Event{}, s.because(failed))
		}
	}
}

// Train joins a run, trains in it, and leaves: Join, Session.Train and Session.Leave, of a run that does not spread. Of a
// caller that stops before the end the node hands over what it has, and leaves.
func Train(ctx context.Context, o Options) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		s, err := Join(ctx, o)
		if err != nil {
			yield(runtime.Event{}, err)
			return
		}
		stopped := false
		for e, failed := range s.Train() {
			if err = failed; err == nil && !yield(e, nil) {
				stopped = true // and leaves when the loop is over, which waits for that
				break
			}
		}
		switch err = s.Leave(err); {
		case err != nil && stopped:
			s.node.log.Warn("the node did not leave in order", "error", err)
		case err != nil:
			yield(runtime.Event{}, err)
		}
	}
}

// ended judges how training ended: nil, if it came to the run's end or this
// node's part is with the others.
func (s *Session) ended(err error) error {
	switch {
	case err == nil:
		if s.features != nil {
			err = s.node.Done(s.ctx)
		}
		s.given = err == nil
		return errors.Join(err, s.node.Finish(s.ctx))
	case errors.Is(err, training.ErrLast):
		return fmt.Errorf("%w: %w", context.Canceled, err)
	case !errors.Is(err, training.ErrDrained):
		return err
	}
	if s.features != nil {
		if err := s.features.keeper.Drain(s.ctx); err != nil {
			return err
		}
		s.given = true
	}
	s.drained = true
	return nil
}

// Drained reports whether the others have what this node did and held.
func (s *Session) Drained() bool { return s.drained }

// Part is what a node did in a run.
type Part struct {
	MicroBatches int64            // that it computed
	Lineage      []training.Run   // of its parameters
	Drawn        int64            // micro-batches that other nodes sampled for it
	DrawnBytes   int64            // what those took on the data plane
	SamplerMoves int64            // of one of its samplers to another node
	RowRounds    int64            // in which feature rows were asked of other nodes
	Messages     []transport.Sent // that it sent, by type
}

// Part returns this node's; of one that does not train it has the messages.
func (s *Session) Part() *Part {
	p := &Part{Messages: s.node.messages()}
	if s.team != nil {
		p.MicroBatches, p.Lineage, p.SamplerMoves = s.team.Made(), s.team.Runs(), s.samplers.Moves()
		p.Drawn, p.DrawnBytes = s.samplers.Drawn()
	}
	if s.features != nil {
		p.RowRounds, _ = s.features.keeper.Store().Stats()
	}
	return p
}

// Shards returns how many shards of the features lie here, and how many it took over and let go since Join.
func (s *Session) Shards() (held int, taken, left int64) {
	if s.features == nil {
		return 0, 0, 0
	}
	taken, left = s.features.keeper.Moves()
	return s.features.keeper.Held(), taken, left
}

// event makes what hears of training beside observe.
func (s *Session) event(observe func(runtime.Event)) func(runtime.Event) {
	return func(e runtime.Event) {
		if observe != nil {
			observe(e)
		}
		if e.Kind != runtime.EventStep {
			return
		}
		now := time.Now()
		s.steps.At(now, e.Applied)
		s.micros.At(now, s.team.Made())
		s.newest.Store(&e)
	}
}

// progress is what the status of the cluster shows.
func (s *Session) progress() Progress {
	cfg := &s.o.Config
	p := Progress{Epochs: cfg.Training.Epochs}
	if e := s.newest.Load(); e != nil {
		p.Epoch, p.Step = e.Epoch, e.Applied
		p.Late, p.Bound = e.Staleness, cfg.Training.Sync.Bound()
	}
	if rt := s.rt.Load(); rt != nil {
		p.InFlight, p.State = rt.InFlight(), rt.State().String()
	}
	now := time.Now()
	p.StepsPerSecond, p.MicroPerSecond = s.steps.PerSecond(now, p.Step), s.micros.PerSecond(now, s.team.Made())
	return p
}
