package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/transport"
)

// Info is what a node says about itself.
type Info struct {
	Node     string   `json:"node"`
	Home     string   `json:"home"` // identity of its directory: a restarted node has the same
	Data     string   `json:"data"` // host:port of its data plane
	Control  string   `json:"control"`
	Store    string   `json:"store,omitempty"`    // host:port of the store that it carries
	Kinds    []string `json:"kinds,omitempty"`    // what it runs: shard, sampler, trainer, …
	Yield    bool     `json:"yield,omitempty"`    // it drains, and gives its shards away
	Drain    bool     `json:"drain,omitempty"`    // it drains, and trains no more
	Shards   []int    `json:"shards,omitempty"`   // of the features, or pieces of a partition set, that it holds, in order
	Source   bool     `json:"source,omitempty"`   // it has all features, and others may copy shards from it
	Files    bool     `json:"files,omitempty"`    // others may copy the run's data from it, of which it has
	Parts    uint8    `json:"parts,omitempty"`    // those parts (store.Part)
	Pieces   []int    `json:"pieces,omitempty"`   // of the run's partition set whose files it had when it came, in order
	Samples  bool     `json:"samples,omitempty"`  // it is to have the kind of a sampler, which it may not yet
	Samplers int      `json:"samplers,omitempty"` // that it has as a trainer, wherever they are
	Most     int      `json:"most,omitempty"`     // samplers of other nodes that it takes; 0: any number
	Run      int64    `json:"run,omitempty"`      // the run that it takes part in: the revision of its record
	Done     bool     `json:"done,omitempty"`     // it came to the end of it, and reads nothing of others any more
	Spread   int64    `json:"spread,omitempty"`   // it needs no more of what computes a partition set's pieces by the agreement of that revision
	// Failed is the newest group of trainers that did not work out for it: the
	// leader makes another.
	Failed int64 `json:"failed,omitempty"`
	// Left: it makes no step in groups of trainers up to this one.
	Left int64 `json:"left,omitempty"`
	// TTL and Outage are its Config's; Join sets them.
	TTL    time.Duration `json:"ttl,omitempty"`
	Outage time.Duration `json:"outage,omitempty"`
	// Epoch is the revision at which it joined: of two nodes of one name the
	// later has the larger. The store sets it.
	Epoch int64 `json:"-"`
	// Away: its lease has ended, but so may this node's have, as when the store was
	// away: for a while it counts as a member, so that it can come back.
	Away bool `json:"-"`
}

// Drains reports whether the node is on its way out of the cluster.
func (i *Info) Drains() bool { return i.Yield || i.Drain }

// View is the cluster at a revision. It must not be changed.
type View struct {
	Revision int64
	Members  []Info // by name
	// Absent have a place, and are not members: their leases have ended. They may
	// still do what takes no store.
	Absent []Info
	// Departed says of nodes that were members how their newest membership ended.
	Departed []Departure
	// Leader is the name of the leading node, Epoch the revision at which it
	// was elected; "" and 0 while there is none.
	Leader string
	Epoch  int64
}

// Member returns the member of a name.
func (v *View) Member(node string) (Info, bool) { return find(v.Members, node) }

func find(all []Info, node string) (Info, bool) {
	i, ok := slices.BinarySearchFunc(all, node, func(m Info, n string) int { return strings.Compare(m.Node, n) })
	if !ok {
		return Info{}, false
	}
	return all[i], true
}

// Config of a member.
type Config struct {
	Cluster string
	Info    Info
	// TTL is how long a node that is not heard of stays a member; 3 s, which is
	// longer than the store's election takes. One that is known to have died goes
	// before (Suspect).
	TTL time.Duration
	// Outage is how long the node goes on with what takes no store while that does not
	// answer, from the newest read that it answered; 0: 2 minutes; negative, or at most
	// TTL: no longer than its lease lives.
	Outage time.Duration
	// Waits: the node does not stand for election until Stand is called, because it
	// does not do yet what a leader must; Join does not wait for a leader then.
	Waits bool
	// Leaving is how long the store may take to hear that the node leaves; 0: 3 s.
	Leaving time.Duration
	Logger  *slog.Logger
}

// ErrFenced: this node is not a member any longer; what it does is void.
var ErrFenced = errors.New("membership: this node's lease has ended")

// ErrNameTaken: another live node has the name.
var ErrNameTaken = errors.New("membership: the name is taken")

// Member is this node's membership.
type Member struct {
	store  Store
	cfg    Config
	prefix string
	born   time.Time
	epoch  int64
	cancel context.CancelFunc
	ctx    context.Context
	tasks  sync.WaitGroup
	lost   chan struct{}

	stands    sync.Once
	spare     Lease // that this node does not live by yet; keep's
	announced announcements

	woken chan struct{} // has room for what makes keep look again

	mu       sync.Mutex
	lease    Lease
	trouble  error // of the newest call to keep the lease, or for a new one; nil: it was answered
	standing *Standing
	stood    chan struct{} // closed when the standing is another
	info     Info
	err      error
	view     *View
	changed  chan struct{}
	entries  map[string]Entry
}

