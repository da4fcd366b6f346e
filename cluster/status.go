package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gnnactor/gnnactor/cluster/control"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/internal/msgpackcheck"
)

// Progress is how far a node's training is.
type Progress struct {
	Epoch          int     `msgpack:"epoch" json:"epoch"` // that is trained, from 0
	Epochs         int     `msgpack:"epochs" json:"epochs"`
	State          string  `msgpack:"state" json:"state"`                     // of the run here, a training.State
	Step           int64   `msgpack:"step" json:"step"`                       // batches applied by the run
	StepsPerSecond float64 `msgpack:"steps" json:"steps_per_second"`          // lately
	MicroPerSecond float64 `msgpack:"micros" json:"micro_batches_per_second"` // computed here, lately
	InFlight       int     `msgpack:"flight" json:"micro_batches_in_flight"`  // of this node: sampled, loaded or computed
	Late           int     `msgpack:"late" json:"staleness"`                  // of the newest step, where the parameters are; synchronous: 0
	Bound          int     `msgpack:"bound" json:"staleness_bound"`           // the most that Late can be
}

// Status is what a node says about itself, and the membership about it.
type Status struct {
	Node     string   `msgpack:"node" json:"node"`
	Data     string   `msgpack:"data" json:"data"`
	Control  string   `msgpack:"control" json:"control"`
	Kinds    []string `msgpack:"kinds" json:"kinds"`
	Most     int      `msgpack:"most" json:"max_samplers,omitempty"` // of other nodes, that it takes; 0: any number
	Leader   bool     `msgpack:"leader" json:"leader"`
	Epoch    int64    `msgpack:"epoch" json:"epoch"` // at which it joined
	Draining bool     `msgpack:"draining" json:"draining"`
	Source   bool     `msgpack:"source" json:"source"` // it has all features
	Shards   []int    `msgpack:"shards" json:"shards"` // that it holds
	Wanted   int      `msgpack:"wanted" json:"wanted"` // shards that it should hold
	Moving   int      `msgpack:"moving" json:"moving"` // of those, the ones that it does not hold yet, and the ones that it holds still
	Answered bool     `msgpack:"answered" json:"answered"`
	Problem  string   `msgpack:"problem" json:"problem,omitempty"` // why not
	Training Training `msgpack:"training" json:"training"`
	Traffic  Traffic  `msgpack:"traffic" json:"traffic"`
	// Messages are what the node sent since it joined, by type.
	Messages  []transport.Sent `msgpack:"messages" json:"messages"`
	ShardMove [2]int64         `msgpack:"moves" json:"shard_moves"`           // shards taken over and let go since it joined
	Leads     int64            `msgpack:"leads" json:"leads_since,omitempty"` // Unix seconds; 0: another one does
	// Samplers says, of a trainer, where each of its samplers is and since when, in Unix seconds, and SamplerMoves how often one
	// was somewhere else than before; Shunned has the nodes that it does not ask now, and why. Drawn counts the micro-batches that this node
	// drew for other nodes' trainers, and their bytes. Moved has the newest moves that this
	// node made as the leader, and why.
	Samplers      []string `msgpack:"samplers" json:"samplers,omitempty"`
	SamplersSince []int64  `msgpack:"ssince" json:"samplers_since,omitempty"`
	SamplerMoves  int64    `msgpack:"smoves" json:"sampler_moves,omitempty"`
	Shunned       []string `msgpack:"shunned" json:"shunned,omitempty"`
	Drawn         int64    `msgpack:"drawn" json:"drawn,omitempty"`
	DrawnBytes    int64    `msgpack:"drawnb" json:"drawn_bytes,omitempty"`
	Moved         []string `msgpack:"moved" json:"moved,omitempty"`
	// Actors are the names of the actors that run there, those that are numbered with the numbers from and
	// to: run/sampler/0-3.
	Actors []string `msgpack:"actors" json:"actors"`
}

// Training is a node's part in the training.
type Training struct {
	Group        int64    `msgpack:"group" json:"group"` // of trainers, that it is in; 0: none
	State        string   `msgpack:"state" json:"state"` // in groups, a membership.State; empty: it does not train
	Progress     Progress `msgpack:"progress" json:"progress"`
	MicroBatches int64    `msgpack:"micro" json:"micro_batches"` // computed here
	Since        int64    `msgpack:"since" json:"since"`         // it trains, in Unix seconds; 0: it does not
	Pauses       int      `msgpack:"pauses" json:"pauses"`       // changes of the group between two steps that were made here
	Pause        float64  `msgpack:"pause" json:"pause"`         // the newest of them, in seconds
	MostPause    float64  `msgpack:"most" json:"most_pause"`     // the longest
}

