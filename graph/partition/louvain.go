package partition

import "github.com/gnnactor/gnnactor/rng"

// louvain returns dense labels of communities that it merges as long as
// modularity grows: nodes move to the neighbouring community of most gain until
// hardly any does, then communities become nodes.
func louvain(n *network, key rng.Key) []uint32 {
	final := make([]uint32, n.len())
	for v := range final {
		final[v] = uint32(v)
	}
	for level := uint64(0); ; level++ {
		label := make([]uint32, n.len())
		n.move(label, key.With(level))
		count := compact(label)
		for v := range final {
			final[v] = label[final[v]]
		}
		if count == n.len() {
			return final
		}
		n = n.contract(label, count)
	}
}

// move is Louvain's first phase. The gain of moving v, of degree k, into
// community C is w(v, C) − k·K(C)/2m, up to a factor, K the sum of degrees.
func (n *network) move(label []uint32, key rng.Key) {
	degree := make([]int64, n.len())
	total := int64(0) // 2m
	for v := range degree {
		if n.stop.Ended() {
			break
		}
		for e := n.ptr[v]; e < n.ptr[v+1]; e++ {
			if int(n.adj[e]) != v {
				degree[v] += n.edgeWeight(e)
			}
		}
		if n.inner != nil {
			degree[v] += n.inner[v]
		}
		total += degree[v]
	}
	sums := make([]int64, n.len())
	copy(sums, degree)
	for v := range label {
		label[v] = uint32(v)
	}
	order := make([]uint32, n.len())
	key.Perm(order)
	links := make([]int64, n.len())
	var touched []uint32
	const rounds = 20
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
				if links[l] == 0 {
					touched = append(touched, l)
				}
				links[l] += n.edgeWeight(e)
			}
			own := label[v]
			sums[own] -= degree[v]
			share := float64(degree[v]) / float64(max(total, 1))
			gain := func(l uint32) float64 { return float64(links[l]) - float64(share*float64(sums[l])) }
			best, most := own, gain(own)
			for _, l := range touched {
				if g := gain(l); g > most || g == most && l < best && best != own {
					best, most = l, g
				}
			}
			for _, l := range touched {
				links[l] = 0
			}
			sums[best] += degree[v]
			if best != own {
				label[v] = best
				moved++
			}
		}
		if moved <= n.len()/1000 {
			return
		}
	}
}