// Prefix returns the keys of a cluster.
func Prefix(cluster string) string { return "/gnnactor/" + cluster + "/" }

// DefaultOutage is Config.Outage where it is 0.
const DefaultOutage = 2 * time.Minute

// Join makes this node a member. It returns when the node sees itself. A node
// of the same name and Home, which must have died, is replaced; one with
// another Home is ErrNameTaken.
func Join(ctx context.Context, store Store, cfg Config) (*Member, error) {
	for _, name := range []string{cfg.Cluster, cfg.Info.Node} {
		if err := transport.CheckNode(name); err != nil {
			return nil, err
		}
	}
	cfg.TTL, cfg.Leaving = cmp.Or(cfg.TTL, 3*time.Second), cmp.Or(cfg.Leaving, leaving)
	cfg.Outage = max(cmp.Or(cfg.Outage, DefaultOutage), 0)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.TTL < time.Second {
		return nil, fmt.Errorf("membership: a lease of %v; the least is 1s", cfg.TTL)
	}
	began := time.Now()
	lease, err := store.Grant(ctx, cfg.TTL)
	if err != nil {
		return nil, err
	}
	m := &Member{
		store: store, cfg: cfg, prefix: Prefix(cfg.Cluster), lease: lease, info: cfg.Info,
		lost: make(chan struct{}), changed: make(chan struct{}), view: &View{}, entries: map[string]Entry{},
		announced: announcements{turn: make(chan struct{}, 1)}, born: began, stood: make(chan struct{}), woken: make(chan struct{}, 1),
	}
	m.info.TTL, m.info.Outage = cfg.TTL, cfg.Outage
	if m.epoch, err = m.register(ctx); err != nil {
		return nil, errors.Join(err, m.giveBack(context.WithoutCancel(ctx)))
	}
	m.store = &patient{store, m.Patience()}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.standing = NewStanding(Terms{TTL: cfg.TTL, Outage: cfg.Outage}, 0, m.now())
	m.tasks.Go(m.keep)
	m.tasks.Go(m.follow)
	if !cfg.Waits {
		m.Stand()
	}
	for {
		v, changed := m.View()
		if me, ok := v.Member(cfg.Info.Node); ok && me.Epoch == m.epoch && (v.Leader != "" || cfg.Waits) {
			return m, nil
		}
		select {
		case <-changed:
		case <-m.lost:
			m.stop()
			return nil, m.Err()
		case <-ctx.Done():
			m.stop()
			return nil, errors.Join(fmt.Errorf("membership: join: %w", ctx.Err()), m.giveBack(context.WithoutCancel(ctx)))
		}
	}
}

func (m *Member) key() string       { return m.memberKey(m.cfg.Info.Node) }
func (m *Member) leaderKey() string { return m.prefix + "leader" }

// register takes this node's place, which it keeps until it departs, and says
// that it lives, as long as its lease does. It returns its epoch.
func (m *Member) register(ctx context.Context) (int64, error) {
	value, err := json.Marshal(&m.info)
	if err != nil {
		return 0, fmt.Errorf("membership: %w", err)
	}
	alive := m.aliveKey(m.cfg.Info.Node)
	for {
		entries, _, err := m.all(ctx)
		if err != nil {
			return 0, err
		}
		old, taken := entries[m.key()]
		if !taken {
			ok, rev, err := m.store.Commit(ctx, []If{{Key: m.key()}},
				[]Change{{Key: m.key(), Value: value}, {Key: alive, Value: []byte(m.info.Home), Lease: m.lease}})
			if err != nil || ok {
				return rev, err
			}
			continue
		}
		var info Info
		if err := json.Unmarshal(old.Value, &info); err != nil {
			return 0, fmt.Errorf("membership: %s: %w", old.Key, err)
		}
		reason := "another process of its directory took its place"
		if info.Home != m.info.Home || info.Home == "" {
			if _, lives := entries[alive]; lives || !refused(ctx, info.Data, m.Patience()) {
				return 0, fmt.Errorf("%w: node %s is a member at %s, or was lately; give this one another name, or, if it is the same node, the directory that it had", ErrNameTaken, info.Node, info.Data)
			}
			reason = "nothing listens at " + info.Data + " any more, and another node took its name"
		}
		// Ended first, so that the epoch is new.
		ifs, do, err := m.departing(entries, info.Node, old.Created, true, reason)
		if err != nil {
			return 0, err
		}
		if _, _, err := m.store.Commit(ctx, ifs, do); err != nil {
			return 0, err
		}
	}
}

