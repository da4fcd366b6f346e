package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/node"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/cluster/transfer"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/training"
)

// place is this process's among a cluster's nodes, for the time of a run. Nil:
// it is alone.
type place struct {
	a        *app
	node     *node.Node
	roles    roles
	samplers *samplers.Remote // nil: this node does not train, or samples for itself
	team     *trainers.Trainers
	features *node.Features
	epochs   int
	bound    int  // of staleness
	given    bool // what it held is with the others, or not needed any more

	drain time.Duration           // how long an interrupted node may hand over
	stop  context.CancelCauseFunc // ends training
	watch chan struct{}           // closed when nobody may call stop any more
	stuck error                   // why this node hands over no more; set before watch is closed
	last  *time.Timer             // ends the process

	steps, micros node.Rate
	newest        atomic.Pointer[runtime.Event] // of a step
	rt            atomic.Pointer[runtime.Runtime]
}

// enter joins the cluster that the flags name, if they do, agrees with it on the
// run, and readies this node's part. leave must be called.
func (c *clusterFlags) enter(cmd *cobra.Command, a *app, cfg *runtime.Config, given map[string]string) (_ *place, err error) {
	if len(c.store) == 0 {
		return nil, c.alone(cmd)
	}
	options, err := c.options(a)
	if err != nil {
		return nil, err
	}
	options.TrustData = !cfg.Data.Verify
	var propose *node.Run
	if !c.joins { // it may be this node's settings that the run has
		if err := cfg.Validate(); err != nil {
			return nil, err
		}
		if propose, err = c.proposal(cmd.Context(), cfg); err != nil {
			return nil, err
		}
		if err := c.dataSuits(cmd, options, propose, *cfg, given); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	p := &place{a: a, stop: func(error) {}, drain: c.drain}
	if p.node, err = node.Enter(ctx, *options); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errDrainedEarly) {
				err = cause
			}
			err = p.leave(err)
		}
	}()
	defer p.whileEntering(cancel)()
	required := c.required(cmd, cfg, given, propose)
	r, err := p.node.AgreeOnRun(ctx, propose, c.joins || cfg.Checkpoint.Resume, func(r *node.Run) error { return c.check(r, required, propose, cfg) })
	if err != nil {
		return nil, err
	}
	if err := c.adopt(r, cfg); err != nil {
		return nil, err
	}
	p.epochs, p.bound = cfg.Training.Epochs, cfg.Training.Sync.Bound()
	if err := c.suits(cfg); err != nil {
		return nil, err
	}
	p.roles = c.roles
	if err := c.bring(ctx, p, r, cfg); err != nil {
		return nil, err
	}
	if !c.roles.train {
		cfg.Cluster.SamplesOnly = true
		return p, nil
	}
	p.samplers = p.node.Samplers(c.roles.sample)
	cfg.Cluster.Elsewhere = p.samplers
	if p.team, err = p.node.Train(ctx, cfg.MaxTrainers(), c.least); err != nil {
		return nil, err
	}
	cfg.Cluster.Peers = p.team
	p.node.Report(p.progress)
	return p, nil
}

// suits reports why this node's roles do not suit the run.
func (c *clusterFlags) suits(cfg *runtime.Config) error {
	switch {
	case !c.roles.rows && c.shards == "" && c.roles.train:
		return usagef("--roles %s: without --shards every trainer has all features; add rows, or share them out", &c.roles)
	case !c.roles.rows && !c.roles.train && !c.roles.sample, c.roles.rows && c.shards == "" && !c.roles.train && !c.roles.sample:
		return usagef("--roles %s: there is nothing to do for this node: without --shards the features are not shared out", &c.roles)
	}
	return nil
}

