package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/shard"
)

// Run is what all nodes of a run have in common. The first node writes it down;
// it holds as long as one of the nodes that take part lives (until it is trained: one that can
// train it), or the next one wants the same.
type Run struct {
	// Settings by their names. What they mean is not this package's business.
	Settings map[string]string `json:"settings"`
	// Data is the fingerprint of the store that the run trains on; empty: nodes
	// know the data by the settings.
	Data string `json:"data,omitempty"`
	// Map is the SHA-256 of which node of the graph is in which shard of the
	// features; empty: features are not shared out.
	Map string `json:"map,omitempty"`
	// Node and Epoch are those of who wrote it down.
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
	// Done: it is over. Who wants the same goes on with it all the same,
	// as a node that was late for the end.
	Done bool `json:"done,omitempty"`
	// Last are the trainers that made its last step, by the revisions at which they joined the cluster. None: it is
	// not known who came to the end.
	Last map[string]int64 `json:"last,omitempty"`
	// Failed says why it is over without having come to its end.
	Failed string `json:"failed,omitempty"`
	// Parties are the nodes that took part in it when it was read.
	Parties []string `json:"-"`
}

// ErrOtherRun: this node wants what the run is not.
var ErrOtherRun = errors.New("cluster: not what the cluster's run is")

// ErrEnded: the run that this node took part in before it was restarted has come to
// its end without it, or the one that it takes part in, of which it was to do something yet.
var ErrEnded = errors.New("cluster: the run has ended")

// ErrWithdrawn: the run that this node takes part in failed where it was trained, or another one has its place. That, or the next one,
// may be joined.
var ErrWithdrawn = errors.New("cluster: the run was withdrawn")

// runKey is where the record lies; groupKey, of package trainers, belongs to the
// run and goes with it.
const (
	runKey   = "run"
	groupKey = "trainers"
)

// same reports whether two nodes want the same.
func (r *Run) same(o *Run) bool {
	return maps.Equal(r.Settings, o.Settings) && r.Data == o.Data && r.Map == o.Map
}

// Differences names the settings that required has otherwise, each with both
// values. Nil: there are none.
func (r *Run) Differences(required map[string]string) error {
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(required)) {
		has, ok := r.Settings[name]
		if ok && has != required[name] {
			bad = append(bad, fmt.Sprintf("%s is %q, and %q here", name, has, required[name]))
		}
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w, which node %s began: %s; leave the setting out, %s", ErrOtherRun, r.Node, strings.Join(bad, "; "), r.otherwise())
}

// otherwise is what a node can do that wants another run.
func (r *Run) otherwise() string {
	if len(r.Parties) == 0 {
		return "or take part in another cluster-name"
	}
	return fmt.Sprintf("or take part in another cluster-name, or stop who takes part in this run (%s), say with 'gnnactor cluster drain', and begin yours then", strings.Join(r.Parties, ", "))
}

// AgreeOnRun agrees with the other nodes on what the run is, and returns it: what one
// of them wrote down, if check has nothing against it, or else propose. Without
// propose it waits until another node proposes. check may be called several times.
// A node that goes on (it joins, or resumes) with a run that ended while it was away is
// told so, once, by ErrEnded.
func (n *Node) AgreeOnRun(ctx context.Context, propose *Run, goesOn bool, check func(*Run) error) (*Run, error) {
	waiting, unsure := false, false
	for {
		v, changed := n.Member.View()
		r, revision, err := n.record()
		if err != nil {
			return nil, err
		}
		group, _ := n.Member.Value(groupKey)
		live := r != nil && r.live(v, revision, group)
		switch {
		case r != nil && r.Done && r.Failed == "" && goesOn && !live && n.remembers(r):
			return nil, errors.Join(fmt.Errorf("%w: the one that node %s began came to its end while this node was away, and nothing is left to do", ErrEnded, r.Node), n.forgetRun())
		case r != nil && r.Failed == "" && (live || propose == nil && !r.Done || propose != nil && r.same(propose)):
			r.Parties = r.parties(v, revision)
			if err := check(r); err != nil {
				return nil, err
			}
			if err := n.takePart(ctx, r, revision); err != nil {
				return nil, err
			}
			return r, nil
		case r != nil && propose != nil && !r.Done && len(r.away(v, revision)) > 0:
			if !unsure {
				unsure = true
				n.log.Warn("waiting until it is certain that nobody goes on with another run without the store", "nodes", r.away(v, revision))
			}
			if _, err := n.Member.Suspect(ctx, r.away(v, revision)); err != nil {
				return nil, err
			}
		case propose != nil:
			propose.Node, propose.Epoch = n.Plane.Node(), n.Member.Epoch()
			value, err := json.Marshal(propose)
			if err != nil {
				return nil, fmt.Errorf("cluster: %w", err)
			}
			revision, err := n.Member.Propose(ctx, runKey, revision, value, groupKey)
			if err == nil {
				if err := n.takePart(ctx, propose, revision); err != nil {
					return nil, err
				}
				return propose, nil
			}
			if !errors.Is(err, membership.ErrStale) {
				if err := n.patient(ctx, "the run could not be written down yet", err); err != nil {
					return nil, err
				}
				continue // it may have been
			}
		case !waiting:
			waiting = true
			n.log.Info("waiting for a node that begins a run: start one with 'gnnactor train --cluster'")
		}
		if err := n.Member.Wait(ctx, changed, 0); err != nil {
			return nil, err
		}
	}
}

