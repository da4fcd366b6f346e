package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/runtime"
)

// A cluster is planned by what places stages in one: samplers leave a node that is slow, or whose link is, and the
// step's bound is what takes longest.
func TestDescribed(t *testing.T) {
	cfg := runtime.DefaultConfig()
	cfg.Sampling.MicroBatches, cfg.Execution.Samplers, cfg.Execution.Threads = 4, 2, 1
	rt, err := runtime.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Stop(); err != nil {
			t.Error(err)
		}
	}()
	costs := runtime.Costs{Sample: 8 * time.Millisecond, Compute: 2 * time.Millisecond, BlockBytes: 1e5, RowBytes: 1e6}
	roles := func(text string) (r Roles) {
		if err := r.Set(text); err != nil {
			t.Fatal(err)
		}
		return r
	}
	apart := []Machines{{2, roles("trainer,rows"), 4, 0}, {1, roles("sampler"), 4, 0}, {1, roles("sampler"), 0.25, 0}}
	many := func(p *ClusterPlan) (n []int) {
		for _, x := range p.Nodes {
			n = append(n, len(x.Samplers))
		}
		return n
	}
	p, err := (&Described{Machines: apart, Shards: "4", Bandwidth: 1e9}).Plan(cfg, rt, costs)
	if err != nil {
		t.Fatal(err)
	}
	if got := many(p); !slices.Equal(got, []int{0, 0, 4, 0}) {
		t.Errorf("samplers on %v", got)
	}
	if !slices.ContainsFunc(p.Why, func(s string) bool { return strings.Contains(s, "goes to n2") }) {
		t.Errorf("nothing of it is explained: %q", p.Why)
	}
	if n := p.Nodes; n[0].Micro != 2 || n[1].Micro != 2 || len(n[0].Shards)+len(n[1].Shards) != 4 {
		t.Errorf("%+v", n)
	}
	// Four micro-batches of 8 ms on four cores.
	if p.Step != 8*time.Millisecond || p.Bound != "the cores of n2" {
		t.Errorf("a step takes %v for %s", p.Step, p.Bound)
	}

	// Alike but for their links: what one cannot send is made on another.
	costs.BlockBytes = 1e6
	wide, err := (&Described{Machines: []Machines{{1, roles("trainer,rows"), 4, 0}, {2, roles("sampler"), 8, 0}}, Bandwidth: 1e8}).Plan(cfg, rt, costs)
	if err != nil {
		t.Fatal(err)
	}
	if got := many(wide); !slices.Equal(got, []int{0, 1, 1}) {
		t.Errorf("samplers on %v", got)
	}
	if wide.Step != 40*time.Millisecond || wide.Bound != "the link of n0" {
		t.Errorf("a step takes %v for %s", wide.Step, wide.Bound)
	}

	// The fast one takes one at most: its samplers that others have stay where they are.
	apart[1].MaxSamplers = 1
	full, err := (&Described{Machines: apart, Shards: "4"}).Plan(cfg, rt, costs)
	if err != nil {
		t.Fatal(err)
	}
	if got := many(full); !slices.Equal(got, []int{0, 0, 1, 3}) || full.Nodes[2].MaxSamplers != 1 {
		t.Errorf("samplers on %v, of which n2 takes %d at most", got, full.Nodes[2].MaxSamplers)
	}

	for want, d := range map[string]Described{
		"sampler n1:1: some samplers fit on no node": {Machines: []Machines{{2, roles("trainer,rows"), 1, 0}, {3, roles("sampler"), 1, 1}}},
		"which take none":           {Machines: []Machines{{2, roles("trainer,rows"), 1, 1}, {3, roles("sampler"), 1, 1}}},
		"no node trains":            {Machines: []Machines{{2, roles("sampler"), 1, 0}}},
		"no node samples":           {Machines: []Machines{{2, roles("trainer,rows"), 1, 0}}},
		"no node holds rows":        {Machines: []Machines{{2, roles("trainer,sampler"), 1, 0}}, Shards: "2"},
		"5 nodes that train":        {Machines: []Machines{{5, roles("trainer,sampler,rows"), 1, 0}}},
		"without shards every":      {Machines: []Machines{{1, roles("trainer,sampler"), 1, 0}}},
		"it is a number of parts":   {Machines: []Machines{{1, roles("trainer,sampler,rows"), 1, 0}}, Shards: "x"},
		"nothing to do for this no": {Machines: []Machines{{1, roles("trainer,sampler,rows"), 1, 0}, {1, roles("rows"), 1, 0}}},
	} {
		if _, err := d.Plan(cfg, rt, costs); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
