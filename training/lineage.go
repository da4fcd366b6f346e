package training

// Run is steps [First, Next) that were made one after the other in a group; group 0 is a
// process by itself. A state's lineage is the runs that led to it, oldest first. It begins
// where the state came from a checkpoint that says nothing of it.
type Run struct {
	Group int64 `msgpack:"g" json:"group"`
	First int64 `msgpack:"f" json:"first"`
	Next  int64 `msgpack:"n" json:"next"`
}

// Extend adds a step of a group to a lineage.
func Extend(lineage []Run, group, step int64) []Run {
	if n := len(lineage); n > 0 && lineage[n-1].Group == group && lineage[n-1].Next == step {
		lineage[n-1].Next++
		return lineage
	}
	return append(lineage, Run{group, step, step + 1})
}

// Cut takes steps from next on out of a lineage, in place.
func Cut(lineage []Run, next int64) []Run {
	for n := len(lineage); n > 0 && lineage[n-1].Next > next; n = len(lineage) {
		if last := &lineage[n-1]; last.First < next {
			last.Next = next
		} else {
			lineage = lineage[:n-1]
		}
	}
	return lineage
}

// FirstOf returns the first step of a lineage that ends before next.
func FirstOf(lineage []Run, next int64) int64 {
	if len(lineage) == 0 {
		return next
	}
	return lineage[0].First
}

// Chained reports whether each step of the lineage follows on the one before,
// and next on the last.
func Chained(lineage []Run, next int64) bool {
	at := FirstOf(lineage, next)
	for _, r := range lineage {
		if r.First != at || r.First < 0 || r.Next <= r.First {
			return false
		}
		at = r.Next
	}
	return at == next
}
