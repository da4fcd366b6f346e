package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/runtime"
)

// startDamaged starts a run on a graph of its own, of which bits are flipped in
// memory after it was opened: a neighbour of each training node is another one.
func startDamaged(ctx context.Context, c runtime.Config) (*runtime.Runtime, error) {
	ds := *generate.Builtin()
	g := *ds.Graph
	g.Indices = slices.Clone(g.Indices)
	ds.Graph = &g
	c.Data.Dataset = &ds
	r, err := runtime.Start(ctx, c)
	if err == nil {
		for _, v := range ds.Train {
			g.Indices[g.Indptr[v]] ^= 1
		}
	}
	return r, err
}

// lies is the part of a node in a test: whether its memory is damaged, and after which
// epoch of the first node it comes.
type lies struct {
	damaged bool
	after   int
}

// trainAudited trains on nodes n0, n1, … and returns what each ended with, and from
// which steps it had to go back.
func trainAudited(t *testing.T, c runtime.Config, nodes []lies, dirs bool) (params []string, errs []error, back []int) {
	t.Helper()
	store := membership.NewMemStore()
	defer store.Close()
	params, errs, back = make([]string, len(nodes)), make([]error, len(nodes)), make([]int, len(nodes))
	least := len(slices.DeleteFunc(slices.Clone(nodes), func(l lies) bool { return l.after > 0 }))
	ended := make(chan int, c.Training.Epochs) // epochs of the first node
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i, l := range nodes {
		c := c
		if dirs {
			c.Checkpoint.Dir = t.TempDir()
		}
		var x *node
		if l.after == 0 {
			x = enter(t, store, fmt.Sprint("n", i), 8, least)
		}
		wg.Go(func() {
			if i == 0 {
				defer close(ended) // who comes later does not wait for it any more
			}
			for range l.after {
				<-ended
			}
			if x == nil {
				x = enter(t, store, fmt.Sprint("n", i), 8, least)
			}
			defer x.exit(t)
			c.Cluster.Peers = x.team
			start := runtime.Start
			if l.damaged {
				start = startDamaged
			}
			r, err := start(ctx, c)
			if err != nil {
				errs[i] = err
				return
			}
			defer r.Stop()
			for e, err := range r.Train(ctx) {
				errs[i] = err
				switch {
				case err == nil && e.Kind == runtime.EventStart && strings.Contains(e.Message, "; back from step"):
					back[i]++
					if dirs && e.Applied == 0 {
						t.Errorf("n%d went back to the beginning: %s", i, e.Message)
					}
				case err == nil && e.Kind == runtime.EventEpoch && i == 0:
					select {
					case ended <- e.Epoch:
					default:
					}
					if e.Epoch == 0 && slices.ContainsFunc(nodes, func(l lies) bool { return l.after > 0 }) && back[0] == 0 {
						if _, err := x.member.Until(ctx, func(v *membership.View) bool { return len(v.Members) == len(nodes) }); err != nil {
							t.Error(err)
						}
					}
				}
			}
			if errs[i] == nil {
				params[i], errs[i] = r.ParametersSHA256(ctx)
			}
			for step, l := range lineageOf(x.team) {
				if errs[i] == nil && l.Step != int64(step) {
					t.Errorf("n%d: step %d was made as number %d", i, step, l.Step)
				}
			}
		})
	}
	wg.Wait()
	return params, errs, back
}

// Bits are flipped in one node's memory, and spoil some steps before an audit meets
// them: with two others the node is named and put out, and they end with the bits of an
// undamaged run; with one other both stop, and both are named.
func TestAudit(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	c.Cluster.Audit, c.Training.Epochs = 0.1, 3
	alone := c
	want, err := trainOn(t.Context(), alone, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := startDamaged(t.Context(), alone)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.ParametersSHA256(t.Context()); err != nil || got == want {
		t.Fatal("the damage changes nothing")
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	t.Run("sound", func(t *testing.T) {
		t.Parallel()
		params, errs, back := trainAudited(t, c, make([]lies, 3), false)
		for i := range params {
			if errs[i] != nil || back[i] != 0 || params[i] != want {
				t.Errorf("n%d: other bits, or it went back %d times, or %v", i, back[i], errs[i])
			}
		}
	})
	for name, nodes := range map[string][]lies{
		"three":  {{}, {damaged: true}, {}},
		"joined": {{}, {}, {damaged: true, after: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params, errs, back := trainAudited(t, c, nodes, name == "joined")
			for i, l := range nodes {
				var v *trainers.Verdict
				switch {
				case l.damaged && (!errors.As(errs[i], &v) || !v.Decided() || len(v.Lying) != 1 || !v.Names(fmt.Sprint("n", i))):
					t.Errorf("n%d, whose memory is damaged, ends with %v", i, errs[i])
				case !l.damaged && errs[i] != nil:
					t.Errorf("n%d: %v", i, errs[i])
				case !l.damaged && back[i] == 0:
					t.Errorf("n%d did not go back", i)
				case !l.damaged && params[i] != want:
					t.Errorf("n%d ends with other bits than an undamaged run", i)
				}
			}
		})
	}
	t.Run("two", func(t *testing.T) {
		t.Parallel()
		_, errs, _ := trainAudited(t, c, []lies{{}, {damaged: true}}, true)
		for i, err := range errs {
			var v *trainers.Verdict
			if !errors.As(err, &v) || v.Decided() || !v.Names("n0") || !v.Names("n1") {
				t.Errorf("n%d ends with %v", i, err)
			}
		}
	})
}

// In the asynchronous mode, too, the node whose memory is damaged is named and put out, be it the
// one with the parameters, and the others end with one another's parameters; with one other both
// are named.
func TestAuditAsynchronous(t *testing.T) {
	t.Parallel()
	c := sspConfig()
	c.Cluster.Audit, c.Execution.Threads, c.Training.Epochs = 0.1, 1, 3
	for name, nodes := range map[string][]lies{
		"sound":                   make([]lies, 3),
		"one with the parameters": {{damaged: true}, {}, {}},
		"another":                 {{}, {damaged: true}, {}},
		"two":                     {{}, {damaged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params, errs, back := trainAudited(t, c, nodes, false)
			for i, l := range nodes {
				var v *trainers.Verdict
				switch errors.As(errs[i], &v); {
				case name == "two" && (v == nil || v.Decided() || !v.Names("n0") || !v.Names("n1")):
					t.Errorf("n%d ends with %v", i, errs[i])
				case name == "two":
				case l.damaged && (v == nil || !v.Decided() || len(v.Lying) != 1 || !v.Names(fmt.Sprint("n", i))):
					t.Errorf("n%d, whose memory is damaged, ends with %v", i, errs[i])
				case !l.damaged && errs[i] != nil:
					t.Errorf("n%d: %v", i, errs[i])
				case !l.damaged && (back[i] == 0) != (name == "sound"):
					t.Errorf("n%d went back %d times", i, back[i])
				case !l.damaged && params[i] != params[2]:
					t.Errorf("n%d and n2 end with other parameters", i)
				}
			}
		})
	}
}
