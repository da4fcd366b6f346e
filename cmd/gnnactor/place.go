package main

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
)

// moveSampler is cluster.NodeOptions's, which tests have others of.
var moveSampler func(nodes []scheduler.SamplerNode, places []scheduler.SamplerPlace) (to scheduler.SamplerPlace, why string, ok bool)

// enter joins the cluster that the flags name; nil: they name none.
func (c *clusterFlags) enter(cmd *cobra.Command, a *app, cfg *runtime.Config, given map[string]string) (*cluster.Session, error) {
	if len(c.store) == 0 {
		return nil, c.alone(cmd)
	}
	options, err := c.options(a)
	if err != nil {
		return nil, err
	}
	options.MoveSampler = moveSampler
	o := cluster.Options{
		NodeOptions: *options, Config: *cfg, Given: append([]string{}, slices.Collect(maps.Keys(given))...), Joins: c.joins, Infers: c.infers,
		Shards: c.shards, Roles: c.roles.Roles, Drain: c.drain, Copying: a.copying(),
		Late: func(why error) {
			a.logf("%v", why)
			a.exit(exitCode(cmd.Context(), why))
		},
	}
	for kind, n := range c.capacity {
		if kind != "samplers" || n < 1 {
			return nil, usagef("--capacity %s=%d: it is samplers=N, with an N of 1 or more", kind, n)
		}
		o.MaxSamplers = n
	}
	for name, n := range map[string]*int{"wait-for": &c.least, "replicas": &c.replicas} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && *n < 1 {
			return nil, usagef("--%s %d: must be at least 1", name, *n)
		} else if f == nil || !f.Changed {
			*n = 0 // what the run has
		}
	}
	o.WaitFor, o.Replicas = c.least, c.replicas
	s, err := cluster.Join(cmd.Context(), o)
	if err == nil {
		*cfg = s.Config()
	}
	return s, err
}

// copying says from time to time how far data was copied.
func (a *app) copying() func(dir string, p dataplane.Progress, done bool) {
	said := time.Now()
	return func(dir string, p dataplane.Progress, done bool) {
		switch {
		case done:
			a.logf("the data lies in %s", dir)
		case time.Since(said) > time.Second:
			said = time.Now()
			a.logf("copying the data: %s of %s", formatBytes(p.Bytes), formatBytes(p.Total))
		}
	}
}

// rolesFlag is cluster.Roles as a flag's value.
type rolesFlag struct{ cluster.Roles }

// Type implements pflag.Value.
func (*rolesFlag) Type() string { return "ROLES" }

// options are those of this process as a node.
func (c *clusterFlags) options(a *app) (*cluster.NodeOptions, error) {
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
	return &cluster.NodeOptions{
		Cluster: c.name, Node: c.node, Dir: c.dir, Store: c.store, Listen: c.listen, Advertise: c.advertise, Control: c.control,
		Certs: files, Insecure: c.insecure, TTL: c.lease, Outage: outage,
		Logger: slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, nil
}

// alone reports flags that say something of a cluster to a run that is in none.
func (c *clusterFlags) alone(cmd *cobra.Command) error {
	if idle := c.idle(cmd); idle != nil {
		return usagef("%s: for a cluster only; name its store with --cluster HOST:PORT, or leave them out", strings.Join(idle, ", "))
	}
	return nil
}

// idle returns the flags that say something of a cluster, where none is named.
func (c *clusterFlags) idle(cmd *cobra.Command) (idle []string) {
	for _, name := range []string{"wait-for", "shards", "replicas", "cluster-name", "node-dir", "listen", "advertise", "control", "lease", "outage", "drain-timeout", "node", "certs", "insecure", "roles", "capacity"} {
		if len(c.store) == 0 && cmd.Flags().Changed(name) {
			idle = append(idle, "--"+name)
		}
	}
	return idle
}
