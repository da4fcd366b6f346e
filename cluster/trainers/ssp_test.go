package trainers

import (
	"errors"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// When the group is over for the node with the parameters before it has begun an epoch, who waits
// for that epoch's end hears that there is none, even if it has heard of nothing else.
func TestEpochThatNeverBegins(t *testing.T) {
	ctx := within(t)
	store := membership.NewMemStore()
	defer store.Close()
	both, shares := []*trainer{join(t, store, "a", 2), join(t, store, "b", 2)}, map[bool]*Share{}
	groups := make([]training.Group, 2)
	together(t, both, func(x *trainer) (err error) {
		team := x.Begin(training.Audit{}, nil)
		t.Cleanup(team.Close)
		i := 0
		if x == both[1] {
			i = 1
		}
		groups[i], err = team.Rendezvous(ctx, x.state())
		return err
	})
	for _, g := range groups {
		shares[g.First()] = g.(*Share)
	}
	heard := make(chan error, 1)
	go func() {
		_, err := shares[false].TakeOver(ctx, 3, 100)
		heard <- err
	}()
	shares[true].group.Close()
	if err := <-heard; !errors.Is(err, training.ErrGroup) {
		t.Errorf("%v; want that the group is over", err)
	}
	select {
	case <-shares[false].Done():
		t.Error("the group was over for the other node, too: the test shows nothing")
	default:
	}
}
