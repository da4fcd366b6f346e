package trainers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// verdictKey is where the newest verdict lies among the values of a cluster's run.
const verdictKey = "audit"

// Verdict says that nodes sampled a micro-batch differently, and which of them to
// blame. It is the error of a run that came to one.
type Verdict struct {
	Run   uint64 `json:"run"`   // hash of the run's identity
	Batch string `json:"batch"` // "train/e3/b17/m2"
	// Lying are the nodes whose micro-batch differs from that of Agree; where no two
	// nodes agree, all that were asked.
	Lying []Suspect `json:"lying"`
	Agree []string  `json:"agree,omitempty"`

	Revision int64 `json:"-"` // at which it was written
}

// Suspect is a node since it joined the cluster at a revision.
type Suspect struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
}

// Decided reports whether it is known who is wrong.
func (v *Verdict) Decided() bool { return len(v.Agree) > 1 }

// Names reports whether a node is among those to blame.
func (v *Verdict) Names(node string) bool {
	return slices.ContainsFunc(v.Lying, func(s Suspect) bool { return s.Node == node })
}

// covers reports whether w, which was found later, says nothing new: those that it blames were put
// out for v, and what they made was gone back from. A node that is no member has no epoch.
func (v *Verdict) covers(w *Verdict) bool {
	return v != nil && v.Decided() && w.Decided() && !slices.ContainsFunc(w.Lying, func(s Suspect) bool {
		return !slices.ContainsFunc(v.Lying, func(o Suspect) bool { return o.Node == s.Node && (o.Epoch == s.Epoch || s.Epoch == 0) })
	})
}

// Error implements error.
func (v *Verdict) Error() string {
	var names []string
	for _, s := range v.Lying {
		names = append(names, s.Node)
	}
	const remedy = "check its memory, and its disk with 'gnnactor inspect DIR --verify'"
	if v.Decided() {
		return fmt.Sprintf("audit: node %s sampled %s differently than nodes %s, and is put out: its memory or its disk is damaged; %s",
			list(names), v.Batch, list(v.Agree), remedy)
	}
	return fmt.Sprintf("audit: nodes %s sampled %s differently, and no other node was there to tell who is right: the memory or the disk of one is damaged; for each of them, %s; then resume",
		list(names), v.Batch, remedy)
}

func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// parseVerdict reads a verdict of a run; nil: it is another's.
func parseVerdict(b []byte, revision int64, run uint64) *Verdict {
	v := new(Verdict)
	if b == nil || json.Unmarshal(b, v) != nil || v.Run != run || len(v.Lying) == 0 {
		return nil
	}
	v.Revision = revision
	return v
}
