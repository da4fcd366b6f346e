package trainers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/training"
)

// A copy goes to the node that came first of those that stay, and to the next if that one cannot take it; the furthest copy is taken first,
// the one that lies here before those of others that are as far.
func TestReplicas(t *testing.T) {
	ctx := within(t)
	store := membership.NewMemStore()
	planes := map[string]*dataplane.Plane{}
	members := map[string]*membership.Member{}
	for _, name := range []string{"d", "c", "b"} { // by name the last came first
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: name, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		if _, err := dataplane.ServeReplicas(p, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		m, err := membership.Join(ctx, store, membership.Config{Cluster: "test", TTL: time.Minute,
			Info: membership.Info{Node: name, Home: name, Data: p.Address(), Kinds: []string{dataplane.ReplicaKind}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Leave(ctx) })
		planes[name], members[name] = p, m
	}
	a := join(t, store, "a", 1)
	run := [32]byte{7}
	sees := func(what func(*membership.View) bool) {
		t.Helper()
		if _, err := a.member.Until(ctx, what); err != nil {
			t.Fatal(err)
		}
	}
	sees(func(v *membership.View) bool { return len(v.Members) == 4 })
	copied := func(step int64, to string) {
		t.Helper()
		if node, err := a.Replicate(ctx, run, step, bytes.NewReader([]byte(fmt.Sprint("checkpoint of ", step)))); err != nil || node != to {
			t.Errorf("a copy of step %d went to %q (%v), not to %q", step, node, err, to)
		}
	}
	copied(5, "d")
	if err := members["d"].Announce(ctx, func(i *membership.Info) { i.Drain = true }); err != nil {
		t.Fatal(err)
	}
	sees(func(v *membership.View) bool { d, _ := v.Member("d"); return d.Drain })
	copied(6, "c")

	replicas, err := dataplane.ServeReplicas(a.plane, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a.Trainers.o.Replicas = replicas
	planes["b"].SetPeer("a", a.plane.Address())
	b := []byte("checkpoint of 6")
	same, err := dataplane.DescribeReplica(run, 6, bytes.NewReader(b))
	if err == nil {
		err = dataplane.SendReplica(ctx, planes["b"], "a", same, bytes.NewReader(b))
	}
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	errUnwanted := errors.New("unwanted")
	file := filepath.Join(t.TempDir(), "x")
	take := func(least int, beyond int64) (string, error) {
		steps = nil
		return a.Recover(ctx, run, beyond, func(step int64, fetch func(string) error) error {
			if steps = append(steps, step); len(steps) < least {
				return errUnwanted
			}
			return fetch(file)
		})
	}
	for _, x := range []struct {
		least  int
		beyond int64
		from   string
		steps  []int64
	}{{1, 0, "a", []int64{6}}, {2, 0, "c", []int64{6, 6}}, {3, 0, "d", []int64{6, 6, 5}}, {3, 5, "", []int64{6, 6}}} {
		from, problems := take(x.least, x.beyond)
		if from != x.from || !slices.Equal(steps, x.steps) || (x.least > 1) != errors.Is(problems, errUnwanted) {
			t.Errorf("beyond %d, the copy after %d unwanted: from %q (%v), of steps %v; it is of %q, %v", x.beyond, x.least-1, from, problems, steps, x.from, x.steps)
		}
		if got, _ := os.ReadFile(file); from != "" && string(got) != fmt.Sprint("checkpoint of ", steps[len(steps)-1]) {
			t.Errorf("%q was brought from %s as step %d", got, from, steps[len(steps)-1])
		}
	}

	planes["c"].Close()
	copied(7, "b")
	planes["b"].Close()
	copied(8, "d")
	planes["d"].Close()
	if node, err := a.Replicate(ctx, run, 9, bytes.NewReader([]byte("x"))); !errors.Is(err, training.ErrNoCopies) || node != "" {
		t.Errorf("a copy went to %q (%v), and nobody is there", node, err)
	}
}
