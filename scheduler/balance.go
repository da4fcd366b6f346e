package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SamplerNode is a node that takes samplers, as it was measured lately.
type SamplerNode struct {
	Name string
	// Work is the processor time that a micro-batch takes there; Cores how many processors
	// its samplers get, less than 1 where others or a limit have the rest.
	Work  time.Duration
	Cores float64
}

// SamplerPlace says where a sampler is.
type SamplerPlace struct{ Sampler, Node string }

// rate returns how many micro-batches n samplers make there a second.
func (x *SamplerNode) rate(n int) float64 {
	return min(float64(n), x.Cores) / max(x.Work.Seconds(), 1e-9)
}

// ahead is how many batches each sampler may have made that wait for an earlier one, about;
// and a move that gains less than worth would be taken back for a measurement that is a
// little off.
const (
	ahead = 4
	worth = 1.1
)

// MoveSampler returns where one sampler of those at places is better moved, and why;
// false: nowhere. It is a function of its arguments alone. Of a node that is not
// among nodes nothing is known, and what is there stays.
func MoveSampler(nodes []SamplerNode, places []SamplerPlace) (to SamplerPlace, why string, ok bool) {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b SamplerNode) int { return cmp.Compare(a.Name, b.Name) })
	on := make([]int, len(nodes))
	for _, p := range places {
		if i := slices.IndexFunc(nodes, func(n SamplerNode) bool { return n.Name == p.Node }); i >= 0 {
			on[i]++
		}
	}
	before := together(nodes, on)
	best, from, at := before*worth, -1, -1
	for i := range nodes {
		for j := range nodes {
			if i == j || on[i] == 0 {
				continue
			}
			on[i]--
			on[j]++
			if r := together(nodes, on); r > best {
				best, from, at = r, i, j
			}
			on[i]++
			on[j]--
		}
	}
	if from < 0 {
		return SamplerPlace{}, "", false
	}
	i := slices.IndexFunc(places, func(p SamplerPlace) bool { return p.Node == nodes[from].Name })
	each := func(k, n int) string { return fmt.Sprintf("%.3g", nodes[k].rate(n)) }
	return SamplerPlace{places[i].Sampler, nodes[at].Name}, fmt.Sprintf("%d samplers make %s micro-batches/s on %s, and %d could make %s on %s",
		on[from], each(from, on[from]), nodes[from].Name, on[at]+1, each(at, on[at]+1), nodes[at].Name), true
}

// together returns what so many samplers on each node make a second: as much as all of
// them, unless the slowest holds up the others, whose batches wait for its.
func together(nodes []SamplerNode, on []int) float64 {
	sum, longest, all := 0.0, 0.0, 0
	for i := range nodes {
		if on[i] > 0 {
			r := nodes[i].rate(on[i])
			sum, longest, all = sum+r, max(longest, float64(on[i])/r), all+on[i]
		}
	}
	if all == 0 {
		return 0
	}
	return min(sum, float64(ahead*all)/longest)
}
