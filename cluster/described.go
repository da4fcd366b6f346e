package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/scheduler"
)

// Machines are nodes of a cluster that are alike.
type Machines struct {
	Count       int
	Roles       Roles
	Cores       float64
	MaxSamplers int // as Options have it
}

// Described is a cluster that there is not yet, to be planned.
type Described struct {
	Machines  []Machines
	Bandwidth float64 // of a machine's link, in bytes a second, each way; 0: it bounds nothing
	Shards    string  // as Options have them
	Replicas  int
}

// PlannedNode is a node with what it would do, and what that takes of each step at least.
type PlannedNode struct {
	Node        string        `json:"node"`
	Roles       string        `json:"roles"`
	Cores       float64       `json:"cores"`
	Micro       int           `json:"micro_batches"` // of a step's that it computes
	Samplers    []string      `json:"samplers"`
	MaxSamplers int           `json:"max_samplers,omitempty"` // of other nodes
	Shards      []int         `json:"shards"`
	Work        time.Duration `json:"work_ns"` // of its cores
	Wire        time.Duration `json:"wire_ns"` // of its link, in the direction that takes longer
}

// ClusterPlan says where the stages of a run would be.
type ClusterPlan struct {
	Costs  runtime.Costs `json:"micro_batch"`
	Nodes  []PlannedNode `json:"nodes"`
	Actors []Actor       `json:"actors"`
	Why    []string      `json:"why"`
	Step   time.Duration `json:"step_ns"` // at the least; 0: not known
	Bound  string        `json:"bound"`   // what it waits for
}

// Plan places the stages of the run of cfg that rt is, of which a micro-batch takes costs, with the functions that place them
// in a cluster. Of several nodes the first leads. What the times leave out are waits: a step takes longer.
func (d *Described) Plan(cfg runtime.Config, rt *runtime.Runtime, costs runtime.Costs) (*ClusterPlan, error) {
	p := &ClusterPlan{Costs: costs}
	v, at := &membership.View{}, map[string]*PlannedNode{}
	say := func(format string, args ...any) { p.Why = append(p.Why, fmt.Sprintf(format, args...)) }
	all := 0
	for _, m := range d.Machines {
		all += m.Count
	}
	var rows, train []string
	for _, m := range d.Machines {
		o := Options{Roles: m.Roles, Shards: d.Shards, Config: cfg}
		if err := o.suit(rt.Dataset()); err != nil {
			return nil, err
		}
		if m.MaxSamplers > 0 && !m.Roles.Sample {
			return nil, optionsf("%d samplers at most, on nodes with roles %s, which take none; leave it out, or add sampler", m.MaxSamplers, &m.Roles)
		}
		for range m.Count {
			i := membership.Info{Node: fmt.Sprintf("n%0*d", len(fmt.Sprint(all-1)), len(v.Members)), Epoch: int64(len(v.Members) + 1), Samples: m.Roles.Sample, Most: m.MaxSamplers}
			if m.Roles.Sample {
				i.Kinds = append(i.Kinds, samplers.Kind)
			}
			if m.Roles.Train {
				i.Kinds, train = append(i.Kinds, trainers.Kind), append(train, i.Node)
				if i.Samplers = rt.Plan().MaxSamplers; cfg.Execution.Samplers == 0 && i.Samplers > 1 {
					i.Samplers = max(int(m.Cores), 1)
				}
			}
			if m.Roles.Rows && d.Shards != "" {
				i.Kinds, rows = append(i.Kinds, shard.Kind), append(rows, i.Node)
			}
			v.Members = append(v.Members, i)
			p.Nodes = append(p.Nodes, PlannedNode{Node: i.Node, Roles: m.Roles.String(), Cores: m.Cores, MaxSamplers: m.MaxSamplers, Samplers: []string{}, Shards: []int{}})
		}
	}
	for i := range p.Nodes {
		at[p.Nodes[i].Node] = &p.Nodes[i]
	}
	switch most := cfg.MaxTrainers(); {
	case len(train) == 0:
		return nil, optionsf("%s", trainers.Nobody)
	case len(train) > most:
		return nil, optionsf("%d micro-batches, and %d nodes that train; raise micro-batches, or let fewer train", most, len(train))
	case slices.ContainsFunc(v.Members, needsSamplers) && !slices.ContainsFunc(v.Members, func(m membership.Info) bool { return samplers.Can(&m) }):
		return nil, optionsf("%s", samplers.Nobody)
	case d.Shards != "" && len(rows) == 0:
		return nil, optionsf("%s", shard.Nobody)
	}

	v.Leader = v.Members[0].Node
	p.Actors = append(p.Actors, Actor{Kind: kindCoordinator, ID: theRun, Node: v.Leader})
	say("coordinator: whoever comes first leads, and any other when it is gone")
	micro := cfg.Sampling.MicroBatches
	if cfg.Training.Sync.Asynchronous() {
		p.Actors = append(p.Actors, Actor{Kind: kindParameters, ID: theRun, Node: train[0]})
		say("parameters: gradients may be late, so that one node has them, the first that trains")
	} else if len(train) > 1 {
		say("parameters: every node that trains has the same, as all add up the gradients of all")
	}
	for k, node := range train {
		from, to := trainers.Deal(micro, len(train), k)
		at[node].Micro = to - from
		p.Actors = append(p.Actors, Actor{Kind: trainers.Kind, ID: node, Node: node})
	}
	say("trainers: the %d micro-batches of a step are dealt to %d", micro, len(train))
	if err := d.placeSamplers(p, v, at, say); err != nil {
		return nil, err
	}
	if err := d.placeShards(p, rows, at, say); err != nil {
		return nil, err
	}
	d.bound(p, v, at, train, 4*float64(rt.NumParameters()))
	return p, nil
}

