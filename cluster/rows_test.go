package cluster_test

import (
	"context"
	"fmt"
	stdruntime "runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/membership"
	"github.com/gnnactor/gnnactor/cluster/shard"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/runtime"
)

// keep makes a node hold shards of the data set's features; only source has
// more than that.
func (n *node) keep(t *testing.T, ds *graph.Dataset, shards, replicas int, source bool) *shard.Keeper {
	t.Helper()
	part := make([]uint32, ds.Graph.NumNodes())
	for v := range part {
		part[v] = uint32(v % shards)
	}
	m, err := shard.NewMap(part, shards)
	if err != nil {
		t.Fatal(err)
	}
	o := shard.Options{Member: n.member, Plane: n.plane, Map: m, Layout: features.LayoutOf(ds.NodeFeatures), Replicas: replicas}
	if source {
		o.All = features.InMemory(ds.NodeFeatures)
	}
	k, err := shard.Keep(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// settled waits until each of the nodes holds the shards that it should, and no
// others; one that is not among them holds none.
func (n *node) settled(t *testing.T, shards int, nodes ...string) {
	t.Helper()
	_, err := n.member.Until(t.Context(), func(v *membership.View) bool {
		held := make([][]string, shards)
		for _, m := range v.Members {
			for _, s := range m.Shards {
				held[s] = append(held[s], m.Node)
			}
		}
		return slices.EqualFunc(held, shard.Assign(shards, 1, nodes), slices.Equal)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Three nodes, of which each holds a third of the features and one has the data:
// the same bits as one process that has all, and one round of rows a read. Then
// the node with the data leaves, having handed its shards over.
func TestRowsOfShards(t *testing.T) {
	want, err := trainOn(t.Context(), clusterConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := generate.Builtin()
	whole.Fingerprint = hashOf(t, whole)
	bare := *whole
	bare.NodeFeatures = nil
	const shards = 6
	store := membership.NewMemStore()
	defer store.Close()
	var nodes []*node
	var keepers []*shard.Keeper
	for i := range 3 {
		x := enter(t, store, fmt.Sprint("n", i), 8, 3)
		nodes = append(nodes, x)
		keepers = append(keepers, x.keep(t, whole, shards, 1, i == 0))
	}
	for i, x := range nodes {
		x.settled(t, shards, "n0", "n1", "n2")
		// A read of all rows that is over has seen the newest table of holders.
		store := keepers[i].Store()
		l := store.Layout()
		r := features.Request{IDs: make([]uint32, l.Rows), Dst: l.NewTable(l.Rows)}
		for v := range r.IDs {
			r.IDs[v] = uint32(v)
		}
		if err := features.Read(t.Context(), store, r); err != nil {
			t.Fatal(err)
		}
	}
	rounds0, remote0 := keepers[0].Store().Stats()
	var wg sync.WaitGroup
	for i, x := range nodes {
		wg.Go(func() {
			c := clusterConfig()
			c.Cluster.Peers, c.Data.Rows, c.Memory.Match, c.Training.EvalEvery = x.team, keepers[i].Store(), []string{"on", "off", ""}[i], 0
			c.Data.Dataset = whole
			if i > 0 {
				c.Data.Dataset = &bare
			}
			var rows runtime.RowStats
			got, err := trainOn(t.Context(), c, func(e runtime.Event) { rows = e.Rows })
			if err != nil || got != want {
				t.Errorf("node %d: the parameters differ, or %v", i, err)
			}
			if i > 0 {
				return // its inference at the end read rows as well
			}
			rounds, remote := keepers[i].Store().Stats()
			rounds, remote = rounds-rounds0, remote-remote0
			if rounds == 0 || rounds > rows.Batches+2 || remote == 0 || remote > rows.Loaded {
				t.Errorf("%d rounds of %d remote rows for %d micro-batches, %d more to warm up, and %d rows loaded", rounds, remote, rows.Batches, 2, rows.Loaded)
			}
		})
	}
	wg.Wait()
	if err := keepers[0].Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The node with the data has none left; what the others copied from each
	// other before, they let go as they see that it has arrived.
	nodes[1].settled(t, shards, "n1", "n2")
	// Rows that a node has said it does not hold stay until it has heard so itself.
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for want := []int{0, shards / 2, shards / 2}; ; stdruntime.Gosched() {
		held := []int{keepers[0].Held(), keepers[1].Held(), keepers[2].Held()}
		if slices.Equal(held, want) {
			break
		}
		if limit.Err() != nil {
			t.Fatalf("after the drain the nodes hold %v shards", held)
		}
	}
	for i, x := range nodes {
		if err := keepers[i].Close(); err != nil {
			t.Error(err)
		}
		x.exit(t)
	}
}

// hashOf returns the dataset's ContentHash.
func hashOf(t *testing.T, ds *graph.Dataset) string {
	t.Helper()
	hash, err := ds.ContentHash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
