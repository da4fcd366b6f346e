package main

import (
	"fmt"
	"io"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/runtime"
)

// machineFlags describe a cluster that is planned.
type machineFlags struct {
	nodes     []string
	bandwidth string
	shards    string
	replicas  int
}

func (m *machineFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&m.nodes, "nodes", nil, "plan a cluster: `COUNT[:ROLES[:CORES[:SAMPLERS]]]` nodes, with roles out of sampler,trainer,rows (default: all), so many cores (default: this machine's), and at most so many samplers of other nodes (default: any number); again for nodes of another kind")
	f.StringVar(&m.bandwidth, "bandwidth", "", "`RATE` of each node's link, each way, like 10Gbit/s or 125MB/s (default: it bounds nothing)")
	f.StringVar(&m.shards, "shards", "", "with --nodes: the features are shared out in `N` parts")
	f.IntVar(&m.replicas, "replicas", 1, "nodes that hold each of the --shards")
}

// described returns the cluster; of no machines: none is described.
func (m *machineFlags) described() (d cluster.Described, err error) {
	d = cluster.Described{Shards: m.shards, Replicas: m.replicas}
	for _, text := range m.nodes {
		count, rest, _ := strings.Cut(text, ":")
		roles, rest, limited := strings.Cut(rest, ":")
		cores, most, full := strings.Cut(rest, ":")
		of := cluster.Machines{Roles: cluster.Roles{Sample: true, Train: true, Rows: true}, Cores: float64(goruntime.NumCPU())}
		if of.Count, err = strconv.Atoi(count); err != nil || of.Count < 1 || of.Count > 1<<12 {
			return d, usagef("--nodes %s: it is COUNT[:ROLES[:CORES[:SAMPLERS]]], like 2:trainer,rows:8, with a COUNT from 1 to 4096", text)
		}
		if roles != "" {
			if err := of.Roles.Set(roles); err != nil {
				return d, usagef("--nodes %s: %v", text, err)
			}
		}
		if limited && (cores != "" || !full) {
			if of.Cores, err = strconv.ParseFloat(cores, 64); err != nil || !(of.Cores > 0 && of.Cores <= 1<<12) {
				return d, usagef("--nodes %s: %q cores; a number like 8 or 0.5", text, cores)
			}
		}
		if full {
			if of.MaxSamplers, err = strconv.Atoi(most); err != nil || of.MaxSamplers < 1 {
				return d, usagef("--nodes %s: %q samplers at most; a number of 1 or more", text, most)
			}
		}
		d.Machines = append(d.Machines, of)
	}
	if m.bandwidth != "" {
		if d.Bandwidth, err = parseRate(m.bandwidth); err != nil {
			return d, usagef("--bandwidth %v", err)
		}
	}
	return d, nil
}

// parseRate reads "10Gbit/s" or "125MB/s", in bytes a second.
func parseRate(text string) (float64, error) {
	number := strings.TrimSuffix(text, "/s")
	scale := 1.0
	if bits, ok := strings.CutSuffix(number, "bit"); ok {
		number, scale = bits+"B", 1.0/8
	}
	rate, err := features.ParseBytes(number)
	if err != nil || rate == 0 {
		return 0, fmt.Errorf("%q is not a rate such as 10Gbit/s or 125MB/s", text)
	}
	return rate * scale, nil
}

// plan places the run's stages on the machines; nil: there are none.
func (m *machineFlags) plan(cmd *cobra.Command, cfg runtime.Config, rt *runtime.Runtime) (*cluster.ClusterPlan, error) {
	d, err := m.described()
	if err != nil {
		return nil, err
	}
	if len(d.Machines) == 0 {
		for _, name := range []string{"bandwidth", "shards", "replicas"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s is of a cluster; describe it with --nodes", name)
			}
		}
		return nil, nil
	}
	costs, err := rt.Costs(cmd.Context())
	if err != nil {
		return nil, err
	}
	return d.Plan(cfg, rt, costs)
}

// printPlaces writes where stages would be, and why.
func printPlaces(w io.Writer, p *cluster.ClusterPlan) error {
	if p == nil {
		return nil
	}
	var t table
	t.row("node", "roles", "cores", "micro-batches", "samplers", "shards", "a step takes of its cores", "of its link")
	took := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return formatDuration(d)
	}
	for _, n := range p.Nodes {
		samplers := some(n.Samplers)
		if n.MaxSamplers > 0 {
			samplers += fmt.Sprintf(" (%d at most)", n.MaxSamplers)
		}
		t.row(n.Node, n.Roles, significant(n.Cores), fmt.Sprint(n.Micro), samplers, some(n.Shards), took(n.Work), took(n.Wire))
	}
	c := &p.Costs
	_, err := fmt.Fprintf(w, "\ncluster: a micro-batch takes %s to sample and %s to compute on one core; its blocks have %s, its rows %s\n", took(c.Sample), took(c.Compute), formatBytes(c.BlockBytes), formatBytes(c.RowBytes))
	if err != nil {
		return err
	}
	if err := t.write(w); err != nil {
		return err
	}
	if p.Step > 0 {
		if _, err := fmt.Fprintf(w, "  a step takes %s at least, for %s\n", formatDuration(p.Step), p.Bound); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "  %s\n", strings.Join(p.Why, "\n  "))
	return err
}

// some returns names with commas between; of many the number.
func some[T any](all []T) string {
	switch {
	case len(all) == 0:
		return "-"
	case len(all) > 6:
		return fmt.Sprint(len(all))
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ",")
}
