package group_test

import (
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/group"
)

// A trainer goes through its states in their order, and to the first when a group is over.
func TestState(t *testing.T) {
	me, other := group.Member{Node: "a", Epoch: 1}, group.Member{Node: "b", Epoch: 2}
	n := group.NewTrainer(me, 4, 1, time.Second)
	seen := func(id int64, members ...group.Member) group.Seen {
		s := group.Seen{Record: group.Record{Group: group.Group{ID: id, Members: members}}}
		for _, m := range []group.Member{me, other} {
			s.Peers = append(s.Peers, group.Peer{Member: m, Lives: true, Trainer: true})
		}
		return s
	}
	for i, x := range []struct {
		event group.Event
		want  group.State
	}{
		{seen(3, me), group.Outside},
		{group.Want{}, group.Entered},
		{group.Began{ID: 2}, group.Entered},
		{group.Began{ID: 3}, group.Stepping},
		{group.Made{ID: 3, More: true}, group.Stepping},
		{seen(5, me, other), group.Leaving},
		{group.Made{ID: 3, More: true}, group.Outside},
		{group.Want{}, group.Entered},
		{group.Began{ID: 5}, group.Stepping},
		{group.Aborted{ID: 5}, group.Outside},
		{seen(8, me, other), group.Outside},
		{group.Want{}, group.Entered},
		{group.Made{ID: 8}, group.Stepping},
		{group.Ended{Is: true}, group.Finished},
		{group.Ended{}, group.Stepping},
	} {
		n.Step(0, x.event)
		if got := n.State(); got != x.want {
			t.Errorf("after event %d, %T, it is %v, not %v", i, x.event, got, x.want)
		}
	}
}
