package trainers

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"
)

// Run is steps [First, Next) that were made one after the other in a group.
type Run struct {
	Group int64 `msgpack:"g" json:"group"`
	First int64 `msgpack:"f" json:"first"`
	Next  int64 `msgpack:"n" json:"next"`
}

// Link is a step that was made, and in which group.
type Link struct{ Step, Group int64 }

// Lineage returns the steps that led to this node's parameters, oldest first:
// its own, and those of whoever it had its state from. It begins where the
// state came from a checkpoint.
func (t *Trainers) Lineage() []Link {
	var all []Link
	for _, r := range t.Runs() {
		for s := r.First; s < r.Next; s++ {
			all = append(all, Link{s, r.Group})
		}
	}
	return all
}

// Runs returns the lineage by groups.
func (t *Trainers) Runs() []Run {
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
	t.lineage = Extend(t.lineage, group, step)
	return pause
}

// Extend adds a step of a group to a lineage; group 0 is a process by itself.
func Extend(lineage []Run, group, step int64) []Run {
	if n := len(lineage); n > 0 && lineage[n-1].Group == group && lineage[n-1].Next == step {
		lineage[n-1].Next++
		return lineage
	}
	return append(lineage, Run{group, step, step + 1})
}

// RunsTo returns the lineage of what came before step next.
func (t *Trainers) RunsTo(next int64) []Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cutAt(slices.Clone(t.lineage), next)
}

// Resume makes lineage, of a checkpoint, what this node's state comes from. It
// may be called before Rendezvous.
func (t *Trainers) Resume(lineage []Run) { t.adopt(lineage) }

// cut takes steps from next on out of the lineage: they were summed, and then
// dropped before they were applied. It returns what is left.
func (t *Trainers) cut(next int64) []Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lineage = cutAt(t.lineage, next)
	return slices.Clone(t.lineage)
}

func cutAt(lineage []Run, next int64) []Run {
	for n := len(lineage); n > 0 && lineage[n-1].Next > next; n = len(lineage) {
		if last := &lineage[n-1]; last.First < next {
			last.Next = next
		} else {
			lineage = lineage[:n-1]
		}
	}
	return lineage
}

// adopt makes lineage this node's.
func (t *Trainers) adopt(lineage []Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lineage = slices.Clone(lineage)
}

// firstOf returns the first step of a lineage that ends before next.
func firstOf(lineage []Run, next int64) int64 {
	if len(lineage) == 0 {
		return next
	}
	return lineage[0].First
}

// hashOf tells lineages apart: a node that was left behind may have made the last step
// of an older group that the others made in a newer one.
func hashOf(lineage []Run) uint64 {
	h := fnv.New64a()
	for _, r := range lineage {
		for _, v := range []int64{r.Group, r.First, r.Next} {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v))) // a hash takes all
		}
	}
	return h.Sum64()
}

// Chained reports whether each step of the lineage follows on the one before,
// and next on the last.
func Chained(lineage []Run, next int64) bool {
	at := firstOf(lineage, next)
	for _, r := range lineage {
		if r.First != at || r.First < 0 || r.Next <= r.First {
			return false
		}
		at = r.Next
	}
	return at == next
}
