package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
)

// Settings of the run that are no fields of runtime.Config.
const (
	runData     = "data" // built-in; store: nodes may copy it; set: likewise, a partition set; own: each node has it, in a form that cannot be copied
	runShards   = "shards"
	runReplicas = "replicas"
	runWaitFor  = "wait-for"
	runStages   = "stages" // of the program's own, and its sampler
	runDraws    = "cache"  // of gns, which says how many nodes its sampler draws; empty: no such cache, or the sampler's options say it

	runInfers = "infers" // what is computed by inference, by all pieces of a set; empty: training

	dataBuiltin, dataStore, dataSet, dataOwn = "built-in", "store", "set", "own"
)

// proposal is the run that this node would begin.
func (o *Options) proposal(ctx context.Context) (r *Run, err error) {
	cfg := &o.Config
	r = &Run{Settings: map[string]string{
		runData: dataBuiltin, runShards: "", runReplicas: strconv.Itoa(max(o.Replicas, 1)), runWaitFor: strconv.Itoa(max(o.WaitFor, 1)),
		runStages: ownParts(cfg), runDraws: draws(cfg), runInfers: o.Infers,
	}}
	for _, name := range runtime.RunSettings() {
		r.Settings[name] = cfg.Setting(name).String()
	}
	if cfg.Data.Path == "" {
		if o.Shards != "" {
			return nil, optionsf("shards: the built-in graph is on every node; give data, or leave it out")
		}
		return r, nil
	}
	if cfg.Data.Format == "" && pieces.IsSet(cfg.Data.Path) {
		set, err := pieces.Open(cfg.Data.Path)
		if err != nil {
			return nil, err
		}
		r.Settings[runData], r.Data = dataSet, set.Fingerprint()
		return r, nil
	}
	s, err := openStore(cfg)
	switch {
	case err != nil:
		return nil, err
	case s == nil && o.Shards != "":
		return nil, optionsf("shards: %s is no store; make one with 'gnnactor import %s STORE'", cfg.Data.Path, cfg.Data.Path)
	case s == nil:
		r.Settings[runData] = dataOwn
		return r, nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ds := s.Dataset()
	r.Settings[runData], r.Data = dataStore, ds.Fingerprint
	if o.Shards == "" {
		return r, nil
	}
	return r, graph.Guard(func() error {
		shards, err := parseShards(o.Shards, ds)
		if err != nil {
			return err
		}
		r.Settings[runShards] = fmt.Sprintf("%s:%d", shards.Method, shards.Parts)
		_, r.Map, err = shards.Deal(ctx, ds)
		return err
	})
}

// draws returns the cache of a configuration that results depend on.
func draws(cfg *runtime.Config) string {
	if strings.HasPrefix(cfg.Memory.Cache, string(features.CacheGNS)) && cfg.Sampling.Options["cache-fraction"] == "" {
		return cfg.Memory.Cache
	}
	return ""
}

// openStore opens what there is of cfg.Data.Path beside edges and features; nil: it is no store.
func openStore(cfg *runtime.Config) (*store.Store, error) {
	format := cfg.Data.Format
	if format == "" {
		var err error
		if format, err = importer.DetectFormat(cfg.Data.Path); err != nil {
			return nil, err
		}
	}
	if format != "store" {
		return nil, nil
	}
	return store.OpenPart(cfg.Data.Path, 0)
}

// parseShards reads N or METHOD:N. N alone means a partition of N parts that is
// saved with the data, or else by hash. ds may be nil: METHOD must be given.
func parseShards(text string, ds *graph.Dataset) (s Shards, err error) {
	number, named := text, false
	s.Method = "hash"
	if method, n, ok := strings.Cut(text, ":"); ok {
		s.Method, number, named = method, n, true
	}
	if s.Parts, err = strconv.Atoi(number); err != nil || s.Parts < 1 || s.Parts > 1<<16 || !slices.Contains(partition.Methods(), s.Method) {
		return s, optionsf("shards %s: it is a number of parts from 1 to 65536, or METHOD:N with a method out of %s; leave it out, and every node has all features", text, strings.Join(partition.Methods(), ", "))
	}
	if !named && ds != nil {
		if p := ds.Partition("", s.Parts); p != nil {
			s.Method = p.Method
		}
	}
	return s, nil
}

// agree agrees with the other nodes on the run, makes Options what it is, and brings its data.
func (s *Session) agree(ctx context.Context, propose *Run) error {
	o := &s.o
	required := o.required(propose)
	check := func(r *Run) error { return o.check(r, required, propose) }
	r, err := s.node.AgreeOnRun(ctx, propose, o.Joins || o.Config.Checkpoint.Resume, check)
	if err != nil {
		return err
	}
	if err := o.adopt(r); err != nil {
		return err
	}
	if err := o.suits(r); err != nil {
		return err
	}
	s.spreads = o.spreads(r)
	o.Config.Cluster.Away = !o.Roles.Sample // others have the topology
	return s.bring(ctx, r)
}

// required returns what this node was told that a run must have: names and values
// of settings. propose is what it would begin; nil: it was not to begin any.
func (o *Options) required(propose *Run) map[string]string {
	all := map[string]string{}
	plain := runtime.DefaultConfig()
	for _, name := range runtime.RunSettings() {
		value := o.Config.Setting(name).String()
		if o.Given == nil && value != plain.Setting(name).String() || slices.Contains(o.Given, name) {
			all[name] = value
		}
	}
	if propose == nil {
		return all
	}
	for name, given := range map[string]bool{runShards: o.Shards != "", runReplicas: o.Replicas != 0, runWaitFor: o.WaitFor != 0, runData: o.Config.Data.Path != ""} {
		if given {
			all[name] = propose.Settings[name]
		}
	}
	return all
}

// check reports why this node cannot take part in r.
func (o *Options) check(r *Run, required map[string]string, propose *Run) error {
	if err := r.Differences(required); err != nil {
		return &optionsError{err}
	}
	path, own := o.Config.Data.Path, ownParts(&o.Config)
	switch drawn := draws(&o.Config); {
	case drawn != "" && drawn != r.Settings[runDraws]:
		return optionsf("%w, which node %s began: cache is %s, and %s here, and the sampler draws as many nodes; leave it out", ErrOtherRun, r.Node, orNone(r.Settings[runDraws]), drawn)
	case r.Settings[runStages] != own:
		return optionsf("%w, which node %s began: its own stages and sampler are %s, and %s here; run the program that has them, in that version, on every node", ErrOtherRun, r.Node, orNone(r.Settings[runStages]), orNone(own))
	case path != "" && propose != nil && propose.Data != r.Data:
		return optionsf("%w, which node %s began: data: its fingerprint is %.12s, and that of %s %.12s", ErrOtherRun, r.Node, r.Data, path, propose.Data)
	case r.Settings[runInfers] != o.Infers:
		return optionsf("%w, which node %s began: that computes %s, and this node %s; give all nodes the same command, or them different cluster-names", ErrOtherRun, r.Node, cmp.Or(r.Settings[runInfers], "train"), cmp.Or(o.Infers, "train"))
	case path == "" && r.Settings[runData] == dataOwn:
		return optionsf("data: node %s began a run on data that cannot be copied; give data, or begin it with a store, as 'gnnactor import' makes", r.Node)
	}
	return nil
}

// ownParts names what of a run is the program's own: a node that only samples is told by
// nothing else that its sampler is of another version.
func ownParts(cfg *runtime.Config) string {
	names := cfg.StageNames()
	if own := cfg.Sampling.Own; own != nil {
		names = append(names, fmt.Sprintf("sampler %s %s", cfg.Sampling.Sampler, own.Version))
	}
	return strings.Join(names, ", ")
}

func orNone(s string) string { return cmp.Or(s, "none") }

// dataSuits reports why this node's data cannot be trained on with the settings of the run that
// there is, or else its own, which it would begin: before it is a node, and others take
// part in what cannot be done. Data that is not here is not looked at; what is no store is imported for it.
func (o Options) dataSuits(ctx context.Context, propose *Run) (err error) {
	r, err := Begun(ctx, o.NodeOptions)
	if err != nil {
		return err
	}
	if r != nil {
		if err := o.check(r, o.required(propose), propose); err != nil {
			return err
		}
		if err := o.adopt(r); err != nil {
			return err
		}
	}
	wants := cmp.Or(r, propose)
	if err := o.suits(wants); err != nil || wants.Data != propose.Data {
		return err
	}
	if propose.Settings[runData] == dataSet {
		return nil // its pieces are opened where they are to be
	}
	if !o.Roles.Train && !o.Roles.Sample {
		return nil // it neither trains nor samples
	}
	o.Config.Cluster.Away = !o.Roles.Sample
	if o.Shards == "" || !o.Roles.Train {
		return runtime.Check(ctx, o.Config)
	}
	s, err := openData(o.Config.Data.Path, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	table := s.Dataset().NodeFeatures
	if table == nil {
		return optionsf("shards: %s has no node features to share out; leave it out", o.Config.Data.Path)
	}
	o.Config.Data.Rows = features.InMemory(table) // of which their layout matters
	return errors.Join(runtime.Check(ctx, o.Config), o.Config.Data.Rows.Close())
}

// adopt makes o what the run is.
func (o *Options) adopt(r *Run) error {
	cfg := &o.Config
	for _, name := range runtime.RunSettings() {
		text, ok := r.Settings[name]
		if !ok {
			return fmt.Errorf("the run of node %s says nothing of %s; run one version of gnnactor on all nodes", r.Node, name)
		}
		v := cfg.Setting(name)
		if v.String() == text {
			continue
		}
		if text == "" {
			v.Value().Set(reflect.Zero(v.Value().Type()))
		} else if err := v.Set(text); err != nil {
			return fmt.Errorf("the run of node %s has %s %q: %w; run one version of gnnactor on all nodes", r.Node, name, text, err)
		}
	}
	var err error
	for name, n := range map[string]*int{runReplicas: &o.Replicas, runWaitFor: &o.WaitFor} {
		if *n, err = strconv.Atoi(r.Settings[name]); err != nil {
			return fmt.Errorf("the run of node %s has %s %q", r.Node, name, r.Settings[name])
		}
	}
	o.Shards = r.Settings[runShards]
	if drawn := r.Settings[runDraws]; drawn != "" {
		cfg.Memory.Cache = drawn
	}
	if o.WaitFor < 1 || o.WaitFor > cfg.MaxTrainers() && !o.spreads(r) {
		return optionsf("wait-for %d: must be at least 1 and at most micro-batches, %d; each node needs one", o.WaitFor, cfg.Sampling.MicroBatches)
	}
	if o.Replicas < 1 {
		return optionsf("replicas %d: must be at least 1", o.Replicas)
	}
	if saved := cfg.Model.Saved; o.Infers != "" && saved != nil {
		if about, err := saved.Description(); err != nil {
			// parameters are compared before they are used
		} else if err := about.Check(cfg); err != nil {
			return optionsf("%w, which node %s began with another model than the one here (%s): %w; give all nodes the same", ErrOtherRun, r.Node, cfg.Model.Params, err)
		}
	}
	return cfg.Validate()
}

// bring readies the run's data: this node's own, or a copy of what others have,
// and its part of the features where they are shared out.
func (s *Session) bring(ctx context.Context, r *Run) error {
	o, cfg := &s.o, &s.o.Config
	if r.Data == "" {
		return nil
	}
	if r.Settings[runData] == dataSet {
		return s.bringSet(ctx, r)
	}
	copied := cfg.Data.Path == ""
	parts := o.parts()
	if copied {
		cfg.Data.Path, cfg.Data.Format = filepath.Join(o.Dir, "store"), "store"
		if err := s.copy(ctx, r, parts); err != nil {
			return err
		}
	} else if err := s.node.Check(ctx, cfg.Data.Path, parts); err != nil {
		return err
	}
	serves := store.Whole
	if o.Shards != "" {
		serves &^= store.NodeValues // those are shared out
	}
	if o.Shards == "" || !o.Roles.Rows && !o.Roles.Train {
		return s.node.Serve(ctx, cfg.Data.Path, serves)
	}
	shards, err := parseShards(o.Shards, nil)
	if err != nil {
		return err
	}
	shards.Replicas, shards.ReadOnly = o.Replicas, !o.Roles.Rows
	s.features, err = s.node.HoldShards(ctx, r, cfg.Data.Path, shards)
	if copied && errors.Is(err, ErrNoPartition) { // of an older copy
		if err := errors.Join(Forget(cfg.Data.Path), s.copy(ctx, r, parts)); err != nil {
			return err
		}
		s.features, err = s.node.HoldShards(ctx, r, cfg.Data.Path, shards)
	}
	if err != nil {
		return err
	}
	if err := s.node.Serve(ctx, cfg.Data.Path, serves); err != nil {
		return err
	}
	cfg.Data.Rows = s.features.Store()
	return s.features.Ready(ctx)
}

// parts are those of the run's data that this node needs.
func (o *Options) parts() (parts store.Part) {
	if o.Roles.Sample || o.Roles.Train {
		parts = o.Config.Parts()
	}
	if o.Roles.Train && o.Shards == "" {
		parts |= store.NodeValues
	}
	return parts
}

// copy brings the store of the run to this node's directory.
func (s *Session) copy(ctx context.Context, r *Run, parts store.Part) error {
	dir, tell := s.o.Config.Data.Path, s.o.Copying
	if tell == nil {
		tell = func(string, dataplane.Progress, bool) {}
	}
	var last dataplane.Progress
	err := s.node.CopyData(ctx, r, dir, parts, func(p dataplane.Progress) {
		last = p
		tell(dir, p, false)
	})
	if err == nil {
		tell(dir, last, true)
	}
	return err
}
