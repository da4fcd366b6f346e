package samplers

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/rng"
)

// Name returns what sampler i of a trainer's node is called.
func Name(node string, i int) string { return node + ":" + strconv.Itoa(i) }

// Of returns the trainer's node that a sampler is of; "": it is no sampler's name.
func Of(name string) string {
	node, _, _ := parse(name)
	return node
}

// Count returns how many samplers a node has as a trainer; no node has more than 4096,
// whatever it says.
func Count(m *membership.Info) int { return min(max(m.Samplers, 0), 1<<12) }

// known reports whether a trainer that is a member has the sampler.
func known(v *membership.View, name string) bool {
	trainer, i, ok := parse(name)
	m, in := v.Member(trainer)
	return ok && in && i < Count(&m)
}

// parse is the inverse of Name.
func parse(name string) (node string, i int, ok bool) {
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return "", 0, false
	}
	i, err := strconv.Atoi(name[at+1:])
	if err != nil || i < 0 || Name(name[:at], i) != name {
		return "", 0, false
	}
	return name[:at], i, true
}

// Can reports whether a node takes samplers.
func Can(m *membership.Info) bool { return slices.Contains(m.Kinds, Kind) && !m.Drains() }

// At returns the node that a sampler is on; placed is where the table has it, if it
// does. "": no node can have it, or no trainer has such a sampler. It is a function of its arguments
// alone: a node that asks and the leader agree as soon as they see the same members.
func At(v *membership.View, name, placed string) string { return at(v, name, placed, nil) }

// at is At without some nodes; without may be nil.
func at(v *membership.View, name, placed string, without func(node string) bool) string {
	if !known(v, name) {
		return ""
	}
	takes := func(m *membership.Info) bool { return Can(m) && (without == nil || !without(m.Node)) }
	if m, ok := v.Member(placed); ok && takes(&m) {
		return placed
	}
	trainer, _, _ := parse(name)
	if m, ok := v.Member(trainer); ok && slices.Contains(m.Kinds, Kind) { // while it drains it trains
		return trainer
	}
	var can []*membership.Info
	for i := range v.Members {
		if takes(&v.Members[i]) {
			can = append(can, &v.Members[i])
		}
	}
	return deal(v, can, name)
}

// deal returns which of some nodes a sampler is on if all that are of trainers without the role are shared
// out alike: each in turn has the node that suits it best, by a hash, of those that have room. So
// a node that comes takes its share, one that leaves gives away its own, and most others stay. "": none has room.
func deal(v *membership.View, can []*membership.Info, name string) string {
	all := 0
	for i := range v.Members {
		if m := &v.Members[i]; !slices.Contains(m.Kinds, Kind) {
			all += Count(m)
		}
	}
	if len(can) == 0 || all == 0 {
		return ""
	}
	room := rooms(can, all)
	for j := range v.Members {
		m := &v.Members[j]
		if slices.Contains(m.Kinds, Kind) {
			continue
		}
		for i := range Count(m) {
			sampler, best, most := Name(m.Node, i), -1, uint64(0)
			for k, x := range can {
				if h := suits(sampler, x.Node); room[k] > 0 && (best < 0 || h > most) {
					best, most = k, h
				}
			}
			switch {
			case sampler == name && best < 0:
				return ""
			case sampler == name:
				return can[best].Node
			case best >= 0:
				room[best]--
			}
		}
	}
	return ""
}

// rooms returns how many of so many samplers each node takes: all the same, but for those that take less.
func rooms(can []*membership.Info, all int) []int {
	room := make([]int, len(can))
	for i, m := range can {
		if room[i] = all; m.Most > 0 {
			room[i] = min(m.Most, all)
		}
	}
	share, left := 0, all
	for i, most := range slices.Sorted(slices.Values(room)) {
		n := len(can) - i
		if share = (left + n - 1) / n; most >= share {
			break
		}
		left -= most
	}
	for i := range room {
		room[i] = min(room[i], share)
	}
	return room
}

// suits returns how well a node suits a sampler: any number, the same everywhere.
func suits(sampler, node string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, sampler)
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, node)
	return rng.New(h.Sum64()).Uint64(0)
}

// Fit reports whether all samplers fit on nodes without one.
func Fit(v *membership.View, without string) bool {
	for i := range v.Members {
		for k := range Count(&v.Members[i]) {
			if at(v, Name(v.Members[i].Node, k), "", func(node string) bool { return node == without }) == "" {
				return false
			}
		}
	}
	return true
}

// Keep returns those of samplers that were put on nodes, by name, that may stay there: none where a node has more than it takes by now. They
// are dealt again, which leaves no node with more.
func Keep(v *membership.View, placed map[string]string) map[string]string {
	keep := maps.Clone(placed)
	maps.DeleteFunc(keep, func(name, node string) bool { return node == "" || At(v, name, node) != node })
	for most := slices.ContainsFunc(v.Members, func(m membership.Info) bool { return m.Most > 0 }); most; {
		on := map[string]int{}
		for i := range v.Members {
			m := &v.Members[i]
			for k := range Count(m) {
				name := Name(m.Node, k)
				if node := At(v, name, keep[name]); node != m.Node {
					on[node]++
				}
			}
		}
		before := len(keep)
		maps.DeleteFunc(keep, func(_, node string) bool { m, _ := v.Member(node); return m.Most > 0 && on[node] > m.Most })
		most = len(keep) < before
	}
	return keep
}
