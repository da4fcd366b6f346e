package partition

import (
	"slices"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// network is an undirected graph with weights: every edge stands in the rows of
// both its ends. Entries of a row for itself are ignored.
type network struct {
	ptr    []int64
	adj    []uint32
	weight []uint32 // per entry; nil: all 1
	node   []int64  // weight of each node; nil: all 1
	inner  []int64  // twice the weight of the edges inside each node; nil: none

	// stop ends the loops of all methods, whose results are void then.
	stop *interrupt.Poll
}

func (n *network) len() int { return len(n.ptr) - 1 }

func (n *network) nodeWeight(v int) int64 {
	if n.node == nil {
		return 1
	}
	return n.node[v]
}

func (n *network) edgeWeight(e int64) int64 {
	if n.weight == nil {
		return 1
	}
	return int64(n.weight[e])
}

func (n *network) total() int64 {
	if n.node == nil {
		return int64(n.len())
	}
	sum := int64(0)
	for _, w := range n.node {
		sum += w
	}
	return sum
}

// newNetwork takes g's rows as they are if g is symmetric with sorted rows, and
// else copies every edge into the rows of both ends.
func newNetwork(stop *interrupt.Poll, g *graph.Graph) *network {
	if g.Symmetric() {
		return &network{ptr: g.Indptr, adj: g.Indices, stop: stop}
	}
	n := g.NumNodes()
	ptr := make([]int64, n+1)
	for v := range n {
		if stop.Ended() {
			break
		}
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) != v {
				ptr[v+1]++
				ptr[u+1]++
			}
		}
	}
	for v := range n {
		ptr[v+1] += ptr[v]
	}
	adj := make([]uint32, ptr[n])
	at := slices.Clone(ptr[:n])
	for v := range n {
		if stop.Ended() {
			break
		}
		for _, u := range g.InNeighbors(uint32(v)) {
			if int(u) != v {
				adj[at[v]], adj[at[u]] = u, uint32(v)
				at[v]++
				at[u]++
			}
		}
	}
	return &network{ptr: ptr, adj: adj, stop: stop}
}

// compact renumbers labels densely, in the order of their first node, and
// returns how many there are.
func compact(label []uint32) int {
	dense := make([]uint32, len(label)) // 0: not seen
	count := uint32(0)
	for v, l := range label {
		if dense[l] == 0 {
			count++
			dense[l] = count
		}
		label[v] = dense[l] - 1
	}
	return int(count)
}

// contract returns the network whose nodes are the labels, which are dense.
func (n *network) contract(label []uint32, count int) *network {
	start := make([]int64, count+1)
	for _, l := range label {
		start[l+1]++
	}
	for l := range count {
		start[l+1] += start[l]
	}
	members := make([]uint32, len(label))
	at := slices.Clone(start[:count])
	for v, l := range label {
		members[at[l]] = uint32(v)
		at[l]++
	}
	c := &network{ptr: make([]int64, count+1), node: make([]int64, count), inner: make([]int64, count), stop: n.stop}
	sum := make([]int64, count)
	var touched []uint32
	for l := range count {
		if n.stop.Ended() {
			break
		}
		touched = touched[:0]
		for _, v := range members[start[l]:start[l+1]] {
			c.node[l] += n.nodeWeight(int(v))
			if n.inner != nil {
				c.inner[l] += n.inner[v]
			}
			for e := n.ptr[v]; e < n.ptr[v+1]; e++ {
				u := n.adj[e]
				if u == v {
					continue
				}
				k := label[u]
				if int(k) == l {
					c.inner[l] += n.edgeWeight(e)
					continue
				}
				if sum[k] == 0 {
					touched = append(touched, k)
				}
				sum[k] += n.edgeWeight(e)
			}
		}
		slices.Sort(touched)
		for _, k := range touched {
			c.adj = append(c.adj, k)
			c.weight = append(c.weight, uint32(min(sum[k], 1<<32-1)))
			sum[k] = 0
		}
		c.ptr[l+1] = int64(len(c.adj))
	}
	return c
}

// labelRounds is how often label propagation visits every node.
const labelRounds = 5

// spread clusters by size-constrained label propagation: in random order, a node
// takes the label that most of its edges lead to among those whose nodes weigh,
// with it, at most limit. Nodes without edges are put together in the order of
// their ids. It writes dense labels and returns how many there are.
func (n *network) spread(label []uint32, limit int64, rounds int, key rng.Key) int {
	size := make([]int64, n.len())
	for v := range label {
		label[v] = uint32(v)
		size[v] = n.nodeWeight(v)
	}
	order := make([]uint32, n.len())
	key.Perm(order)
	sum := make([]int64, n.len())
	var touched []uint32
	for range rounds {
		moved := 0
		for _, v := range order {
			if n.stop.Ended() {
				break
			}
			touched = touched[:0]
			for e := n.ptr[v]; e < n.ptr[v+1]; e++ {
				if n.adj[e] == v {
					continue
				}
				l := label[n.adj[e]]
				if sum[l] == 0 {
					touched = append(touched, l)
				}
				sum[l] += n.edgeWeight(e)
			}
			own, w := label[v], n.nodeWeight(int(v))
			best := own
			for _, l := range touched {
				if sum[l] > sum[best] && size[l]+w <= limit {
					best = l
				}
			}
			for _, l := range touched {
				sum[l] = 0
			}
			if best != own {
				size[own] -= w
				size[best] += w
				label[v] = best
				moved++
			}
		}
		if moved <= n.len()/1000 {
			break
		}
	}
	last, load := uint32(0), limit+1
	for v := range label {
		if n.ptr[v] == n.ptr[v+1] {
			w := n.nodeWeight(v)
			if load+w > limit {
				last, load = uint32(v), 0
			}
			label[v] = last
			load += w
		}
	}
	return compact(label)
}
