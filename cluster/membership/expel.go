package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Departure says how the newest former membership of a node ended. It lies
// beside the members, so that a node that was put out learns why, and the others
// know which of its memberships are over for good.
type Departure struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"` // of the membership that ended
	// Dead: nothing is done any more by the process that had it, nor, if Since is
	// smaller than Epoch, by those that had the node's name from Since on.
	Dead   bool   `json:"dead,omitempty"`
	Since  int64  `json:"since"`
	Reason string `json:"reason"`
}

// ErrExpelled: another node put this one out of the cluster. It wraps ErrFenced's
// meaning: errors of a node that was expelled are both.
var ErrExpelled = errors.New("membership: this node was expelled")

func (m *Member) departureKey(node string) string { return m.prefix + "departed/" + node }
func (m *Member) aliveKey(node string) string     { return m.prefix + "alive/" + node }
func (m *Member) memberKey(node string) string    { return m.prefix + "members/" + node }

// departure returns the newest of a node's that entries hold; false: none.
func departure(prefix string, entries map[string]Entry, node string) (d Departure, ok bool) {
	e, ok := entries[prefix+"departed/"+node]
	if !ok || json.Unmarshal(e.Value, &d) != nil || d.Node != node {
		return Departure{}, false
	}
	return d, true
}

// departing returns the commit that ends a membership, of which entries know:
// the node's place goes, with what tells that it lives, and with its lead.
func (m *Member) departing(entries map[string]Entry, node string, epoch int64, dead bool, reason string) ([]If, []Change, error) {
	d := Departure{Node: node, Epoch: epoch, Dead: dead, Reason: reason}
	// Every membership ends with a departure, so that the one before is of the
	// membership just before.
	switch before, ok := departure(m.prefix, entries, node); {
	case !ok:
	case before.Dead:
		d.Since = before.Since
	default:
		d.Since = epoch
	}
	value, err := json.Marshal(&d)
	if err != nil {
		return nil, nil, fmt.Errorf("membership: %w", err)
	}
	ifs := []If{{Key: m.memberKey(node), Created: epoch}}
	do := []Change{{Key: m.memberKey(node)}, {Key: m.aliveKey(node)}, {Key: m.departureKey(node), Value: value}}
	if e, ok := entries[m.leaderKey()]; ok && string(e.Value) == node {
		ifs, do = append(ifs, If{Key: m.leaderKey(), Created: e.Created}), append(do, Change{Key: m.leaderKey()})
	}
	return ifs, do, nil
}

// Expel puts a node out of the cluster, if it still has the membership of that
// epoch, and returns when the view shows it. The node ends with an error that has
// the reason. Its process may go on for as long as it does not hear of it. A node that
// never was a member is an error.
func (m *Member) Expel(ctx context.Context, node string, epoch int64, reason string) error {
	m.mu.Lock()
	_, in := m.entries[m.memberKey(node)]
	_, was := departure(m.prefix, m.entries, node)
	m.mu.Unlock()
	if !in && !was {
		var known []string
		v, _ := m.View()
		for _, i := range v.Members {
			known = append(known, i.Node)
		}
		return fmt.Errorf("membership: there is no node %s to put out; the members are %s", node, strings.Join(known, ", "))
	}
	return m.expel(ctx, node, epoch, false, reason)
}

// expel tries until the store has it: it may be in an election itself, if one of
// its servers died with the node.
func (m *Member) expel(ctx context.Context, node string, epoch int64, dead bool, reason string) error {
	m.cfg.Logger.Warn("a node is put out of the cluster", "node", node, "epoch", epoch, "because", reason)
	for {
		m.mu.Lock()
		e, in := m.entries[m.memberKey(node)]
		ifs, do, err := m.departing(m.entries, node, epoch, dead, reason)
		changed := m.changed
		m.mu.Unlock()
		if err != nil {
			return err
		}
		if !in || e.Created != epoch {
			return nil
		}
		if err := m.Err(); err != nil {
			return err
		}
		call, cancel := context.WithTimeout(ctx, m.Patience())
		if _, _, err = m.store.Commit(call, ifs, do); err == nil { // or somebody else did
			select {
			case <-changed:
			case <-call.Done():
			}
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("membership: node %s, to be put out, is still a member: %w", node, context.Cause(ctx))
		case err != nil && !m.pause(m.cfg.TTL/32):
			return context.Canceled
		}
	}
}
