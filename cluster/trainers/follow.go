package trainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// record is a group as the leader writes it down.
type record struct {
	Members []recordMember `json:"members"`
}

type recordMember struct {
	Node  string `json:"node"`
	Epoch int64  `json:"epoch"`
}

func candidates(v *membership.View) []membership.Info {
	var all []membership.Info
	for _, m := range v.Members {
		if !m.Drain && slices.Contains(m.Kinds, Kind) {
			all = append(all, m)
		}
	}
	return all
}

// live reports whether all of a group's members are members of the cluster still.
func live(v *membership.View, group []recordMember) bool {
	return !slices.ContainsFunc(group, func(m recordMember) bool {
		info, ok := v.Member(m.Node)
		return !ok || info.Epoch != m.Epoch
	})
}

// follow writes groups down while this node leads, and leaves a group that is
// not the newest: at once if one of its members is gone or failed, or else when the
// step that it is at is made. Whoever leaves first ends the group for all, so those
// that hear of the new one late have at most begun a step more.
func (t *Trainers) follow(ctx context.Context) {
	for {
		v, changed := t.o.Member.View()
		r, id, err := t.newest()
		if err != nil {
			t.o.Logger.Error("trainers", "error", err)
		}
		me, _ := v.Member(t.o.Plane.Node())
		t.mu.Lock()
		switch {
		case t.group == nil:
		case me.Drain && len(candidates(v)) == 0 || id > t.id && !(t.stepping && live(v, t.mates) && !slices.Equal(r.Members, t.mates)):
			t.group.Close()
			t.over()
		case id > t.id:
			t.ending = true // after the step that they are at: nothing is computed in vain
		}
		late := t.ended && id > t.id && slices.Contains(r.Members, recordMember{t.o.Plane.Node(), t.o.Member.Epoch()})
		t.mu.Unlock()
		var again <-chan time.Time // a store that changes its leader fails writes for a while
		if late && t.o.Member.Err() == nil {
			if err := t.retire(ctx); err != nil && ctx.Err() == nil {
				t.o.Logger.Warn("the others could not be told that this node trains no more", "error", err)
				again = time.After(patience)
			}
		}
		if t.o.Member.Leads(v) && t.o.Member.Err() == nil {
			if err := t.lead(ctx, v, r, id); err != nil && ctx.Err() == nil {
				t.o.Logger.Warn("the group of trainers could not be written down", "error", err)
				again = time.After(patience)
			}
		}
		select {
		case <-changed:
		case <-t.wake:
		case <-again:
		case <-t.o.Member.Lost():
			t.leave()
			return
		case <-ctx.Done():
			return
		}
	}
}

func (t *Trainers) newest() (record, int64, error) { return newestOf(t.o.Member) }

func newestOf(m *membership.Member) (record, int64, error) {
	var r record
	b, id := m.Value(groupKey)
	if b == nil {
		return r, 0, nil
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, id, fmt.Errorf("trainers: the group at revision %d: %w", id, err)
	}
	return r, id, nil
}

// First returns the first node of the newest group of trainers, and since when that is a
// member: whose parameters count, where not all have the same. Empty: there is no group.
func First(m *membership.Member) (node string, epoch int64) {
	r, _, err := newestOf(m)
	if err != nil || len(r.Members) == 0 {
		return "", 0
	}
	return r.Members[0].Node, r.Members[0].Epoch
}

// lead writes a new group down if the newest is not the one that should be.
func (t *Trainers) lead(ctx context.Context, v *membership.View, r record, id int64) error {
	all := candidates(v)
	// Those that are in stay in; others come in the order in which they joined.
	slices.SortFunc(all, func(a, b membership.Info) int { return int(min(max(a.Epoch-b.Epoch, -1), 1)) })
	all = all[:min(len(all), t.o.Micros)]
	if len(all) == 0 || id == 0 && len(all) < t.o.Least {
		return nil
	}
	var next record
	failed := false
	for _, m := range all {
		next.Members = append(next.Members, recordMember{m.Node, m.Epoch})
		failed = failed || m.Failed >= id
	}
	if slices.Equal(next.Members, r.Members) && !failed {
		return nil
	}
	value, err := json.Marshal(&next)
	if err != nil {
		return fmt.Errorf("trainers: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Member.Patience())
	defer cancel()
	_, err = t.o.Member.SetValue(ctx, v.Epoch, groupKey, id, value)
	if errors.Is(err, membership.ErrStale) {
		return nil // the view that follows has what is newer
	}
	return err
}
