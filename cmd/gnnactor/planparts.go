package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
)

// partsFlags name a partition set that is planned for.
type partsFlags struct{ report, memory string }

func (p *partsFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.report, "parts", "", "plan global batches over a partition set: `FILE` that 'gnnactor inspect SET --output json' printed, or the set's directory")
	cmd.Flags().StringVar(&p.memory, "memory", "", "with --parts: `SIZE` of each node's memory, like 64GiB (default: it bounds nothing)")
}

// maxReport is the largest report that is read: of as many pieces as there may be.
const maxReport = 1 << 30

// partsSummary reads what is known of the set.
func partsSummary(cmd *cobra.Command, name string) (*pieces.Summary, error) {
	if pieces.IsSet(name) {
		set, err := pieces.Open(name)
		if err != nil {
			return nil, err
		}
		return set.Summary(cmd.Context())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--parts: %w; make it with 'gnnactor inspect SET --output json >%s'", err, name)
	}
	defer f.Close()
	s := new(pieces.Summary)
	if err := json.NewDecoder(io.LimitReader(f, maxReport)).Decode(s); err != nil {
		return nil, fmt.Errorf("--parts %s: it is no report of a partition set (%w); make it with 'gnnactor inspect SET --output json >%[1]s'", name, err)
	}
	return s, nil
}

// planParts shows what global batches over the set take of the machines; of none, of 1, 2, 4, … up to one for each piece.
func (a *app) planParts(cmd *cobra.Command, cfg runtime.Config, m *machineFlags, p *partsFlags) error {
	for _, name := range []string{"data", "shards", "replicas"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s: with --parts nothing is read but the partition set's report", name)
		}
	}
	d, err := m.described()
	if err != nil {
		return err
	}
	if len(d.Machines) > 1 || len(d.Machines) == 1 && d.Machines[0].Roles != (cluster.Roles{Sample: true, Train: true, Rows: true}) {
		return usagef("--nodes: with --parts nodes are alike and do all: COUNT or COUNT::CORES")
	}
	memory := uint64(0)
	if p.memory != "" {
		if memory, err = humanize.ParseBytes(p.memory); err != nil || memory == 0 || memory > 1<<62 {
			return usagef("--memory: %q is not a size; write 64GiB, say", p.memory)
		}
	}
	sum, err := partsSummary(cmd, p.report)
	if err != nil {
		return err
	}
	parts, err := runtime.TryParts(cmd.Context(), cfg, sum)
	if err != nil {
		return err
	}
	parts.Cores, parts.Bandwidth, parts.Memory = float64(goruntime.NumCPU()), d.Bandwidth, int64(memory)
	if len(d.Machines) == 0 {
		return a.showPartsTable(parts)
	}
	parts.Nodes, parts.Cores = d.Machines[0].Count, d.Machines[0].Cores
	plan, err := parts.PlanFitting()
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		err = a.printJSON(plan)
	} else {
		_, err = fmt.Fprint(a.stdout, plan)
	}
	return errors.Join(err, plan.Check())
}

// showPartsTable shows a plan for each number of nodes.
func (a *app) showPartsTable(parts scheduler.Parts) error {
	var all []*scheduler.PartsPlan
	var t table
	t.row("nodes", "memory of a node", "of it mapped", "between nodes", "a step", "of it computing")
	for n := 1; n <= len(parts.Parts); n *= 2 {
		parts.Nodes = n
		p, err := parts.Plan()
		if err != nil {
			return err
		}
		all = append(all, p)
		most, computing := &p.Nodes[p.Largest], int64(0)
		for _, phase := range p.Phases {
			if slices.Contains([]string{"forward", "backward"}, phase.Name) {
				computing += int64(phase.Time)
			}
		}
		t.row(formatCount(n), formatBytes(most.Bytes()), formatBytes(most.Mapped), formatBytes(p.Sent), formatDuration(time.Duration(p.Step)), formatDuration(time.Duration(computing)))
	}
	if a.output == outputJSON {
		return a.printJSON(all)
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "\nMore than %d nodes are an extrapolation: plans were compared with runs of no more. Times are of this machine's processor.\n", scheduler.RanOn)
	return err
}