func (n *Node) record() (*Run, int64, error) {
	b, revision := n.Member.Value(runKey)
	r, err := decodeRun(b, revision)
	return r, revision, err
}

// decodeRun reads a record; nil: there is none.
func decodeRun(b []byte, revision int64) (*Run, error) {
	if b == nil {
		return nil, nil
	}
	r := new(Run)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("cluster: the run at revision %d: %w", revision, err)
	}
	return r, nil
}

// Begun returns the run that nodes of the cluster take part in now; nil: there is none.
// Whoever asks need not be a node: o is what it would Enter with.
func Begun(ctx context.Context, o NodeOptions) (_ *Run, err error) {
	store, err := dial(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	v, err := membership.Look(ctx, store, o.Cluster)
	if err != nil {
		return nil, err
	}
	b, revision, err := membership.ReadValue(ctx, store, o.Cluster, runKey)
	if err != nil {
		return nil, err
	}
	group, _, err := membership.ReadValue(ctx, store, o.Cluster, groupKey)
	if err != nil {
		return nil, err
	}
	r, err := decodeRun(b, revision)
	if err != nil || r == nil || r.Failed != "" || !r.live(v, revision, group) {
		return nil, err
	}
	r.Parties = r.parties(v, revision)
	return r, nil
}

// live reports whether anyone takes part in the run; before its first group of trainers, who waits for what it
// lacks does not keep another run out.
func (r *Run) live(v *membership.View, revision int64, group []byte) bool {
	begun := r.Done || group != nil
	return slices.ContainsFunc(v.Members, func(m membership.Info) bool {
		return !m.Away && (begun && r.has(&m, revision) || r.carried(&m, revision))
	})
}

// carried reports whether a node that takes part computes, or began the run.
func (r *Run) carried(m *membership.Info, revision int64) bool {
	return r.has(m, revision) && (trains(*m) || shard.KindOf(m) == shard.PartKind || m.Node == r.Node)
}

// parties returns who takes part in the run.
func (r *Run) parties(v *membership.View, revision int64) (nodes []string) {
	for _, m := range v.Members {
		if r.has(&m, revision) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// away returns who may go on with the run without the store.
func (r *Run) away(v *membership.View, revision int64) (nodes []string) {
	for _, m := range slices.Concat(v.Members, v.Absent) {
		if m.Away && r.has(&m, revision) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

func (r *Run) has(m *membership.Info, revision int64) bool {
	return m.Run == revision || !r.Done && m.Node == r.Node && m.Epoch == r.Epoch
}

// takePart says that this node takes part.
func (n *Node) takePart(ctx context.Context, r *Run, revision int64) error {
	if err := n.rememberRun(r); err != nil {
		return err
	}
	n.mu.Lock()
	n.run, n.revision = r, revision
	n.mu.Unlock()
	return n.Member.Announce(ctx, func(i *membership.Info) { i.Run = revision })
}

// patient waits a little before what failed is tried again, and says what, if anything, is to be said of that. It returns an error
// when that is of no use.
func (n *Node) patient(ctx context.Context, what string, err error) error {
	if lost := n.Member.Err(); lost != nil {
		return lost
	}
	if errors.Is(err, membership.ErrFenced) || ctx.Err() != nil {
		return err
	}
	if what != "" {
		n.log.Warn(what, "error", err)
	}
	return n.Member.Wait(ctx, nil, again)
}
