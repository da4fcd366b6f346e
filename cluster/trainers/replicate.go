package trainers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// Every trainer of a group keeps checkpoints of its own, so that there are
// copies of them as soon as there are two trainers. One that trains alone gives
// a copy to another node, whatever that does.

// Alone implements training.Archive.
func (t *Trainers) Alone() bool {
	v, _ := t.o.Member.View()
	return !slices.ContainsFunc(candidates(v), func(m membership.Info) bool { return m.Node != t.o.Plane.Node() })
}

// replicaNodes returns the other nodes that keep replicas, those that stay and that came
// first at the front.
func (t *Trainers) replicaNodes() (names []string) {
	v, _ := t.o.Member.View()
	all := slices.DeleteFunc(slices.Clone(v.Members), func(m membership.Info) bool {
		return m.Node == t.o.Plane.Node() || !slices.Contains(m.Kinds, dataplane.ReplicaKind)
	})
	slices.SortStableFunc(all, func(a, b membership.Info) int {
		return cmp.Or(falseFirst(a.Drains(), b.Drains()), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, m := range all {
		t.o.Plane.SetPeer(m.Node, m.Data)
		names = append(names, m.Node)
	}
	return names
}

// falseFirst orders what is false before what is true.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Replicate implements training.Archive.
func (t *Trainers) Replicate(ctx context.Context, run [32]byte, step int64, r io.ReaderAt) (node string, err error) {
	c, err := dataplane.DescribeReplica(run, step, io.NewSectionReader(r, 0, dataplane.MaxReplica+1))
	if err != nil {
		return "", err
	}
	err = training.ErrNoCopies
	for _, node := range t.replicaNodes() {
		e := dataplane.SendReplica(ctx, t.o.Plane, node, c, r)
		if e == nil {
			return node, nil
		}
		err = errors.Join(err, fmt.Errorf("node %s: %w", node, e))
		if ctx.Err() != nil {
			break
		}
	}
	return "", err
}

// asking is how long Recover waits for what a node has.
const asking = 10 * time.Second

// Recover implements training.Archive: it looks here, too.
func (t *Trainers) Recover(ctx context.Context, run [32]byte, beyond int64, take func(step int64, fetch func(path string) error) error) (from string, problems error) {
	type source struct {
		dataplane.Replica
		node string
	}
	var mu sync.Mutex
	var all []source
	add := func(node string, list []dataplane.Replica, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("node %s: %w", node, err))
		}
		for _, c := range list {
			if c.Step > beyond {
				all = append(all, source{c, node})
			}
		}
	}
	me := t.o.Plane.Node()
	if t.o.Replicas != nil {
		list, err := t.o.Replicas.List(run)
		add(me, list, err)
	}
	limit, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	var wg sync.WaitGroup
	for _, node := range t.replicaNodes() {
		wg.Go(func() {
			list, err := dataplane.ListReplicas(limit, t.o.Plane, node, run)
			add(node, list, err)
		})
	}
	wg.Wait()
	// Of those that are equally far the one that lies here is the nearest, and came first.
	slices.SortStableFunc(all, func(a, b source) int { return cmp.Compare(b.Step, a.Step) })
	for _, s := range all {
		err := take(s.Step, func(path string) error {
			if s.node == me {
				return t.o.Replicas.Fetch(s.Replica, path)
			}
			return dataplane.FetchReplica(ctx, t.o.Plane, s.node, s.Replica, path)
		})
		if err == nil {
			return s.node, problems
		}
		problems = errors.Join(problems, fmt.Errorf("node %s: %w", s.node, err))
		if ctx.Err() != nil {
			break
		}
	}
	return "", problems
}
