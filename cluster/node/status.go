package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gnnactor/gnnactor/cluster/certs"
	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/internal/bounded"
)

// Progress is how far a node's training is.
type Progress struct {
	Epoch          int     `msgpack:"epoch" json:"epoch"` // that is trained, from 0
	Epochs         int     `msgpack:"epochs" json:"epochs"`
	Step           int64   `msgpack:"step" json:"step"`                       // batches applied by the run
	StepsPerSecond float64 `msgpack:"steps" json:"steps_per_second"`          // lately
	MicroPerSecond float64 `msgpack:"micros" json:"micro_batches_per_second"` // computed here, lately
	InFlight       int     `msgpack:"flight" json:"micro_batches_in_flight"`  // of this node: sampled, loaded or computed
	Late           int     `msgpack:"late" json:"staleness"`                  // of the newest step, where the parameters are; synchronous: 0
	Bound          int     `msgpack:"bound" json:"staleness_bound"`           // the most that Late can be
}

// Status is what a node says about itself, and the membership about it.
type Status struct {
	Node      string   `msgpack:"node" json:"node"`
	Data      string   `msgpack:"data" json:"data"`
	Control   string   `msgpack:"control" json:"control"`
	Kinds     []string `msgpack:"kinds" json:"kinds"`
	Leader    bool     `msgpack:"leader" json:"leader"`
	Epoch     int64    `msgpack:"epoch" json:"epoch"` // at which it joined
	Draining  bool     `msgpack:"draining" json:"draining"`
	Source    bool     `msgpack:"source" json:"source"` // it has all features
	Shards    []int    `msgpack:"shards" json:"shards"` // that it holds
	Wanted    int      `msgpack:"wanted" json:"wanted"` // shards that it should hold
	Moving    int      `msgpack:"moving" json:"moving"` // of those, the ones that it does not hold yet, and the ones that it holds still
	Answered  bool     `msgpack:"answered" json:"answered"`
	Problem   string   `msgpack:"problem" json:"problem,omitempty"` // why not
	Training  Training `msgpack:"training" json:"training"`
	Traffic   Traffic  `msgpack:"traffic" json:"traffic"`
	ShardMove [2]int64 `msgpack:"moves" json:"shard_moves"` // shards taken over and let go since it joined
}

// Training is a node's part in the training.
type Training struct {
	Group        int64    `msgpack:"group" json:"group"` // of trainers, that it is in; 0: none
	Progress     Progress `msgpack:"progress" json:"progress"`
	MicroBatches int64    `msgpack:"micro" json:"micro_batches"` // computed here
}

// Traffic is what the data plane moved since the node joined.
type Traffic struct {
	Sent      int64 `msgpack:"sent" json:"sent_bytes"`
	Received  int64 `msgpack:"received" json:"received_bytes"`
	Asked     int64 `msgpack:"asked" json:"asked"`
	Answered  int64 `msgpack:"answered" json:"answered"`
	RowRounds int64 `msgpack:"rounds" json:"row_rounds"`  // exchanges of feature rows
	Rows      int64 `msgpack:"rows" json:"rows_received"` // that came from other nodes
}

// The kinds of the control plane's messages.
const (
	kindStatus = "status"
	kindDrain  = "drain"
)

// gathering is how long a status waits for a node that does not answer.
const gathering = 2 * time.Second

// answer sets what this node answers on the control plane.
func (n *Node) answer() {
	n.Control.Handle(kindStatus, func(context.Context, string, []byte) ([]byte, error) {
		s := n.status()
		return msgpack.Marshal(&s)
	})
	n.Control.Handle(kindDrain, func(ctx context.Context, from string, _ []byte) ([]byte, error) {
		return nil, n.drainFor(ctx, "node "+from)
	})
	n.Control.HandleVisitor(kindStatus, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		all := n.gather(ctx)
		return msgpack.Marshal(all)
	})
	n.Control.HandleVisitor(kindDrain, func(ctx context.Context, from string, body []byte) ([]byte, error) {
		node := string(body)
		if node == n.Plane.Node() {
			return nil, n.drainFor(ctx, "visitor "+from)
		}
		return n.Control.Ask(ctx, node, kindDrain, nil)
	})
}

// drainFor drains unless nobody would be left to train.
func (n *Node) drainFor(ctx context.Context, who string) error {
	v, _ := n.Member.View()
	if me, _ := v.Member(n.Plane.Node()); slices.Contains(me.Kinds, trainers.Kind) && !slices.ContainsFunc(v.Members, func(m membership.Info) bool {
		return m.Node != me.Node && !m.Drains() && slices.Contains(m.Kinds, trainers.Kind)
	}) {
		return fmt.Errorf("node: %s is the last that trains: nobody would take over; interrupt it to end the run", me.Node)
	}
	n.log.Info("asked to drain", "by", who)
	return n.Drain(ctx)
}