// all reads what the store has of the cluster, by key.
func (m *Member) all(ctx context.Context) (map[string]Entry, int64, error) {
	list, revision, err := m.store.List(ctx, m.prefix)
	if err != nil {
		return nil, 0, err
	}
	return byKey(list), revision, nil
}

func byKey(list []Entry) map[string]Entry {
	entries := make(map[string]Entry, len(list))
	for _, e := range list {
		entries[e.Key] = e
	}
	return entries
}

// Lost is closed when this node must stop its actors: it is fenced.
func (m *Member) Lost() <-chan struct{} { return m.lost }

// Err returns why the node was fenced; nil while it is a member.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Epoch returns the revision at which this node joined.
func (m *Member) Epoch() int64 { return m.epoch }

// View returns the newest view, and a channel that is closed when there is a
// newer one.
func (m *Member) View() (*View, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view, m.changed
}

// Leads reports whether this node leads in v.
func (m *Member) Leads(v *View) bool { return v.Leader == m.cfg.Info.Node }

// Resign gives up the lead, if this node has it.
func (m *Member) Resign(ctx context.Context) error {
	v, _ := m.View()
	if !m.Leads(v) {
		return nil
	}
	_, _, err := m.store.Commit(ctx, []If{{Key: m.leaderKey(), Created: v.Epoch}}, []Change{{Key: m.leaderKey()}})
	return err
}

// Leave ends the membership at once, and waits for what Join started. A store that
// does not answer ends the lease by itself: nobody waits for it longer than Config.Leaving.
func (m *Member) Leave(ctx context.Context) error {
	m.stop()
	err := m.giveBack(ctx)
	if m.Err() != nil {
		return nil // it is no member any more, as far as anybody knows
	}
	return err
}

// leaving is Config.Leaving where it is 0.
const leaving = 3 * time.Second

func (m *Member) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Leaving)
	defer cancel()
	left := m.depart(ctx)
	err := m.store.Revoke(ctx, m.held())
	if errors.Is(err, ErrLeaseGone) {
		err = nil
	}
	if err = errors.Join(left, err); err != nil {
		return fmt.Errorf("membership: the others hear that this node left when its lease ends: %w", err)
	}
	return nil
}

// depart says that this node is no member any more, so that nobody waits for it.
func (m *Member) depart(ctx context.Context) error {
	for m.epoch != 0 {
		entries, _, err := m.all(ctx)
		if err != nil {
			return err
		}
		if entries[m.key()].Created != m.epoch {
			break
		}
		ifs, do, err := m.departing(entries, m.cfg.Info.Node, m.epoch, true, "it left")
		if err != nil {
			return err
		}
		if ok, _, err := m.store.Commit(ctx, ifs, do); err != nil || ok {
			return err
		}
	}
	return nil
}

func (m *Member) stop() {
	m.cancel()
	m.tasks.Wait()
}

// viewOf makes the view of a cluster's entries: the members are those that have
// a place, and live or are held. What is malformed is passed over.
func viewOf(prefix string, entries map[string]Entry, revision int64, held func(node string) bool) *View {
	v := &View{Revision: revision}
	for key, e := range entries {
		if name, ok := strings.CutPrefix(key, prefix+"departed/"); ok {
			if d, ok := departure(prefix, entries, name); ok {
				v.Departed = append(v.Departed, d)
			}
			continue
		}
		name, ok := strings.CutPrefix(key, prefix+"members/")
		var info Info
		if !ok || json.Unmarshal(e.Value, &info) != nil || info.Node != name {
			continue
		}
		info.Epoch = e.Created
		if _, lives := entries[prefix+"alive/"+name]; !lives {
			if info.Away = true; !held(name) {
				v.Absent = append(v.Absent, info)
				continue
			}
		}
		v.Members = append(v.Members, info)
	}
	for _, all := range [][]Info{v.Members, v.Absent} {
		slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Node, b.Node) })
	}
	if e, ok := entries[prefix+"leader"]; ok {
		v.Leader, v.Epoch = string(e.Value), e.Created
	}
	return v
}

// Look returns the view of a cluster to one who is not a member.
func Look(ctx context.Context, store Store, cluster string) (*View, error) {
	prefix := Prefix(cluster)
	all, revision, err := store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	return viewOf(prefix, byKey(all), revision, func(string) bool { return false }), nil
}

// ReadValue returns a value of a cluster's state, and its epoch, as Value does, to one who is not
// a member; nil and 0: there is none.
func ReadValue(ctx context.Context, store Store, cluster, key string) ([]byte, int64, error) {
	full := Prefix(cluster) + "state/" + key
	all, _, err := store.List(ctx, full)
	if err != nil {
		return nil, 0, err
	}
	e := byKey(all)[full]
	return e.Value, e.Modified, nil
}
