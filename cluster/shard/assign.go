package shard

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// Assign says which nodes should hold each shard: as many as there should be
// replicas, or all. It is a function of its arguments alone. No node gets more
// than its even share, rounded up, as long as another one could take the shard;
// apart from that, each shard prefers nodes in an order of its own, so that few
// shards move when a node comes or goes.
func Assign(shards, replicas int, nodes []string) [][]string {
	return assign(shards, replicas, nodes, func(string, int) bool { return false })
}

// assign is Assign where some nodes have some shards at hand: those come first as long as they have room, and
// shards that few have before others.
func assign(shards, replicas int, nodes []string, has func(node string, shard int) bool) [][]string {
	all := make([][]string, shards)
	replicas = min(replicas, len(nodes))
	if replicas < 1 {
		return all
	}
	most := (shards*replicas + len(nodes) - 1) / len(nodes)
	load := make(map[string]int, len(nodes))
	turn := make([]int, shards)
	rare := make([]int, shards) // how many nodes have it, but for none
	for s := range turn {
		turn[s] = s
		for _, n := range nodes {
			if has(n, s) {
				rare[s]++
			}
		}
		rare[s] = cmp.Or(rare[s], len(nodes))
	}
	slices.SortStableFunc(turn, func(a, b int) int { return rare[a] - rare[b] })
	full := func(n string) int { return min(load[n]/most, 1) }
	for _, s := range turn {
		order := slices.Clone(nodes)
		score := make(map[string]uint64, len(nodes))
		for _, n := range nodes {
			if score[n] = weight(n, s) >> 1; has(n, s) {
				score[n] |= 1 << 63
			}
		}
		slices.SortFunc(order, func(a, b string) int {
			return cmp.Or(full(a)-full(b), cmp.Compare(score[b], score[a]), cmp.Compare(a, b))
		})
		all[s] = order[:replicas:replicas]
		for _, n := range all[s] {
			load[n]++
		}
	}
	return all
}

// weight is how much a shard prefers a node.
func weight(node string, shard int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node + "/" + strconv.Itoa(shard))) // it cannot fail
	x := h.Sum64()
	x ^= x >> 32 // FNV's last bytes reach few of the high bits
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}
