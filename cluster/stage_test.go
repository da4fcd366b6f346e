package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime"
	"github.com/gnnactor/gnnactor/runtime/runtimetest"
)

// processing is a Processor that is a function.
type processing func(ctx context.Context, b *runtime.StageBatch) error

func (f processing) Process(ctx context.Context, b *runtime.StageBatch) error { return f(ctx, b) }

// stageOf is a stage that does f.
func stageOf(name string, after runtime.Place, f processing) runtime.Stage {
	return runtime.Stage{Name: name, Version: "1", After: after, New: func(*graph.Dataset) (runtime.Processor, error) { return f, nil }}
}

// Stages that change batches and rows, see package runtimetest.
func thinned() runtime.Stage {
	return stageOf("thinned", runtime.AfterSample, func(_ context.Context, b *runtime.StageBatch) error {
		runtimetest.Thin(b.Batch, b.Key)
		return nil
	})
}

func bent() runtime.Stage {
	return stageOf("bent", runtime.AfterLoad, func(_ context.Context, b *runtime.StageBatch) error {
		runtimetest.Bend(b.X, b.Nodes)
		return nil
	})
}

func noisy() runtime.Stage {
	return stageOf("noisy", runtime.AfterLoad, func(_ context.Context, b *runtime.StageBatch) error {
		if b.Batch != nil { // in training
			runtimetest.AddNoise(b.X, b.Key)
		}
		return nil
	})
}

// Three nodes with stages train to the bits of one process.
func TestStagesTogether(t *testing.T) {
	c := clusterConfig()
	c.Stages = []runtime.Stage{thinned(), noisy(), bent()}
	sameTogether(t, c, 3)
}

// A node that lacks a stage, or has it in another version, is refused by name, and the
// others go on without it.
func TestStagesOfAnotherNode(t *testing.T) {
	t.Parallel()
	c := clusterConfig()
	c.Stages = []runtime.Stage{thinned()}
	want, err := trainOn(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	newer := thinned()
	newer.Version = "2"
	for says, stages := range map[string][]runtime.Stage{
		`stages is ["thinned 1 after sample"] at node n`: nil,
		`and ["thinned 2 after sample"] here`:            {newer},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			store := membership.NewMemStore()
			come := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 3 {
				x := enter(t, store, fmt.Sprint("n", i), 8, 2)
				wg.Go(func() {
					defer x.exit(t)
					c := c
					c.Cluster.Peers = x.team
					if i == 0 {
						c.Stages = stages
						<-come
					}
					got, err := trainOn(t.Context(), c, func(e runtime.Event) {
						if i == 1 && e.Applied == 3 && e.Kind == runtime.EventStep { // no epoch begins without it
							close(come)
							if _, err := x.member.Until(t.Context(), func(v *membership.View) bool {
								m, _ := v.Member("n0")
								return slices.Contains(m.Kinds, trainers.Kind)
							}); err != nil {
								t.Error(err)
							}
						}
					})
					if i == 0 && (!errors.Is(err, trainers.ErrOtherRun) || !strings.Contains(err.Error(), says)) {
						t.Errorf("it ended with %v, want %q", err, says)
					}
					if i > 0 && (err != nil || got != want) {
						t.Errorf("node %d: the parameters differ, or %v", i, err)
					}
				})
			}
			wg.Wait()
			store.Close()
		})
	}
}