// dataSuits reports why this node's data cannot be trained on with the settings of the run that
// there is, or else its own, which it would begin: before it is a node, and others take
// part in what cannot be done. Data that is not here, or no store, is not looked at.
func (c clusterFlags) dataSuits(cmd *cobra.Command, o *node.Options, propose *node.Run, cfg runtime.Config, given map[string]string) error {
	r, err := node.Begun(cmd.Context(), *o)
	if err != nil {
		return err
	}
	if r != nil {
		if err := c.check(r, c.required(cmd, &cfg, given, propose), propose, &cfg); err != nil {
			return err
		}
		if err := c.adopt(r, &cfg); err != nil {
			return err
		}
	}
	if err := c.suits(&cfg); err != nil {
		return err
	}
	if wants := cmp.Or(r, propose); wants.Data != propose.Data || propose.Settings[runData] == dataOwn {
		return nil
	}
	return runtime.Check(cmd.Context(), cfg)
}

// options are those of this process as a node.
func (c *clusterFlags) options(a *app) (*node.Options, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	if c.lease < time.Second {
		return nil, usagef("--lease %v: must be at least 1s", c.lease)
	}
	if c.outage < 0 {
		return nil, usagef("--outage %v: must not be negative", c.outage)
	}
	outage := c.outage
	if outage == 0 {
		outage = -1
	}
	if c.drain <= 0 {
		return nil, usagef("--drain-timeout %v: must be more than 0", c.drain)
	}
	for _, address := range c.store {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, usagef("%q: it is HOST:PORT of the store", address)
		}
	}
	for flag, address := range map[string]string{"--listen": c.listen, "--advertise": c.advertise, "--control": c.control} {
		if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
			return nil, usagef("%s %q: it is HOST:PORT", flag, address)
		}
	}
	return &node.Options{
		Cluster: c.name, Node: c.node, Dir: c.dir, Store: c.store, Listen: c.listen, Advertise: c.advertise, Control: c.control,
		Certs: files, Insecure: c.insecure, TTL: c.lease, Outage: outage,
		Logger: slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, nil
}

// errDrainedEarly ends a node that was told to drain before it took part.
var errDrainedEarly = errors.New("drained before it took part")

// whileEntering ends what cancel ends when the node is told to drain.
func (p *place) whileEntering(cancel context.CancelCauseFunc) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.node.Draining():
			cancel(errDrainedEarly)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// bring readies the run's data: this node's own, or a copy of what others have,
// and its part of the features where they are shared out.
func (c *clusterFlags) bring(ctx context.Context, p *place, r *node.Run, cfg *runtime.Config) error {
	if r.Data == "" {
		return nil
	}
	copied := cfg.Data.Path == ""
	values := c.shards == "" && c.roles.train
	if copied {
		cfg.Data.Path, cfg.Data.Format = filepath.Join(c.dir, "store"), "store"
		if err := c.copy(ctx, p, r, cfg.Data.Path, values); err != nil {
			return err
		}
	} else if err := p.node.Check(ctx, cfg.Data.Path); err != nil {
		return err
	}
	if c.shards == "" || !c.roles.rows && !c.roles.train {
		return p.node.Serve(ctx, cfg.Data.Path, c.shards == "" && (!copied || values))
	}
	o, err := parseShards(c.shards, nil)
	if err != nil {
		return err
	}
	o.Replicas, o.ReadOnly = c.replicas, !c.roles.rows
	p.features, err = p.node.HoldShards(ctx, r, cfg.Data.Path, o)
	if copied && errors.Is(err, node.ErrNoPartition) { // of an older copy
		if err := errors.Join(node.Forget(cfg.Data.Path), c.copy(ctx, p, r, cfg.Data.Path, values)); err != nil {
			return err
		}
		p.features, err = p.node.HoldShards(ctx, r, cfg.Data.Path, o)
	}
	if err != nil {
		return err
	}
	if err := p.node.Serve(ctx, cfg.Data.Path, false); err != nil {
		return err
	}
	cfg.Data.Rows = p.features.Store()
	return p.features.Ready(ctx)
}

