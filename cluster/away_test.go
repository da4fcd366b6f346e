package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// smallAway is a run on a graph of its own.
func smallAway(t *testing.T) runtime.Config {
	t.Helper()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 600, Classes: 3, AvgDegree: 6, Homophily: 0.7, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := runtime.DefaultConfig()
	c.Data.Dataset, c.Model.Hidden, c.Memory.Match, c.Sampling.BatchSize, c.Sampling.MicroBatches, c.Training.Epochs, c.Execution.Samplers = ds, 8, "off", 60, 2, 3, 3
	return c
}

// sampleFor has a node sample for a run. damaged: a neighbour of each training node is another one there, in its memory alone.
func sampleFor(t *testing.T, n *Node, c runtime.Config, damaged bool) {
	t.Helper()
	ds := *c.Data.Dataset
	g := *ds.Graph
	g.Indices = slices.Clone(g.Indices)
	ds.Graph = &g
	c.Data.Dataset, c.Cluster.SamplesOnly = &ds, true
	rt, err := runtime.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.EndSampling()
		if err := rt.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, v := range ds.Train {
		if damaged && g.Indptr[v] < g.Indptr[v+1] {
			g.Indices[g.Indptr[v]] ^= 1
		}
	}
	if err := n.Sample(within(t), samplers.Run{ID: rt.SamplingID(), First: rt.FirstBatch(), Open: func() samplers.Draw { return rt.NewDraw() }}); err != nil {
		t.Fatal(err)
	}
}

// A node that draws otherwise than it should is found and put out though no trainer has the topology: other nodes that
// sample are asked for what it drew. The run goes on to the bits that it would have had; with one other to ask nobody can tell, and it ends.
func TestAuditAway(t *testing.T) {
	t.Parallel()
	c := smallAway(t)
	c.Cluster.Audit = 0.3
	alone, err := runtime.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range alone.Train(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	want, err := alone.ParametersSHA256(t.Context())
	if err := errors.Join(err, alone.Stop()); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		sample  []string
		lies    string
		blamed  []string
		decided bool
	}{
		"sound":        {sample: []string{"b", "c", "d"}},
		"nobody else":  {sample: []string{"b"}},
		"one of three": {[]string{"b", "c", "d"}, "c", []string{"c"}, true},
		"one of two":   {[]string{"b", "c"}, "c", []string{"b", "c"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			a := enter(t, options(s, "a", t.TempDir()))
			others := map[string]*Node{}
			for _, node := range x.sample {
				others[node] = enter(t, options(s, node, t.TempDir()))
				sampleFor(t, others[node], c, node == x.lies)
			}
			await(t, a, "all sample", func(v *membership.View) bool {
				return len(slices.DeleteFunc(slices.Clone(v.Members), func(m membership.Info) bool { return !samplers.Can(&m) })) == len(x.sample)
			})
			c, r := c, a.Samplers(false)
			team, err := a.Train(within(t), c.MaxTrainers(), 1)
			if err != nil {
				t.Fatal(err)
			}
			defer team.Close()
			if err := r.Ready(within(t), "", 1, nil); err != nil {
				t.Fatal(err)
			}
			c.Cluster.Away, c.Cluster.Elsewhere, c.Cluster.Peers = true, r, team
			rt, err := runtime.Start(within(t), c)
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Stop()
			if err := r.Ready(within(t), rt.SamplingID(), rt.Plan().MaxSamplers, rt.TrainingDataset().Graph); err != nil {
				t.Fatal(err)
			}
			back := 0
			for e, err2 := range rt.Train(within(t)) {
				if err = err2; err == nil && e.Kind == runtime.EventStart && strings.Contains(e.Message, "; back from step") {
					back++
				}
			}
			var v *trainers.Verdict
			switch {
			case x.lies == "" || x.decided:
				got, bad := rt.ParametersSHA256(t.Context())
				if err != nil || bad != nil || got != want || (back > 0) != x.decided {
					t.Errorf("it went back %d times, to other bits, or %v, %v", back, err, bad)
				}
			case back > 0 || !errors.As(err, &v) || v.Decided() || !slices.EqualFunc(v.Lying, x.blamed, func(s trainers.Suspect, node string) bool { return s.Node == node }):
				t.Errorf("it went back %d times, and ends with %v", back, err)
			}
			if x.decided {
				for node, n := range others {
					if slices.Contains(x.blamed, node) {
						<-n.Member.Lost()
					} else if err := n.Member.Err(); err != nil {
						t.Errorf("node %s is put out: %v", node, err)
					}
				}
			}
		})
	}
}

// Exact inference of a node without the topology goes on, to the same bits, when the node that it
// asks for rows drains or dies in the middle: another one is asked for what did not come.
func TestInferenceOutlivesWhoIsAsked(t *testing.T) {
	t.Parallel()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 2000, Classes: 3, AvgDegree: 6, Homophily: 0.7, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := runtime.DefaultConfig()
	c.Data.Dataset, c.Model.Hidden, c.Memory.EvalChunk, c.Memory.Match = ds, 8, 100, "off"
	start := func(c runtime.Config) *runtime.Runtime {
		rt, err := runtime.Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rt.Stop(); err != nil {
				t.Error(err)
			}
		})
		return rt
	}
	all := make([]uint32, ds.Graph.NumNodes())
	for i := range all {
		all[i] = uint32(i)
	}
	want, err := start(c).Embed(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*testing.T, *Node){
		"it drains": func(t *testing.T, b *Node) {
			if err := b.Drain(within(t)); err != nil {
				t.Error(err)
			}
		},
		"it dies": func(_ *testing.T, b *Node) { b.Plane.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			n := map[string]*Node{}
			var asked sync.Map // rows asked of a node
			var once sync.Once
			for _, name := range []string{"a", "b", "c"} {
				n[name] = enter(t, options(s, name, t.TempDir()))
			}
			only := c
			only.Cluster.SamplesOnly = true
			rt := start(only)
			for _, name := range []string{"b", "c"} {
				if err := n[name].Sample(within(t), samplers.Run{ID: rt.SamplingID(), First: rt.FirstBatch(), Open: func() samplers.Draw {
					draw := rt.NewDraw()
					return func(b *sampling.Batch, m *messages.Seeds) (messages.Message, error) {
						if m.Want == messages.WantRows {
							if _, before := asked.LoadOrStore(name, true); before { // it has answered already
								once.Do(func() { end(t, n[name]) })
							}
						}
						return draw(b, m)
					}
				}}); err != nil {
					t.Fatal(err)
				}
			}
			await(t, n["a"], "both sample", func(v *membership.View) bool {
				return len(v.Members) == 3 && !slices.ContainsFunc(v.Members, func(m membership.Info) bool { return m.Node != "a" && !samplers.Can(&m) })
			})
			r := n["a"].Samplers(false)
			if err := r.Ready(within(t), "", 4, (*graph.Graph)(nil)); err != nil {
				t.Fatal(err)
			}
			away := c
			away.Cluster.Away, away.Cluster.Elsewhere = true, r
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			got, err := start(away).Embed(ctx, all)
			if err != nil || !slices.Equal(got.Data, want.Data) {
				t.Errorf("other embeddings, %v", err)
			}
			_, b := asked.Load("b")
			if _, c := asked.Load("c"); !b || !c {
				t.Errorf("b was asked for rows: %v, c: %v", b, c)
			}
			if where := r.Where(); slices.Contains(where, "b") && slices.Contains(where, "c") {
				t.Errorf("the samplers are on %v", where)
			}
		})
	}
}
