package trainers

import (
	"slices"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Mates returns the trainers of the newest group that this node was in, itself
// included: the revisions at which they joined the cluster, by name.
func (t *Trainers) Mates() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]int64, len(t.mates))
	for _, m := range t.mates {
		all[m.Node] = m.Epoch
	}
	return all
}

// serves reports whether a node is the first of a group's members who was in the group
// before, when not all of them were: the others need a state, and its is the newest
// unless a group failed.
func serves(before, members []membership.Peer, node string) bool {
	i := slices.IndexFunc(members, func(m membership.Peer) bool { return slices.Contains(before, m) })
	return i >= 0 && members[i].Node == node && slices.ContainsFunc(members, func(m membership.Peer) bool { return !slices.Contains(before, m) })
}
