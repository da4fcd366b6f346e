package shard

import (
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/partition"
	"github.com/gnnactor/gnnactor/sampling"
)

// A batch's rows come in one round, in at most 5 % more bytes, both ways and
// frames included, than the remote rows that neither match nor the cache have.
// What fetching the topology remotely as well would add is computed from the
// batches' blocks, not measured: a round per layer, in which a node that lies
// elsewhere is asked for by 4 bytes of id, and answered by the 4 bytes of a
// count and 4 for each neighbour that was sampled.
func TestWire(t *testing.T) {
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 20000, Classes: 8, AvgDegree: 10, Homophily: 0.7, FeatureDim: 128, Signal: 0.3, TrainFraction: 0.3, ValidFraction: 0.2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	const parts, batches = 4, 40
	for _, method := range []string{"hash", "metis"} {
		for _, cache := range []int{0, 1000} {
			t.Run(fmt.Sprintf("%s, %d rows cached", method, cache), func(t *testing.T) {
				part, err := partition.Compute(t.Context(), ds.Graph, method, parts, 1)
				if err != nil {
					t.Fatal(err)
				}
				m, err := NewMap(part, parts)
				if err != nil {
					t.Fatal(err)
				}
				all := features.InMemory(ds.NodeFeatures)
				defer all.Close()
				var nodes []*node
				holders := make([][]string, parts)
				for i := range parts {
					p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: fmt.Sprint("n", i), Listen: "127.0.0.1:0"})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(p.Close)
					s := NewServer(p, m, features.LayoutOf(ds.NodeFeatures), nil)
					rows, err := m.Cut(within(t), all, i)
					if err != nil {
						t.Fatal(err)
					}
					if err := s.Hold(i, rows); err != nil {
						t.Fatal(err)
					}
					nodes = append(nodes, &node{plane: p, server: s, store: NewStore(p, s)})
					holders[i] = []string{p.Node()}
				}
				for _, n := range nodes {
					for _, o := range nodes {
						n.plane.SetPeer(o.plane.Node(), o.plane.Address())
					}
				}
				a := nodes[0]
				if err := a.store.SetHolders(holders); err != nil {
					t.Fatal(err)
				}
				defer a.store.Close()
				for _, o := range nodes[1:] { // connections are made before
					if err := a.plane.Connect(within(t), o.plane.Node()); err != nil {
						t.Fatal(err)
					}
				}
				prepared, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{10, 5}, Layers: 2}, ds, 1)
				if err != nil {
					t.Fatal(err)
				}
				slab, err := features.NewSlab(a.store.Layout(), features.SlabOptions{Slots: 40000, Keep: 2, Cache: cache})
				if err != nil {
					t.Fatal(err)
				}
				defer slab.Close()
				sampler, b := prepared.NewSampler(), new(sampling.Batch)
				order := sampling.Order(ds.Train, 1, 0)
				var inputs, needed, wire, topology, rounds int64
				row := int64(a.store.layout.RowBytes())
				for i := range batches {
					b.Reset()
					b.ID = sampling.ID{Phase: "train", Batch: i % sampling.NumBatches(len(order), 256)}
					if err := sampler.Sample(b, b.ID.Key(1), sampling.Cut(order, 256, 1, b.ID.Batch, 0)); err != nil {
						t.Fatal(err)
					}
					lease, err := slab.Match(b.Inputs())
					if err != nil {
						t.Fatal(err)
					}
					request, remote := lease.Request(), int64(0)
					for _, v := range request.IDs {
						if part[v] != 0 {
							remote++
						}
					}
					before, was := a.plane.Stats(), a.store.rounds.Load()
					if err := features.Read(within(t), a.store, request); err != nil {
						t.Fatal(err)
					}
					after := a.plane.Stats()
					moved := after.Sent - before.Sent + after.Received - before.Received
					if r := a.store.rounds.Load() - was; r > 1 || r == 0 && remote > 0 {
						t.Errorf("batch %d: %d rounds", i, r)
					}
					if float64(moved) > 1.05*float64(remote*row)+float64(64*parts) { // frames' headers, and a grant to each peer
						t.Errorf("batch %d: %d bytes for %d rows of %d bytes", i, moved, remote, row)
					}
					inputs, needed, wire, rounds = inputs+int64(b.NumInputs()), needed+remote, wire+moved, rounds+1
					for _, block := range b.Blocks {
						for d := range block.NumDst {
							if part[block.SrcIDs[d]] != 0 {
								topology += 8 + 4*int64(block.Indptr[d+1]-block.Indptr[d])
							}
						}
					}
					slab.Release(lease)
				}
				if over := float64(wire) / float64(needed*row); over > 1.05 {
					t.Errorf("%.3f times the bytes of the rows", over)
				}
				per := func(n int64) float64 { return float64(n) / batches / 1024 }
				t.Logf("a batch: %d inputs, %.0f KiB; remote rows not matched or cached %.1f KiB; on the wire %.1f KiB (%+.2f %%) in 1 round; topology remote too (computed): %.1f KiB in %d rounds, %+.1f %%",
					inputs/batches, per(inputs*row), per(needed*row), per(wire), 100*(float64(wire)/float64(needed*row)-1), per(wire+topology), 1+len(b.Blocks), 100*float64(topology)/float64(wire))
			})
		}
	}
}