// Report sets who knows how far the training is.
func (n *Node) Report(progress func() Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.progress = progress
}

// status is this node's.
func (n *Node) status() Status {
	n.mu.Lock()
	f, t, progress := n.features, n.trainers, n.progress
	n.mu.Unlock()
	stats := n.Plane.Stats()
	s := Status{Answered: true, Traffic: Traffic{Sent: stats.Sent, Received: stats.Received, Asked: stats.Asked, Answered: stats.Answered}}
	if f != nil {
		s.Shards = f.keeper.List()
		s.Wanted, s.Moving = f.keeper.Wanted()
		s.ShardMove[0], s.ShardMove[1] = f.keeper.Moves()
		s.Traffic.RowRounds, s.Traffic.Rows = f.keeper.Store().Stats()
	}
	if t != nil {
		if runs := t.Runs(); len(runs) > 0 {
			s.Training.Group = runs[len(runs)-1].Group
		}
		s.Training.MicroBatches = t.Made()
	}
	if progress != nil {
		s.Training.Progress = progress()
	}
	return s
}

// gather asks all members.
func (n *Node) gather(ctx context.Context) []Status {
	ctx, cancel := context.WithTimeout(ctx, gathering)
	defer cancel()
	v, _ := n.Member.View()
	all := make([]Status, len(v.Members))
	var wg sync.WaitGroup
	for i := range v.Members {
		wg.Go(func() {
			m := &v.Members[i]
			if m.Node == n.Plane.Node() {
				all[i] = n.status()
			} else if b, err := n.Control.Ask(ctx, m.Node, kindStatus, nil); err != nil {
				all[i].Problem = err.Error()
			} else if all[i], err = decodeStatus(b); err != nil {
				all[i].Problem = err.Error()
			}
			all[i].member(m, v)
		})
	}
	wg.Wait()
	return all
}

// member adds what the membership says.
func (s *Status) member(m *membership.Info, v *membership.View) {
	s.Node, s.Data, s.Control, s.Kinds, s.Epoch = m.Node, m.Data, m.Control, m.Kinds, m.Epoch
	s.Leader, s.Draining, s.Source = m.Node == v.Leader, m.Drains(), m.Source
	if !s.Answered {
		s.Shards = m.Shards
	}
}

func decodeStatus(b []byte) (s Status, err error) {
	if err := bounded.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("node: a status: %w", err)
	}
	return s, nil
}

// ControlOf returns the control planes of a view's members, the leader's first.
func ControlOf(v *membership.View) []string {
	members := slices.Clone(v.Members)
	slices.SortStableFunc(members, func(a, b membership.Info) int {
		return cmp.Compare(btoi(b.Node == v.Leader), btoi(a.Node == v.Leader))
	})
	var all []string
	for _, m := range members {
		if m.Control != "" {
			all = append(all, m.Control)
		}
	}
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Look returns the status of all nodes of a view, as the first of its members
// that answers gathers it. It needs no membership.
func Look(ctx context.Context, cluster string, v *membership.View, keeper *certs.Keeper) ([]Status, error) {
	b, err := visitAny(ctx, cluster, v, keeper, kindStatus, nil)
	if err != nil {
		return nil, err
	}
	var all []Status
	if err := bounded.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("node: a status: %w", err)
	}
	return all, nil
}

// Known returns what the store knows of a view's members, who were not asked.
func Known(v *membership.View) []Status {
	all := make([]Status, len(v.Members))
	for i := range v.Members {
		all[i].member(&v.Members[i], v)
	}
	return all
}

// AskToDrain asks a member of a view to drain, by way of any of them. It returns
// when all nodes will hear of it.
func AskToDrain(ctx context.Context, cluster string, v *membership.View, keeper *certs.Keeper, node string) error {
	_, err := visitAny(ctx, cluster, v, keeper, kindDrain, []byte(node))
	return err
}

// visitAny asks the members one after another until one can be reached.
func visitAny(ctx context.Context, cluster string, v *membership.View, keeper *certs.Keeper, kind string, body []byte) (b []byte, err error) {
	err = fmt.Errorf("node: cluster %s has no member with a control plane", cluster)
	for _, address := range ControlOf(v) {
		try, cancel := context.WithTimeout(ctx, 2*gathering)
		b, err = control.Visit(try, cluster, address, keeper, kind, body)
		cancel()
		if err == nil || ctx.Err() != nil || !isGone(err) {
			break
		}
	}
	return b, err
}
