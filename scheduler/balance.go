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
	// Wire is how long its link takes for a micro-batch; 0: that bounds nothing.
	Wire time.Duration
	// Most is how many of the samplers that are placed it takes; 0: any number.
	Most int
}

// SamplerPlace says where a sampler is.
type SamplerPlace struct{ Sampler, Node string }

// rate returns how many micro-batches n samplers make there a second.
func (x *SamplerNode) rate(n int) float64 {
	return min(min(float64(n), x.Cores)/max(x.Work.Seconds(), 1e-9), 1/max(x.Wire.Seconds(), 1e-9))
}

// each returns how long every one of n samplers there takes for a micro-batch, in seconds.
func (x *SamplerNode) each(n int) float64 { return float64(n) / x.rate(n) }

// worth: a move after which samplers are still so much slower than they could be. One that gains less
// would be taken back for measurements that are a little off.
const worth = 1.2

// MoveSampler returns where one sampler of those at places is better moved, and why;
// false: nowhere. It is a function of its arguments alone. Of a node that is not
// among nodes nothing is known, and what is there stays.
//
// Batches are dealt to samplers alike, and computed in order: all are as fast as the slowest. So
// one goes from where they are slowest, unless they are about as fast there as they can be anywhere.
func MoveSampler(nodes []SamplerNode, places []SamplerPlace) (to SamplerPlace, why string, ok bool) {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b SamplerNode) int { return cmp.Compare(a.Name, b.Name) })
	on, all := make([]int, len(nodes)), 0
	for _, p := range places {
		if i := slices.IndexFunc(nodes, func(n SamplerNode) bool { return n.Name == p.Node }); i >= 0 {
			on[i]++
			all++
		}
	}
	if all == 0 {
		return SamplerPlace{}, "", false
	}
	// room is the node on which one more would be fastest, and of those that with the fewest; -1: none takes one more.
	room := func(on []int) (at int) {
		at = -1
		for i := range nodes {
			if most := nodes[i].Most; most > 0 && on[i] >= most {
				continue
			}
			if at < 0 {
				at = i
			} else if c := cmp.Compare(nodes[i].each(on[i]+1), nodes[at].each(on[at]+1)); c < 0 || c == 0 && on[i] < on[at] {
				at = i
			}
		}
		return at
	}
	best, dealt := 0.0, make([]int, len(nodes))
	for range all {
		i := room(dealt)
		if i < 0 {
			break // some nodes have more than they take by now
		}
		dealt[i]++
		best = max(best, nodes[i].each(dealt[i]))
	}
	from := -1
	for i := range nodes {
		if on[i] > 0 && (from < 0 || nodes[i].each(on[i]) > nodes[from].each(on[from])) {
			from = i
		}
	}
	if nodes[from].each(on[from]) <= worth*best {
		return SamplerPlace{}, "", false
	}
	at := room(on)
	if at < 0 {
		return SamplerPlace{}, "", false
	}
	i := slices.IndexFunc(places, func(p SamplerPlace) bool { return p.Node == nodes[from].Name })
	rate := func(k, n int) string { return fmt.Sprintf("%.3g", nodes[k].rate(n)) }
	return SamplerPlace{places[i].Sampler, nodes[at].Name}, fmt.Sprintf("%d samplers make %s micro-batches/s on %s, and %d could make %s on %s",
		on[from], rate(from, on[from]), nodes[from].Name, on[at]+1, rate(at, on[at]+1), nodes[at].Name), true
}
