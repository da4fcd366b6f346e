package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/samplers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/sampling"
)

// Exact inference of a node without the topology goes on, to the same bits, when the node that it
// asks for rows drains or dies in the middle: another one is asked for what did not come.
func TestInferenceOutlivesWhoIsAsked(t *testing.T) {
	ds, err := generate.SBM(generate.SBMOptions{Nodes: 2000, Classes: 3, AvgDegree: 6, Homophily: 0.7, FeatureDim: 4, Signal: 0.5, TrainFraction: 0.5, ValidFraction: 0.2, Seed: 1})
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