// copy brings the store of the run to dir.
func (c *clusterFlags) copy(ctx context.Context, p *place, r *node.Run, dir string, values bool) error {
	said := time.Now()
	err := p.node.CopyTopology(ctx, r, dir, values, func(f transfer.Progress) {
		if time.Since(said) > time.Second {
			said = time.Now()
			p.a.logf("copying the data: %s of %s", formatBytes(f.Bytes), formatBytes(f.Total))
		}
	})
	if err == nil {
		p.a.logf("the data lies in %s", dir)
	}
	return err
}

// context returns what training runs under: an interrupt does not end it, but
// makes the node drain.
func (p *place) context(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	p.stop, p.watch = stop, make(chan struct{})
	go func() {
		defer close(p.watch)
		select {
		case <-inner.Done():
		case <-p.node.Member.Lost():
			p.endAfter(fencedLimit, exitFenced)
		case <-ctx.Done():
			p.handOverTraining(inner)
		}
	}()
	return inner
}

// How long a node takes to end that is fenced, or cannot hand over. What it does is
// void, or in its checkpoint; files are whole or not there.
const (
	fencedLimit = 4 * time.Second
	stuckLimit  = 2 * time.Second
)

// endAfter ends the process if it has not ended by itself until then.
func (p *place) endAfter(limit time.Duration, code int) {
	p.last = time.AfterFunc(limit, func() {
		p.a.logf("the node did not end within %v by itself", limit)
		p.a.exit(code)
	})
}

// handOverTraining drains the node, and ends training when that leads nowhere.
func (p *place) handOverTraining(training context.Context) {
	moving, over := p.node.WhileMoving(training, p.drain)
	defer over()
	if err := p.node.Drain(moving); err != nil && moving.Err() == nil {
		p.a.logf("the node could not be drained: %v", err)
	}
	select {
	case <-moving.Done():
	case <-p.node.Member.Lost(): // training ends by that
		p.endAfter(fencedLimit, exitInterrupted)
		return
	}
	if cause := context.Cause(moving); errors.Is(cause, node.ErrStuck) {
		p.stuck = cause
		p.endAfter(stuckLimit, exitInterrupted)
		p.stop(cause)
	}
}

// runs says what trains, or samples.
func (p *place) runs(ctx context.Context, rt *runtime.Runtime) error {
	if p == nil {
		return nil
	}
	p.rt.Store(rt)
	if p.roles.sample {
		if err := p.node.Sample(ctx, samplers.Run{ID: rt.SamplingID(), First: rt.FirstBatch(), Open: func() samplers.Draw { return rt.NewDraw() }}); err != nil {
			return err
		}
	}
	if p.samplers == nil {
		return nil
	}
	return p.samplers.Ready(ctx, rt.SamplingID(), rt.Plan().MaxSamplers, rt.Dataset().Graph.NumNodes())
}

// attends reports whether this node has other things to do than to train.
func (p *place) attends() bool { return p != nil && !p.roles.train }

// attend is what it does then, to the run's end.
func (p *place) attend(ctx context.Context) error {
	drained, err := p.node.Attend(ctx)
	p.given = err == nil
	switch {
	case err != nil:
		return err
	case drained:
		p.a.logf("drained: the other nodes have what this one did and held")
	default:
		p.a.logf("the run has come to its end")
	}
	if p.a.output == outputJSON {
		return p.a.printJSON(drainResult{Drained: drained})
	}
	return nil
}

// event hears of training.
func (p *place) event(e runtime.Event) {
	if p == nil {
		return
	}
	if e.Kind != runtime.EventStep {
		return
	}
	now := time.Now()
	p.steps.At(now, e.Applied)
	p.micros.At(now, p.team.Made())
	p.newest.Store(&e)
}