// placeSamplers deals samplers, and moves them for as long as the scheduler would.
func (d *Described) placeSamplers(p *ClusterPlan, v *membership.View, at map[string]*PlannedNode, say func(string, ...any)) error {
	var nodes []scheduler.SamplerNode
	for _, m := range v.Members {
		if samplers.Can(&m) {
			nodes = append(nodes, scheduler.SamplerNode{Name: m.Node, Work: p.Costs.Sample, Cores: at[m.Node].Cores, Wire: d.wire(float64(p.Costs.BlockBytes)), Most: m.Most})
		}
	}
	put := map[string]string{}
	where := func(name string) string { return samplers.At(v, name, put[name]) }
	for _, m := range v.Members {
		for i := range samplers.Count(&m) {
			if name := samplers.Name(m.Node, i); where(name) == "" {
				return optionsf("sampler %s: %s", name, samplers.Full)
			}
		}
	}
	dealt := away(v, where)
	if len(dealt) > 0 {
		say("samplers of nodes that do not sample are dealt alike to those that do; one that is a fifth slower than it could be moves")
	}
	for range len(dealt) * len(nodes) { // each comes to each once at the most
		to, why, ok := scheduler.MoveSampler(nodes, away(v, where))
		if !ok {
			break
		}
		say("sampler %s goes to %s: %s", to.Sampler, to.Node, why)
		put[to.Sampler] = to.Node
	}
	for _, m := range v.Members {
		for i := range samplers.Count(&m) {
			name := samplers.Name(m.Node, i)
			node := where(name)
			at[node].Samplers = append(at[node].Samplers, name)
			p.Actors = append(p.Actors, Actor{Kind: samplers.Kind, ID: name, Node: node})
		}
	}
	return nil
}

// placeShards says who holds which rows of the features.
func (d *Described) placeShards(p *ClusterPlan, rows []string, at map[string]*PlannedNode, say func(string, ...any)) error {
	if d.Shards == "" {
		say("rows: every node that trains has all; --shards shares them out")
		return nil
	}
	s, err := parseShards(d.Shards, nil)
	if err != nil {
		return err
	}
	for id, nodes := range shard.Assign(s.Parts, max(d.Replicas, 1), rows) {
		for _, node := range nodes {
			at[node].Shards = append(at[node].Shards, id)
		}
		p.Actors = append(p.Actors, Actor{Kind: shard.Kind, ID: fmt.Sprint(id), Node: nodes[0]})
	}
	say("rows: the %d shards go to %s alike", s.Parts, strings.Join(rows, ", "))
	return nil
}

// wire is how long a link takes for so many bytes.
func (d *Described) wire(bytes float64) time.Duration {
	if d.Bandwidth <= 0 {
		return 0
	}
	return time.Duration(bytes / d.Bandwidth * float64(time.Second))
}

// bound says what a step takes of each node, and what it waits for.
func (d *Described) bound(p *ClusterPlan, v *membership.View, at map[string]*PlannedNode, train []string, gradient float64) {
	in, out, held := map[string]float64{}, map[string]float64{}, 0.0
	for i := range p.Nodes {
		held += float64(len(p.Nodes[i].Shards))
	}
	drawn := map[string]float64{} // micro-batches of a step
	for _, m := range v.Members {
		n := at[m.Node]
		own := float64(samplers.Count(&m))
		for _, a := range p.Actors {
			if a.Kind != samplers.Kind || samplers.Of(a.ID) != m.Node {
				continue
			}
			each := float64(n.Micro) / own
			drawn[a.Node] += each
			if a.Node != m.Node {
				in[m.Node] += each * float64(p.Costs.BlockBytes)
				out[a.Node] += each * float64(p.Costs.BlockBytes)
			}
		}
		for _, from := range p.Nodes {
			if held == 0 || from.Node == m.Node {
				continue
			}
			rows := float64(n.Micro) * float64(p.Costs.RowBytes) * float64(len(from.Shards)) / held
			in[m.Node] += rows
			out[from.Node] += rows
		}
		if n.Micro > 0 && len(train) > 1 {
			sum := 2 * gradient * float64(len(train)-1) / float64(len(train))
			in[m.Node] += sum
			out[m.Node] += sum
		}
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		sampling := 0.0
		if k := float64(len(n.Samplers)); k > 0 {
			sampling = drawn[n.Node] * p.Costs.Sample.Seconds() / min(k, n.Cores)
		}
		n.Work = time.Duration((sampling + float64(n.Micro)*p.Costs.Compute.Seconds()/n.Cores) * float64(time.Second))
		n.Wire = d.wire(max(in[n.Node], out[n.Node]))
		if n.Work > p.Step {
			p.Step, p.Bound = n.Work, "the cores of "+n.Node
		}
		if n.Wire > p.Step {
			p.Step, p.Bound = n.Wire, "the link of "+n.Node
		}
	}
}