// Shard is one of the features' shards.
type Shard struct {
	ID    int      `msgpack:"id" json:"id"`
	Node  string   `msgpack:"node" json:"node"`   // that its actor is on
	Nodes []string `msgpack:"nodes" json:"nodes"` // that hold its rows; none: they are lost
	Rows  int      `msgpack:"rows" json:"rows"`
	Bytes int64    `msgpack:"bytes" json:"bytes"`
}

// Parameters are those of the run.
type Parameters struct {
	Node  string `msgpack:"node" json:"node"` // whose count, where trainers may have older ones
	Group int64  `msgpack:"group" json:"group"`
	Step  int64  `msgpack:"step" json:"step"` // batches applied
	Late  int    `msgpack:"late" json:"staleness"`
	Bound int    `msgpack:"bound" json:"staleness_bound"`
}

// Actor is an actor of the run, wherever it is: the coordinator, the parameters, what a node trains with, a sampler or a
// shard.
type Actor struct {
	Kind  string `msgpack:"kind" json:"kind"`
	ID    string `msgpack:"id" json:"id"`       // a sampler's is its trainer's node and a number, a trainer's its node
	Node  string `msgpack:"node" json:"node"`   // empty: none has it
	Since int64  `msgpack:"since" json:"since"` // that it is there, in Unix seconds by the clock of who put it there; 0: unknown
}

// Overview is the status of all, as one node gathered it.
type Overview struct {
	By         string      `msgpack:"by" json:"by"`
	Actors     []Actor     `msgpack:"actors" json:"actors"`
	Nodes      []Status    `msgpack:"nodes" json:"nodes"`
	Shards     []Shard     `msgpack:"shards" json:"shards"`
	Parameters *Parameters `msgpack:"parameters" json:"parameters,omitempty"`
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

// Report sets who knows how far the training is.
func (n *Node) Report(progress func() Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.progress = progress
}

// member adds what the membership says.
func (s *Status) member(m *membership.Info, v *membership.View) {
	s.Node, s.Data, s.Control, s.Kinds, s.Most, s.Epoch = m.Node, m.Data, m.Control, m.Kinds, m.Most, m.Epoch
	s.Leader, s.Draining, s.Source = m.Node == v.Leader, m.Drains(), m.Source
	if !s.Answered {
		s.Shards = m.Shards
	}
}

// decode reads what an actor answered.
func decode[T any](b []byte) (v T, err error) {
	if err := msgpackcheck.Unmarshal(b, &v); err != nil {
		var none T
		return none, fmt.Errorf("cluster: an answer: %w", err)
	}
	return v, nil
}

// ControlOf returns the control planes of a view's members, the leader's first.
func ControlOf(v *membership.View) []string {
	var leader, others []string
	for _, m := range v.Members {
		switch {
		case m.Control == "":
		case m.Node == v.Leader:
			leader = append(leader, m.Control)
		default:
			others = append(others, m.Control)
		}
	}
	return append(leader, others...)
}

// Look returns the status of a view's cluster, as the leader gathers it, or, if it
// does not answer, the first member that does. It needs no membership.
func Look(ctx context.Context, cluster string, v *membership.View, reloader *transport.Reloader) (*Overview, error) {
	b, err := askAny(ctx, 3*asking, cluster, v, reloader, askStatus, nil)
	if err != nil {
		return nil, err
	}
	all, err := decode[Overview](b)
	return &all, err
}

// Known returns what the store knows of a view's members, who were not asked.
func Known(v *membership.View) *Overview {
	all := &Overview{Nodes: make([]Status, len(v.Members)), Shards: []Shard{}}
	for i := range v.Members {
		all.Nodes[i].member(&v.Members[i], v)
	}
	return all
}

// AskToDrain asks a member of a view to drain, by way of any of them. It returns
// when all nodes will hear of it.
func AskToDrain(ctx context.Context, cluster string, v *membership.View, reloader *transport.Reloader, node string) error {
	_, err := askAny(ctx, beginning+asking, cluster, v, reloader, askDrain, []byte(node))
	return err
}

// askAny asks the members one after another until one can be reached.
func askAny(ctx context.Context, limit time.Duration, cluster string, v *membership.View, reloader *transport.Reloader, question string, body []byte) (b []byte, err error) {
	err = fmt.Errorf("cluster: cluster %s has no member with a control plane", cluster)
	for _, address := range ControlOf(v) {
		try, cancel := context.WithTimeout(ctx, limit)
		b, err = control.AskAsOperator(try, cluster, address, reloader, question, body)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, control.ErrPeerGone) {
			break
		}
	}
	return b, err
}
