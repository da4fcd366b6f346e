package trainers

import (
	"fmt"
	"strings"

	"github.com/gnnactor/gnnactor/training/checkpoint"
)

// sameRun reports members of another run than the group's, which is that of most of them,
// or of as many, of those that are furthest, or of those that come first. Who is of another run
// is told so by ErrOtherRun; the others meet again when it has left.
func sameRun(all []hello, mine string, nodes []string) error {
	of := map[string]int{}
	for _, h := range all {
		of[h.Identity]++
	}
	if len(of) == 1 {
		return nil
	}
	run := all[0]
	for _, h := range all {
		if n, most := of[h.Identity], of[run.Identity]; n > most || n == most && h.Step > run.Step {
			run = h
		}
	}
	for i, h := range all {
		switch {
		case h.Identity == mine:
		case mine != run.Identity && h.Identity == run.Identity:
			return fmt.Errorf("%w: %s; run the same program with the same settings on the same data, or take part in another cluster", ErrOtherRun, differences(h.Identity, mine, nodes[i]))
		case mine == run.Identity:
			return fmt.Errorf("trainers: node %s is of another run, and has to leave: %s", nodes[i], differences(h.Identity, mine, nodes[i]))
		}
	}
	return nil
}

// differences names what two identities have not in common.
func differences(theirs, mine, node string) string {
	diff, ok := checkpoint.Different(theirs, mine, func(name, x, y string) string {
		return fmt.Sprintf("%s is %.200s at node %s, and %.200s here", name, x, node, y)
	})
	if !ok {
		return fmt.Sprintf("node %s has another configuration, data or version of gnnactor", node)
	}
	return strings.Join(diff, ", ")
}
