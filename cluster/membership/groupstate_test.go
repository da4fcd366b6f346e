package membership_test

import (
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// A trainer goes through its states in their order, and to the first when a group is over.
func TestState(t *testing.T) {
	me, other := membership.Peer{Node: "a", Epoch: 1}, membership.Peer{Node: "b", Epoch: 2}
	n := membership.NewTrainer(me, 4, 1, time.Second)
	seen := func(id int64, members ...membership.Peer) membership.Seen {
		s := membership.Seen{Record: membership.Record{Group: membership.Group{ID: id, Members: members}}}
		for _, m := range []membership.Peer{me, other} {
			s.Peers = append(s.Peers, membership.PeerView{Peer: m, Lives: true, Trainer: true})
		}
		return s
	}
	for i, x := range []struct {
		event membership.Event
		want  membership.State
	}{
		{seen(3, me), membership.Outside},
		{membership.Want{}, membership.Entered},
		{membership.Began{ID: 2}, membership.Entered},
		{membership.Began{ID: 3}, membership.Stepping},
		{membership.Made{ID: 3, More: true}, membership.Stepping},
		{seen(5, me, other), membership.Leaving},
		{membership.Made{ID: 3, More: true}, membership.Outside},
		{membership.Want{}, membership.Entered},
		{membership.Began{ID: 5}, membership.Stepping},
		{membership.Aborted{ID: 5}, membership.Outside},
		{seen(8, me, other), membership.Outside},
		{membership.Want{}, membership.Entered},
		{membership.Made{ID: 8}, membership.Stepping},
		{membership.Ended{Is: true}, membership.Finished},
		{membership.Ended{}, membership.Stepping},
	} {
		n.Step(0, x.event)
		if got := n.State(); got != x.want {
			t.Errorf("after event %d, %T, it is %v, not %v", i, x.event, got, x.want)
		}
	}
}
