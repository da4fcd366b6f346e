package trainers

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// Runs returns the lineage: the steps that led to this node's parameters, by the groups that made them, oldest first:
// its own, and those of whoever it had its state from. It begins where the state came from a checkpoint.
func (t *Trainers) Runs() []training.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lineage)
}

// Made returns how many micro-batches this node computed, in steps that were
// made, since Join.
func (t *Trainers) Made() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made
}

// Since returns when this node became a trainer.
func (t *Trainers) Since() time.Time { return t.born }

// State returns what this node does in groups.
func (t *Trainers) State() membership.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.part.State()
}

// record adds a step that was made with micros micro-batches from here. It
// returns the time since the step before that this process made; 0: there is none.
func (t *Trainers) record(step, group int64, micros int) (pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made += int64(micros)
	now := time.Now()
	if !t.stepped.IsZero() {
		pause = now.Sub(t.stepped)
	}
	t.stepped = now
	t.lineage = training.Extend(t.lineage, group, step)
	return pause
}

// Pauses are the times between the last step before a group and its first, of the groups that this node made steps in
// since it made its first.
type Pauses struct {
	Count        int
	Newest, Most time.Duration
}

// Pauses returns those so far.
func (t *Trainers) Pauses() Pauses {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pauses
}

// runsTo returns the lineage of what came before step next.
func (t *Trainers) runsTo(next int64) []training.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return training.Cut(slices.Clone(t.lineage), next)
}

// cut takes steps from next on out of the lineage: they were summed, and then
// dropped before they were applied. It returns what is left.
func (t *Trainers) cut(next int64) []training.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lineage = training.Cut(t.lineage, next)
	return slices.Clone(t.lineage)
}

// adopt makes lineage, of a checkpoint or another node, what this node's state comes from.
func (t *Trainers) adopt(lineage []training.Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lineage = slices.Clone(lineage)
}

// hashOf tells lineages apart: a node that was left behind may have made the last step
// of an older group that the others made in a newer one.
func hashOf(lineage []training.Run) uint64 {
	h := fnv.New64a()
	for _, r := range lineage {
		for _, v := range []int64{r.Group, r.First, r.Next} {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))) // a hash takes all
		}
	}
	return h.Sum64()
}

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