// progress is what `cluster status` shows.
func (p *place) progress() node.Progress {
	s := node.Progress{Epochs: p.epochs}
	if e := p.newest.Load(); e != nil {
		s.Epoch, s.Step = e.Epoch, e.Applied
		s.Late, s.Bound = e.Staleness, p.bound
	}
	if rt := p.rt.Load(); rt != nil {
		s.InFlight = rt.InFlight()
	}
	now := time.Now()
	s.StepsPerSecond, s.MicroPerSecond = p.steps.PerSecond(now, s.Step), p.micros.PerSecond(now, p.team.Made())
	return s
}

// drainResult is what --output json prints of a node that drained.
type drainResult struct {
	Drained     bool        `json:"drained"`
	ShardsLeft  int         `json:"shards_left"`  // that it still held
	ShardsTaken int64       `json:"shards_taken"` // since it joined
	ShardsGiven int64       `json:"shards_given"`
	Cluster     *teamResult `json:"cluster"`
}

// ended judges how training ended: nil, if it came to the run's end or this
// node's part is with the others.
func (p *place) ended(ctx context.Context, err error, checkpoint string) (drained bool, _ error) {
	switch {
	case p == nil:
		return false, err
	case err == nil:
		if p.features != nil {
			err = p.node.Done(ctx)
		}
		p.given = err == nil
		return false, errors.Join(err, p.node.Finish(ctx))
	case errors.Is(err, training.ErrLast):
		kept := "nothing was kept: --checkpoint DIR keeps what was done"
		if checkpoint != "" {
			kept = fmt.Sprintf("go on with --checkpoint %s --resume", checkpoint)
		}
		return false, fmt.Errorf("%w: %w; %s", context.Canceled, err, kept)
	case !errors.Is(err, training.ErrDrained):
		return false, err
	}
	r := drainResult{Drained: true, Cluster: p.result()}
	if p.features != nil {
		if err := p.features.Drain(ctx); err != nil {
			return true, err
		}
		p.given = true
		r.ShardsLeft = p.features.Held()
		r.ShardsTaken, r.ShardsGiven = p.features.Moves()
	}
	p.a.logf("drained: the other nodes have what this one did and held")
	if p.a.output == outputJSON {
		return true, p.a.printJSON(r)
	}
	return true, nil
}

// leave ends this node's membership.
func (p *place) leave(err error) error {
	if p == nil {
		return err
	}
	p.stop(nil)
	if p.watch != nil {
		<-p.watch
	}
	if p.last != nil {
		defer p.last.Stop()
	}
	if p.team != nil {
		p.team.Close()
	}
	ctx := context.Background()
	switch {
	case p.stuck != nil:
		err = fmt.Errorf("%w: %w", p.stuck, err)
		short, cancel := context.WithTimeout(ctx, stuckLimit/2)
		defer cancel()
		ctx = short
	case p.features != nil && !p.given:
		err = errors.Join(err, p.handOver())
	}
	return errors.Join(err, p.node.Leave(ctx))
}

// handing is how long a node that failed stays for the others to take its shards.
const handing = 30 * time.Second

// handOver gives the shards that lie here to the others.
func (p *place) handOver() error {
	ctx, over := p.node.WhileMoving(context.Background(), handing)
	defer over()
	// It trains no more: the others must not wait for it while shards move.
	err := p.node.Member.Announce(ctx, func(i *membership.Info) { i.Drain = true })
	if err == nil {
		err = p.features.Drain(ctx)
	}
	switch {
	case errors.Is(err, membership.ErrFenced):
		return nil // it has nothing any more
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// alone reports flags that say something of a cluster to a run that is in none.
func (c *clusterFlags) alone(cmd *cobra.Command) error {
	var idle []string
	for _, name := range []string{"wait-for", "shards", "replicas", "cluster-name", "node-dir", "listen", "advertise", "control", "lease", "outage", "drain-timeout", "node", "certs", "insecure", "roles"} {
		if cmd.Flags().Changed(name) {
			idle = append(idle, "--"+name)
		}
	}
	if idle != nil {
		return usagef("%s: for a cluster only; name its store with --cluster HOST:PORT, or leave them out", strings.Join(idle, ", "))
	}
	return nil
}
