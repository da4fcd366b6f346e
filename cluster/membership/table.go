package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrStale: a write under an epoch that is over.
var ErrStale = errors.New("membership: stale epoch")

// Place says where an actor is. Epoch is the revision of the entry.
type Place struct {
	Kind  string `json:"-"`
	ID    string `json:"-"`
	Node  string `json:"node"`
	Since int64  `json:"since,omitempty"` // by the clock of the leader that wrote it, in Unix seconds
	Epoch int64  `json:"-"`
}

func (m *Member) placeKey(kind, id string) string { return m.prefix + "places/" + kind + "/" + id }

// Places returns the placement table of the newest view, by kind and id.
func (m *Member) Places() []Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Place
	for key, e := range m.entries {
		if p, ok := m.place(key, e); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Place) int {
		return strings.Compare(a.Kind+"/"+a.ID, b.Kind+"/"+b.ID)
	})
	return all
}

// Place returns the entry of one actor.
func (m *Member) Place(kind, id string) (Place, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.placeKey(kind, id)
	e, ok := m.entries[key]
	if !ok {
		return Place{}, false
	}
	return m.place(key, e)
}

func (m *Member) place(key string, e Entry) (Place, bool) {
	rest, ok := strings.CutPrefix(key, m.prefix+"places/")
	if !ok {
		return Place{}, false
	}
	kind, id, ok := strings.Cut(rest, "/")
	var p Place
	if !ok || json.Unmarshal(e.Value, &p) != nil {
		return Place{}, false
	}
	p.Kind, p.ID, p.Epoch = kind, id, e.Modified
	return p, true
}

// MaxPlaces is how many entries SetPlaces writes at most.
const MaxPlaces = 64

// SetPlaces writes entries as leader of epoch leader, all or none, each if it is
// still at its Epoch (0: it does not exist), Since now; one with an empty Node is deleted.
// ErrStale: this node leads no longer, or somebody else wrote one of them.
func (m *Member) SetPlaces(ctx context.Context, leader int64, places []Place) error {
	if err := m.Err(); err != nil {
		return err
	}
	if len(places) > MaxPlaces {
		return fmt.Errorf("membership: %d places at once; at most %d", len(places), MaxPlaces)
	}
	ifs := []If{{Key: m.leaderKey(), Created: leader}, {Key: m.key(), Created: m.epoch}}
	var do []Change
	for _, p := range places {
		if strings.ContainsAny(p.Kind+p.ID, "/") || p.Kind == "" || p.ID == "" {
			return fmt.Errorf("membership: place of kind %q, id %q: neither may be empty or hold a slash", p.Kind, p.ID)
		}
		c := Change{Key: m.placeKey(p.Kind, p.ID)}
		if p.Node != "" {
			p.Since = time.Now().Unix()
			value, err := json.Marshal(&p)
			if err != nil {
				return fmt.Errorf("membership: %w", err)
			}
			c.Value = value
		}
		i := If{Key: c.Key}
		if p.Epoch != 0 {
			m.mu.Lock()
			e := m.entries[c.Key]
			m.mu.Unlock()
			if e.Modified != p.Epoch {
				return fmt.Errorf("%w: %s is not at revision %d", ErrStale, c.Key, p.Epoch)
			}
			i.Created, i.Modified = e.Created, e.Modified
		}
		ifs, do = append(ifs, i), append(do, c)
	}
	ok, _, err := m.store.Commit(ctx, ifs, do)
	if err == nil && !ok {
		err = fmt.Errorf("%w: places under leader %d", ErrStale, leader)
	}
	return err
}

// Value returns a value of the run's state that SetValue wrote, and its epoch;
// nil and 0: there is none.
func (m *Member) Value(key string) ([]byte, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[m.stateKey(key)]
	return e.Value, e.Modified
}

// Until waits until the view satisfies what.
func (m *Member) Until(ctx context.Context, what func(*View) bool) (*View, error) {
	for {
		v, changed := m.View()
		if what(v) {
			return v, nil
		}
		if err := m.Wait(ctx, changed, 0); err != nil {
			return nil, err
		}
	}
}

// Wait waits until changed is closed, or for so long; 0: however long it takes. An error, why this node is no member
// any more, or why ctx has ended: it is not waited for.
func (m *Member) Wait(ctx context.Context, changed <-chan struct{}, limit time.Duration) error {
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case <-changed:
	case <-over:
	case <-m.lost:
		return m.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
