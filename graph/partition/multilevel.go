package partition

import "github.com/gnnactor/gnnactor/rng"

const (
	coarsePerPart = 20 // nodes per part at which coarsening stops
	refineRounds  = 6
)

// multilevel is METIS's scheme: coarsen, divide what is left, and refine on the
// way back. Nodes are coarsened by size-constrained label propagation, which
// also shrinks graphs with hubs, where matchings stall.
func multilevel(n *network, count int, key rng.Key) []uint32 {
	total := n.total()
	average := (total + int64(count) - 1) / int64(count)
	limit := average + int64(Imbalance*float64(average))
	type step struct {
		net   *network
		label []uint32 // of net's nodes: their nodes one level up
	}
	var steps []step
	for level := uint64(1); n.len() > coarsePerPart*count; level++ {
		label := make([]uint32, n.len())
		coarse := n.spread(label, max(1, average/coarsePerPart), labelRounds, key.With(level))
		if float64(coarse) > 0.95*float64(n.len()) {
			break
		}
		steps = append(steps, step{n, label})
		n = n.contract(label, coarse)
	}
	part := n.grow(count, average, key.With(0))
	if n.stop.Err() != nil { // there are nodes without a part
		return nil
	}
	n.refine(part, count, limit, key)
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		finer := make([]uint32, s.net.len())
		for v := range finer {
			finer[v] = part[s.label[v]]
		}
		part = finer
		s.net.refine(part, count, limit, key)
	}
	return part
}

// grow fills one part after the other: from a random node, always the node with
// the most edges into the part, until it weighs average; where a component
// ends, it goes on from another random node.
func (n *network) grow(count int, average int64, key rng.Key) []uint32 {
	const none = ^uint32(0)
	part := make([]uint32, n.len())
	for v := range part {
		part[v] = none
	}
	order := make([]uint32, n.len())
	key.Perm(order)
	links := make([]int64, n.len()) // into the present part
	var touched []uint32
	var heap candidates
	next := 0
	for p := range count {
		weight := int64(0)
		heap = heap[:0]
		for (weight < average || p == count-1) && !n.stop.Ended() {
			var v uint32
			if c, ok := heap.pop(); ok {
				if v = c.node; part[v] != none || c.links != links[v] {
					continue
				}
			} else {
				for next < len(order) && part[order[next]] != none {
					next++
				}
				if next == len(order) {
					break
				}
				v = order[next]
			}
			if w := n.nodeWeight(int(v)); weight > 0 && weight+w > average+average/10 && p < count-1 {
				break
			}
			part[v] = uint32(p)
			weight += n.nodeWeight(int(v))
			for e := n.ptr[v]; e < n.ptr[v+1]; e++ {
				if u := n.adj[e]; part[u] == none {
					if links[u] == 0 {
						touched = append(touched, u)
					}
					links[u] += n.edgeWeight(e)
					heap.push(candidate{links[u], u})
				}
			}
		}
		for _, u := range touched {
			links[u] = 0
		}
		touched = touched[:0]
	}
	return part
}

// refine moves nodes to the part that most of their edges lead to, if that
// keeps it within limit; and out of parts above limit, into the best one with
// room, whatever it costs.
func (n *network) refine(part []uint32, count int, limit int64, key rng.Key) {
	weight := make([]int64, count)
	for v, p := range part {
		weight[p] += n.nodeWeight(v)
	}
	links := make([]int64, count)
	var touched []uint32
	order := make([]uint32, n.len())
	key.Perm(order)
	for range refineRounds {
		moved := 0
		lightest := uint32(0)
		for p := range weight {
			if weight[p] < weight[lightest] {
				lightest = uint32(p)
			}
		}
		for _, v := range order {
			if n.stop.Ended() {
				break
			}
			own, w := part[v], n.nodeWeight(int(v))
			touched = touched[:0]
			for e := n.ptr[v]; e < n.ptr[v+1]; e++ {
				if n.adj[e] == v {
					continue
				}
				p := part[n.adj[e]]
				if links[p] == 0 {
					touched = append(touched, p)
				}
				links[p] += n.edgeWeight(e)
			}
			over := weight[own] > limit
			best := own
			for _, p := range touched {
				if p == own || weight[p]+w > limit {
					continue
				}
				switch {
				case best == own && (over || links[p] > links[own] || links[p] == links[own] && weight[p]+w < weight[own]):
					best = p
				case best != own && (links[p] > links[best] || links[p] == links[best] && weight[p] < weight[best]):
					best = p
				}
			}
			if over && best == own && weight[lightest]+w <= limit {
				best = lightest
			}
			for _, p := range touched {
				links[p] = 0
			}
			if best != own {
				weight[own] -= w
				weight[best] += w
				part[v] = best
				moved++
			}
		}
		if moved <= n.len()/1000 {
			break
		}
	}
}

// candidate is a node that a growing part could take.
type candidate struct {
	links int64
	node  uint32
}

// candidates is a heap with the most linked node on top, of equals the smallest.
type candidates []candidate

func (c candidate) before(d candidate) bool {
	return c.links > d.links || c.links == d.links && c.node < d.node
}

func (h *candidates) push(c candidate) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *candidates) pop() (candidate, bool) {
	s := *h
	if len(s) == 0 {
		return candidate{}, false
	}
	top := s[0]
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1].before(s[c]) {
			c++
		}
		if !s[c].before(s[i]) {
			break
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
	return top, true
}
