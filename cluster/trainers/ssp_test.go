package trainers

import (
	"context"
	"errors"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// When the group is over for the node with the parameters before it has begun an epoch, who waits
// for that epoch's end hears that there is none, even if it has heard of nothing else.
func TestEpochThatNeverBegins(t *testing.T) {
	ctx := within(t)
	shares := sharesOfTwo(t, ctx)
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

// Nor does the node with the parameters wait for who heard that, once it begins the epoch all the same, to take its state over.
func TestEpochThatNobodyFollows(t *testing.T) {
	ctx := within(t)
	shares := sharesOfTwo(t, ctx)
	owner, follower := shares[true], shares[false]
	state := make(chan error, 1)
	go func() {
		_, err := follower.TakeOver(ctx, 0, 100)
		state <- err
	}()
	if err := errors.Join(owner.ServeParameters(ctx, 0, nil, 1), owner.HandOver(ctx, []byte("state"), nil), <-state); err != nil {
		t.Fatal(err)
	}
	members := owner.group.Members()
	if got := owner.team.ssp.begun(members); len(got) != 1 {
		t.Fatalf("%q follow", got)
	}
	owner.group.Close()
	if _, err := follower.TakeOver(ctx, 1, 100); !errors.Is(err, training.ErrGroup) {
		t.Fatalf("%v; want that the group is over", err)
	}
	if err := owner.ServeParameters(ctx, 1, nil, 1); !errors.Is(err, training.ErrGroup) {
		t.Errorf("%v; want that the group is over", err)
	}
	if got := owner.team.ssp.begun(members); len(got) > 0 {
		t.Errorf("%q are waited for, and have heard that the group is over", got)
	}
}

// sharesOfTwo returns what two nodes have of a group: true, what the first has.
func sharesOfTwo(t *testing.T, ctx context.Context) map[bool]*Share {
	t.Helper()
	store := membership.NewMemStore()
	t.Cleanup(func() { store.Close() })
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
	return shares
}
