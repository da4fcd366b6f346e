package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster/node"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
)

// shared are the settings that all nodes of a run have in common: those that
// change what it computes, and how long.
func shared() (all []setting) {
	for _, s := range settings {
		switch s.group {
		case modelGroup, samplingGroup, trainingGroup:
			if s.name != "params" { // a file of each node's
				all = append(all, s)
			}
		default:
			if s.name == "normalize-features" {
				all = append(all, s)
			}
		}
	}
	return all
}

// Settings of the run that are no fields of runtime.Config.
const (
	runData     = "data" // built-in; store: nodes may copy it; own: each node has it, in a form that cannot be copied
	runShards   = "shards"
	runReplicas = "replicas"
	runWaitFor  = "wait-for"
	runStages   = "stages" // of the program's own: this one has none

	dataBuiltin, dataStore, dataOwn = "built-in", "store", "own"
)

// proposal is the run that this node would begin.
func (c *clusterFlags) proposal(ctx context.Context, cfg *runtime.Config) (r *node.Run, err error) {
	r = &node.Run{Settings: map[string]string{
		runData: dataBuiltin, runShards: "", runReplicas: strconv.Itoa(c.replicas), runWaitFor: strconv.Itoa(c.least),
		runStages: strings.Join(cfg.StageNames(), ", "),
	}}
	for _, s := range shared() {
		r.Settings[s.name] = (&fieldValue{field(cfg, s.name)}).String()
	}
	if cfg.Data.Path == "" {
		if c.shards != "" {
			return nil, usagef("--shards: the built-in graph is on every node; give --data, or leave it out")
		}
		return r, nil
	}
	s, err := openStore(cfg)
	switch {
	case err != nil:
		return nil, err
	case s == nil && c.shards != "":
		return nil, usagef("--shards: %s is no store; make one with 'gnnactor import %s STORE'", cfg.Data.Path, cfg.Data.Path)
	case s == nil:
		r.Settings[runData] = dataOwn
		return r, nil
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ds := s.Dataset()
	r.Settings[runData], r.Data = dataStore, ds.Fingerprint
	if c.shards == "" {
		return r, nil
	}
	return r, graph.Guard(func() error {
		o, err := parseShards(c.shards, ds)
		if err != nil {
			return err
		}
		r.Settings[runShards] = fmt.Sprintf("%s:%d", o.Method, o.Parts)
		_, r.Map, err = o.Deal(ctx, ds)
		return err
	})
}

// openStore opens cfg.Data.Path; nil: it is no store.
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
	return store.Open(cfg.Data.Path)
}

// parseShards reads N or METHOD:N. N alone means a partition of N parts that is
// saved with the data, or else by hash. ds may be nil: METHOD must be given.
func parseShards(text string, ds *graph.Dataset) (o node.Shards, err error) {
	number, named := text, false
	o.Method = "hash"
	if method, n, ok := strings.Cut(text, ":"); ok {
		o.Method, number, named = method, n, true
	}
	if o.Parts, err = strconv.Atoi(number); err != nil || o.Parts < 1 || o.Parts > 1<<16 || !slices.Contains(partition.Methods(), o.Method) {
		return o, usagef("--shards %s: it is a number of parts up to 65536, or METHOD:N with a method out of %s", text, strings.Join(partition.Methods(), ", "))
	}
	if !named && ds != nil {
		if p := ds.Partition("", o.Parts); p != nil {
			o.Method = p.Method
		}
	}
	return o, nil
}

// required returns what this node was told that a run must have: names and values
// of settings. propose is what it would begin; nil: it was not to begin any.
func (c *clusterFlags) required(cmd *cobra.Command, cfg *runtime.Config, given map[string]string, propose *node.Run) map[string]string {
	all := map[string]string{}
	for _, s := range shared() {
		if given[s.name] != "" {
			all[s.name] = (&fieldValue{field(cfg, s.name)}).String()
		}
	}
	for _, name := range []string{runShards, runReplicas, runWaitFor} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && propose != nil {
			all[name] = propose.Settings[name]
		}
	}
	if cfg.Data.Path != "" && propose != nil {
		all[runData] = propose.Settings[runData]
	}
	return all
}

// check reports why this node cannot take part in r.
func (c *clusterFlags) check(r *node.Run, required map[string]string, propose *node.Run, cfg *runtime.Config) error {
	if err := r.Differences(required); err != nil {
		return &usageError{err}
	}
	switch own := strings.Join(cfg.StageNames(), ", "); {
	case r.Settings[runStages] != own:
		return usagef("%w, which node %s began: stages of its own are %s, and %s here; run the program that has them, in that version, on every node", node.ErrOtherRun, r.Node, orNone(r.Settings[runStages]), orNone(own))
	case cfg.Data.Path != "" && propose != nil && propose.Data != r.Data:
		return usagef("%w, which node %s began: data: its fingerprint is %.12s, and that of %s %.12s", node.ErrOtherRun, r.Node, r.Data, cfg.Data.Path, propose.Data)
	case cfg.Data.Path == "" && r.Settings[runData] == dataOwn:
		return usagef("data: node %s began a run on data that cannot be copied; give --data, or begin it with a store, as 'gnnactor import' makes", r.Node)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// adopt makes cfg and c what the run is.
func (c *clusterFlags) adopt(r *node.Run, cfg *runtime.Config) error {
	known := shared()
	for name, text := range r.Settings {
		i := slices.IndexFunc(known, func(s setting) bool { return s.name == name })
		if i < 0 {
			continue
		}
		f := field(cfg, name)
		v := &fieldValue{f}
		if v.String() == text {
			continue
		}
		if text == "" {
			f.Set(reflect.Zero(f.Type()))
		} else if err := v.Set(text); err != nil {
			return fmt.Errorf("the run of node %s has %s %q: %w; run one version of gnnactor on all nodes", r.Node, name, text, err)
		}
	}
	for _, s := range known {
		if _, ok := r.Settings[s.name]; !ok {
			return fmt.Errorf("the run of node %s says nothing of %s; run one version of gnnactor on all nodes", r.Node, s.name)
		}
	}
	var err error
	for name, n := range map[string]*int{runReplicas: &c.replicas, runWaitFor: &c.least} {
		if *n, err = strconv.Atoi(r.Settings[name]); err != nil {
			return fmt.Errorf("the run of node %s has %s %q", r.Node, name, r.Settings[name])
		}
	}
	c.shards = r.Settings[runShards]
	if c.least < 1 || c.least > cfg.MaxTrainers() {
		return usagef("--wait-for %d: must be at least 1 and at most --micro-batches %d; each node needs one", c.least, cfg.Sampling.MicroBatches)
	}
	if c.replicas < 1 {
		return usagef("--replicas %d: must be at least 1", c.replicas)
	}
	return cfg.Validate()
}
